"""A small network of its own: a server and N workers, each a network namespace with a link of a given rate.

    enter_private_namespaces()          # once, first: goes on in namespaces that end with this process
    network = Network(workers=2)
    network.set_rate(6e6, dense_on_link=True)

               server             10.77.0.2
                 | eth0
    switch ------+------ 10.77.0.1 (this process)
       |                 |
       | eth0            | eth0                every eth0 sends and receives at the rate (tc tbf on both ends)
    worker0           worker1     10.77.0.10, 10.77.0.11, ...
       | eth1            | eth1                never limited
       +--- switch ------+        10.78.0.10, 10.78.0.11, ...

Workers know each other by the addresses of eth1. A route decides which way these packets go: over eth1 the
workers are like GPUs of one machine, whose link to the server is the slow one; over eth0 they are machines of
their own, and everything shares the slow links.

All of it lives in namespaces of processes, networks and mounts that the kernel removes when the first
process in them ends, however it ends: nothing is left behind, and no other process sees it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

INSIDE = "HET_SLOW_LINK_INSIDE"
SERVER = "10.77.0.2"
SWITCH = "10.77.0.1"
BURST_SECONDS = 250e-6
"""What a link may send at once after a pause, in seconds of its rate; two packets at least."""
PACKET = 1514
QUEUE = 8 << 20
"""Bytes that wait before a link. More than senders have under way, so that none is dropped."""


def missing() -> str:
    """Why there can be no such network here; "" if there can."""
    for name in ("ip", "tc"):
        if shutil.which(name) is None:
            return f"{name} is missing: apt-get install iproute2"
    for name in ("unshare", "setpriv"):
        if shutil.which(name) is None:
            return f"{name} is missing: apt-get install util-linux"
    script = (
        "mkdir -p /run/netns && mount -t tmpfs none /run/netns"
        " && ip link add try0 type veth peer name try1 && ip link add try2 type bridge && ip netns add try"
        " && tc qdisc add dev try0 root tbf rate 8mbit burst 16k limit 1m"
    )
    tried = subprocess.run([*_unshare(), "sh", "-c", script], capture_output=True, text=True, timeout=30)
    if tried.returncode == 0:
        return ""
    why = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
    remedy = "" if os.geteuid() == 0 else "; run it as root"
    return f"network namespaces with tc tbf cannot be made here ({why}){remedy}"


def _unshare() -> list[str]:
    root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *root, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def enter_private_namespaces() -> None:
    """Starts this program again in namespaces of its own, and returns there; ask `missing()` before.

    The process that was called waits for that, and exits as it does. Whatever ends either of the two ends
    the other, and with it every process and every link inside.
    """
    if INSIDE in os.environ:
        Path("/run/netns").mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run/netns"], check=True)
        return
    sys.stdout.flush()
    # unshare itself ignores SIGTERM and SIGINT, so it is killed.
    command = ["setpriv", "--pdeathsig", "KILL", *_unshare(), sys.executable, *sys.argv]
    inside = subprocess.Popen(command, env={**os.environ, INSIDE: "1"})
    ended_by = 0

    def end(number: int, _: object) -> None:
        nonlocal ended_by
        ended_by = number
        inside.kill()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    code = inside.wait()
    sys.exit(128 + ended_by if ended_by else code if code >= 0 else 128 - code)


class Network:
    """The network of the head of this file; call `enter_private_namespaces` before.

    Args:
      workers: N.

    Attributes:
      workers: the names of the workers' hosts.
      hosts: those, and "server".
    """

    def __init__(self, workers: int) -> None:
        self.workers = [f"worker{number}" for number in range(workers)]
        self.hosts = ["server", *self.workers]
        _run("ip link set lo up")
        # A kernel's filters of bridges would take time of the workers' cores for each packet.
        _run("sysctl -q -w net.bridge.bridge-nf-call-iptables=0", must=False)
        for bridge in ("rows", "dense"):
            _run(f"ip link add {bridge} type bridge")
            _run(f"ip link set {bridge} up")
        _run(f"ip address add {SWITCH}/24 dev rows")
        for host in self.hosts:
            _run(f"ip netns add {host}")
            _run(f"ip -n {host} link set lo up")
            self._attach(host, "eth0", "rows", self.address(host))
            if host != "server":
                self._attach(host, "eth1", "dense", self.dense_address(host))
        for host in self.hosts:
            # Linux's own default; this machine's may be another one, which paces by itself.
            self.run(host, "sysctl -q -w net.ipv4.tcp_congestion_control=cubic", must=False)
        self.set_rate(None, dense_on_link=False)

    def address(self, host: str) -> str:
        """The host's address on the network that is limited."""
        return SERVER if host == "server" else f"10.77.0.{10 + self.workers.index(host)}"

    def dense_address(self, worker: str) -> str:
        """The address by which workers know each other."""
        return f"10.78.0.{10 + self.workers.index(worker)}"

    def _attach(self, host: str, device: str, bridge: str, address: str) -> None:
        port = f"{bridge[0]}_{host}"
        _run(f"ip link add {port} type veth peer name {device} netns {host}")
        _run(f"ip link set {port} master {bridge}")
        _run(f"ip link set {port} up")
        _run(f"ip -n {host} address add {address}/24 dev {device}")
        _run(f"ip -n {host} link set {device} up")

    def run(self, host: str, command: str, must: bool = True) -> None:
        """Runs a short command on a host."""
        _run(f"ip netns exec {host} {command}", must)

    def on(self, host: str, command: Sequence[str]) -> list[str]:
        """The command that runs `command` on a host."""
        return ["ip", "netns", "exec", host, *command]

    def set_rate(self, rate: float | None, dense_on_link: bool) -> None:
        """Sets every link between a host and the switch.

        Args:
          rate: bytes a second, each way; None: not limited.
          dense_on_link: whether workers talk to each other over these links, too.
        """
        for host in self.hosts:
            for where, device in (("", f"r_{host}"), (f"-n {host}", "eth0")):
                if rate is None:
                    _run(f"tc {where} qdisc del dev {device} root", must=False)
                else:
                    burst = max(2 * PACKET, round(rate * BURST_SECONDS))
                    shape = f"tbf rate {round(8 * rate)}bit burst {burst} limit {QUEUE}"
                    _run(f"tc {where} qdisc replace dev {device} root {shape}")
        device = "eth0" if dense_on_link else "eth1"
        for host in self.workers:
            for other in self.workers:
                if other != host:
                    route = f"{self.dense_address(other)} dev {device} src {self.dense_address(host)}"
                    _run(f"ip -n {host} route replace {route}")

    def bytes(self) -> dict[str, tuple[int, int]]:
        """For each host the bytes that it has sent and received over its eth0, as the kernel counts them."""
        found = {}
        for line in Path("/proc/net/dev").read_text().splitlines():
            name, _, numbers = line.strip().partition(":")
            if name.startswith("r_"):
                words = numbers.split()
                found[name.removeprefix("r_")] = (int(words[0]), int(words[8]))
        return found


def _run(command: str, must: bool = True) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, timeout=30)
    if must and done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr.strip() or done.stdout.strip()}")
