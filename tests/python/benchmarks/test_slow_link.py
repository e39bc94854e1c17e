"""benchmarks/slow_link: links that are as slow as they say, nothing left behind, and figures that follow."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import horovod_lib
import pytest
from benchmarks_lib import BENCHMARKS, benchmark

pytestmark = pytest.mark.long


tables = benchmark("slow_link_tables")
jobs = benchmark("jobs", BENCHMARKS / "slow_link")
network = benchmark("network", BENCHMARKS / "slow_link")
session = benchmark("session", BENCHMARKS / "slow_link")
NO_NAMESPACES = network.missing()
needs_namespaces = pytest.mark.skipif(bool(NO_NAMESPACES), reason=NO_NAMESPACES or "there are namespaces")


# --- the relay ------------------------------------------------------------------------------------


@contextlib.contextmanager
def echo() -> Iterator[str]:
    """The address of a server that sends back what comes, until the other side sends no more."""

    def answer(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data)

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def relay() -> Iterator[Any]:
    with echo() as target:
        place = jobs.Place(None, 1)
        made = jobs.Relay(place, target)
        try:
            yield made
        finally:
            made.stop()
            place.close()


def round_trip(relay: Any, data: bytes) -> bytes:
    """Sends and half-closes; returns all that comes back."""
    host, _, port = relay.address.removeprefix("redis://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:

        def send() -> None:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        back = b""
        while part := client.recv(1 << 18):
            back += part
        sender.join()
    return back


def test_the_relay_hands_on_what_comes_and_counts_it(relay: Any) -> None:
    data = os.urandom(3_000_001)
    assert round_trip(relay, data) == data
    assert relay.bytes() == (len(data), len(data))
    relay.set(0.0001, 50e6)
    results: list[bytes] = []
    several = [threading.Thread(target=lambda: results.append(round_trip(relay, data))) for _ in range(3)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()
    assert results == [data] * 3
    assert relay.bytes() == (4 * len(data), 4 * len(data))


def test_nothing_is_handed_on_too_soon(relay: Any) -> None:
    # Lower limits alone: a machine under load is late, and never early.
    relay.set(0.1, None)
    begin = time.monotonic()
    assert round_trip(relay, b"x") == b"x"
    assert time.monotonic() - begin >= 0.1
    relay.set(0, 2e6)
    begin = time.monotonic()
    assert len(round_trip(relay, bytes(200_000))) == 200_000
    assert time.monotonic() - begin >= 0.1


def test_the_relay_names_what_it_does_not_understand(relay: Any) -> None:
    with pytest.raises(RuntimeError, match="the relay has ended"):
        relay._ask("delay -1")
    for words, message in (
        (["127.0.0.1:0"], "give HOST:PORT"),
        (["localhost:0", "127.0.0.1:1"], "'localhost:0' is no address"),
        (["127.0.0.1:0", "/" + 200 * "x"], "the path is too long"),
    ):
        done = subprocess.run([jobs.RELAY, *words], capture_output=True, text=True, timeout=10)
        assert done.returncode == 2 and message in done.stderr


# --- the network ----------------------------------------------------------------------------------

NETWORK = f"""
import socket, subprocess, sys, time
sys.path.insert(0, {str(BENCHMARKS / "slow_link")!r})
import network
network.enter_private_namespaces()
made = network.Network(2)
"""


@needs_namespaces
def test_links_are_limited_and_counted_each_way(tmp_path: Path) -> None:
    size = 300_000
    take = (
        "import socket; s = socket.create_server(('0.0.0.0', 5000)); print('ready', flush=True)\n"
        "while True:\n c = s.accept()[0]\n while c.recv(65536): pass\n c.sendall(b'.')"
    )
    give = (
        "import socket, sys, time; c = socket.create_connection((sys.argv[1], 5000), timeout=30); "
        f"t = time.monotonic(); c.sendall(bytes({size})); c.shutdown(1); c.recv(1); "
        "print(time.monotonic() - t)"
    )
    script = tmp_path / "links.py"
    script.write_text(
        NETWORK
        + f"""
servers = []
for host in made.hosts:
    command = made.on(host, [sys.executable, "-c", {take!r}])
    servers.append(subprocess.Popen(command, stdout=subprocess.PIPE))
    servers[-1].stdout.readline()

def send(address):
    before = made.bytes()
    command = made.on("worker0", [sys.executable, "-c", {give!r}, address])
    seconds = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    sent, received = (after - before for after, before in
                      zip(made.bytes()["worker0"], before["worker0"], strict=True))
    at = {{host: b[1] - before[host][1] for host, b in made.bytes().items()}}
    print(seconds, sent, received, at["server"], at["worker1"])

made.set_rate(2e6, dense_on_link=False)
send(made.address("server"))
send(made.dense_address("worker1"))
made.set_rate(2e6, dense_on_link=True)
send(made.dense_address("worker1"))
made.set_rate(None, dense_on_link=False)
send(made.address("server"))
"""
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    to_server, beside, over, free = ([float(w) for w in line.split()] for line in done.stdout.splitlines())
    for seconds, sent, received, *_ in (to_server, over):
        # Not sooner than the link can, but for the two packets and what the test's clock does not see.
        assert seconds >= 0.9 * size / 2e6
        assert size < sent < 1.1 * size and received < 0.1 * size
    assert to_server[3] > size > to_server[4]
    assert over[4] > size > over[3]
    assert beside[1] < 0.1 * size, "workers of one machine send nothing over the slow link"
    assert free[1] > size


def processes_with(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


@needs_namespaces
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_behind_however_it_ends(tmp_path: Path, how: signal.Signals) -> None:
    mark = f"left-behind-{tmp_path}"
    script = tmp_path / "ends.py"
    script.write_text(
        NETWORK
        + f"""
subprocess.Popen(made.on("worker1", [sys.executable, "-c", "import time; time.sleep(600)", {mark!r}]))
print("ready", flush=True)
time.sleep(600)
"""
    )
    here = subprocess.run(["ip", "link"], capture_output=True, text=True).stdout
    program = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, start_new_session=True)
    assert program.stdout is not None and program.stdout.readline() == b"ready\n"
    for _ in range(100):
        if processes_with(mark):
            break
        time.sleep(0.05)
    assert processes_with(mark)
    assert subprocess.run(["ip", "link"], capture_output=True, text=True).stdout == here
    assert "worker1" not in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    if how == signal.SIGINT:
        os.killpg(program.pid, how)  # as a terminal does
    else:
        program.send_signal(how)
    assert program.wait(30) == (-9 if how == signal.SIGKILL else 128 + how)
    for _ in range(200):
        if not processes_with(mark):
            return
        time.sleep(0.05)
    raise AssertionError(f"still there: {processes_with(mark)}")


# --- what is made of it ---------------------------------------------------------------------------


class Machine:
    """A session whose links take exactly their time: a step takes its overhead and bytes / rate."""

    compute, overhead, size = 0.01, 0.008, 3e6
    scale = session.Scale(rounds=2)

    def turn(self, system: str, link: Any, steps: int | None = None, same: bool = False) -> dict[str, Any]:
        wire = self.size / link.rate if link.rate else 0.0
        step = self.compute + (0 if system == "local" else self.overhead + wire)
        return {"step": step, "bytes": 2 * self.size, "server_bytes": self.size}

    def measure(self, systems: list[str], link: Any) -> dict[str, Any]:
        return {"compute": self.turn("local", link)} | {name: self.turn(name, link) for name in systems}


@pytest.mark.parametrize("ratio", [1.0, 12.0, 100.0])
def test_the_rate_is_found_at_which_communication_takes_so_many_times_the_computing(ratio: float) -> None:
    found = session.calibrate(Machine(), ratio)
    assert found["reached"] == pytest.approx(ratio)
    assert found["rate"] == pytest.approx(3e6 / (ratio * 0.01 - 0.008))


def test_a_ratio_that_no_link_is_fast_enough_for_is_said() -> None:
    found = session.calibrate(Machine(), 0.5)
    assert found["rate"] is None and found["reached"] == pytest.approx(0.8)


def result_of(steps: dict[str, float], rate: float, factor: int, dense: bool) -> dict[str, Any]:
    measured = {name: {"step": step, "bytes": 2e3, "server_bytes": 1e3} for name, step in steps.items()}
    link = session.Link(rate, dense)
    return {"factor": factor, **session.summary({"compute": {"step": 0.01}, **measured}, link)}


def test_communication_is_what_a_step_takes_beyond_its_computing() -> None:
    entry = result_of({"no cache": 0.13, "s=10": 0.05, "s=100": 0.025}, 6e6, 1, dense=False)
    assert entry["ratio"] == pytest.approx(12)
    assert tables.gain(entry, "s=100", "communication") == pytest.approx(8)
    assert tables.gain(entry, "s=10", "communication") == pytest.approx(3)
    assert tables.gain(entry, "s=100", "step") == pytest.approx(5.2)
    assert tables.gain_text(entry, "s=10", "communication") == "3.00"
    none = result_of({"no cache": 0.13, "s=100": 0.0105}, 6e6, 1, dense=False)
    assert tables.gain_text(none, "s=100", "communication") == "-"
    assert tables.gain_text(none, "s=100", "step") == "12.38"
    result = {"models": {"wide_deep": {"settings": [entry]}}}
    met = {entry["goal"]: entry["met"] for entry in tables.goals(result)}
    assert list(met.values()) == [False, True, True]


def test_computing_is_the_median_of_a_whole_launch() -> None:
    entries = [
        result_of({"no cache": 0.13, "s=100": 0.025}, rate, 1, dense=False) for rate in (6e6, 7e6, 8e6)
    ]
    entries[0]["compute"] = 0.035  # the machine was busy
    entries[1]["hits"] = {"s=100": {"step": 0.012}}
    session.share_compute(entries)
    for entry in entries:
        assert entry["compute"] == 0.01 and entry["ratio"] == pytest.approx(12)
        assert entry["systems"]["s=100"]["communication"] == pytest.approx(0.015)
    assert entries[0]["compute_here"] == 0.035
    assert entries[1]["hits"]["s=100"]["communication"] == pytest.approx(0.002)


def test_the_rate_for_a_peer_follows_from_two_rates() -> None:
    def steps(rate: float) -> dict[str, float]:
        # 1 ms + 100 kB / rate, and 2 ms + 5 MB / rate: fifty times the bytes.
        return {"no cache": 1.0, "s=100": 0.001 + 1e5 / rate, "allgather": 0.002 + 5e6 / rate}

    at = [result_of(steps(rate), rate, factor, dense=True) for rate, factor in ((6e6, 1), (60e6, 10))]
    text = tables.reached_at(at[0]["systems"], at[1]["systems"], "allgather", at)
    reached = steps(float(text) / 8 * 1e6)
    assert reached["allgather"] / reached["s=100"] == pytest.approx(20.68, rel=1e-2)
    flat = [result_of({**steps(r), "allgather": 15 * steps(r)["s=100"]}, r, 1, True) for r in (6e6, 60e6)]
    text = tables.reached_at(flat[0]["systems"], flat[1]["systems"], "allgather", flat)
    assert text == "never; at most 15.0x"


def test_round_trips_of_an_all_hit_step_follow_from_the_latency() -> None:
    def at(trip: float) -> dict[str, Any]:
        hits = {"s=0": {"median_step": 0.01 + 2 * trip}, "s=100": {"median_step": 0.01 + trip}}
        return {"round_trip": trip, "systems": {}, "hits": hits}

    result = {"latency": {"settings": [at(0.0), at(0.0002), at(0.001)]}}
    assert tables.hit_round_trips(result) == pytest.approx({"s=0": 2.0, "s=100": 1.0})


def test_a_system_that_was_not_measured_at_some_ratio_leaves_its_place_empty() -> None:
    two = result_of({"no cache": 0.13, "s=10": 0.05, "s=100": 0.025}, 6e6, 1, dense=False)
    one = result_of({"no cache": 0.25, "s=100": 0.025}, 3e6, 1, dense=False)
    one["compute_here"] = 0.03
    lines = tables.WRITERS["ratios"]({"ratios": {"settings": [one, two]}})
    cells = [line.strip("| ").split(" | ") for line in (*lines[:1], *lines[2:4])]
    assert [line[2] for line in cells[1:]] == ["10.0 (10.0)", "10.0 (30.0)"]
    assert cells[1][3:] == ["3.00", "8.00", "2.60", "5.20"]
    assert cells[2][3:] == ["-", "16.00", "-", "10.00"]
    assert len({len(line) for line in cells}) == 1


def test_every_table_has_its_place_in_the_docs_and_says_when_it_was_not_run() -> None:
    text = (BENCHMARKS.parent / "docs/benchmarks.md").read_text()
    for name, write in tables.WRITERS.items():
        assert f"<!-- slow_link {name} -->" in text
        assert write({})[0].startswith("Not run yet")


@horovod_lib.RANKS
@pytest.mark.parametrize("how", [pytest.param("namespaces", marks=needs_namespaces), "relay"])
def test_a_small_run_from_its_workers_to_its_tables(how: str, tmp_path: Path) -> None:
    out = tmp_path / "slow_link.json"
    words = ["--quick", "--only", "wide_deep", "--out", str(out)] + (["--relay"] if how == "relay" else [])
    command = [sys.executable, str(BENCHMARKS / "slow_link.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert bool(result["relay"]) == (how == "relay")
    model = result["models"]["wide_deep"]
    entry = tables.setting(model, 1, dense=False)
    assert entry is not None and set(entry["systems"]) == {"no cache", "s=100"}
    size = {name: figures["server_bytes"] for name, figures in entry["systems"].items()}
    # Two workers pull and push some 1,500 rows of 16 floats a step; with a cache far fewer.
    assert size["no cache"] > 2 * 2 * 1000 * 64 and size["s=100"] < size["no cache"]
    both = tables.setting(model, 1, dense=True)
    if how == "relay":
        assert both is None
    else:
        assert both is not None and set(both["systems"]) == {"local", "allgather", "no cache", "s=100"}
        # The all-reduce alone, and the rows of both workers once to each other.
        assert both["systems"]["local"]["server_bytes"] < 0.1 * size["no cache"]
        assert both["systems"]["local"]["bytes"] >= model["dense_bytes"]
        assert both["systems"]["allgather"]["bytes"] > 2 * 128 * 26 * 16 * 4
    for name in ("goals", "models"):
        assert len(tables.WRITERS[name](result)) > 3
    peers = tables.WRITERS["peers"](result)
    assert peers[0].startswith("Not measured: peers need") if how == "relay" else len(peers) > 3
    other = subprocess.run([*command, "--workers", "1"], capture_output=True, text=True, timeout=60)
    assert other.returncode == 1 and "is of other workers" in other.stderr
