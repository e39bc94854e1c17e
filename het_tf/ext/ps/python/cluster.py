"""Reads the state of a Redis Cluster, and makes one.

`View` is CLUSTER NODES as one server reports it. `form` makes a cluster of empty servers, with the same
commands as `redis-cli --cluster create`; unlike it, `form` makes clusters of two shards, and after an
interruption a second call goes on where the first one stopped.
"""

import binascii
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from het_tf.ext.ps.python.address import Place
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.node import Node, Refused
from het_tf.python.show import Say

SLOTS = 16384


def slot_of(key: str) -> int:
    """The slot of a key: of what stands between its first braces, if that is something."""
    tag = re.search(r"\{(.*?)\}", key, re.DOTALL)
    return binascii.crc_hqx((tag[1] if tag and tag[1] else key).encode(), 0) % SLOTS


AUTOMATIC_SHARDS = 3
"""With fewer, no replica is promoted without an operator: those left are no majority of all primaries."""


@dataclass
class Peer:
    """One line of CLUSTER NODES.

    Attributes:
      id: 40 hexadecimal digits, its name for as long as its nodes.conf lives.
      place: Where clients reach it.
      bus: The port where the other servers reach it.
      flags: Such as myself, master, slave, fail?, fail, handshake, noaddr.
      primary: The id of its primary; "" if it is a primary.
      epoch: Version of its claim to its slots: the larger one wins. A replica has its primary's.
      connected: Whether the reporting server has a link to it.
      slots: The slots that it owns.
      migrating, importing: Open slots, and the id of the other side. A server reports only its own.
    """

    id: str
    place: Place
    bus: int
    flags: frozenset[str]
    primary: str
    epoch: int
    connected: bool
    slots: set[int] = field(default_factory=set)
    migrating: dict[int, str] = field(default_factory=dict)
    importing: dict[int, str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether other servers consider it down."""
        return bool(self.flags & {"fail", "fail?"})


class View:
    """A cluster as `node` sees it.

    Raises:
      Unreachable, Refused: As `Node.ask`.
    """

    def __init__(self, node: Node) -> None:
        self.peers: dict[str, Peer] = {}
        for line in str(node.ask("CLUSTER", "NODES")).splitlines():
            peer = _peer(line, node.place)
            if "handshake" not in peer.flags:
                self.peers[peer.id] = peer
                if "myself" in peer.flags:
                    self.myself = peer

    @property
    def primaries(self) -> list[Peer]:
        """Servers that own slots or could, ordered by their first slot."""
        found = [peer for peer in self.peers.values() if not peer.primary]
        return sorted(found, key=lambda peer: (min(peer.slots, default=SLOTS), str(peer.place)))

    @property
    def epoch(self) -> int:
        """Epoch of the newest claim to slots that the server knows: after a failover the larger is right."""
        return max(peer.epoch for peer in self.peers.values())

    @property
    def uncovered(self) -> list[int]:
        """Slots without an owner."""
        return sorted(set(range(SLOTS)).difference(*(peer.slots for peer in self.peers.values())))


def _peer(line: str, asked: Place) -> Peer:
    name, where, flags, primary, _, _, epoch, link, *slots = line.split()
    reach, _, bus = where.partition(",")[0].partition("@")
    host, _, port = reach.rpartition(":")
    here = "myself" in flags.split(",") and (asked.path or not host)
    peer = Peer(
        name,
        asked if here else Place(host.strip("[]"), int(port)),
        int(bus or 0),
        frozenset(flags.split(",")),
        "" if primary == "-" else primary,
        int(epoch),
        link == "connected",
    )
    for word in slots:
        if word.startswith("["):
            if "->-" in word:
                slot, _, other = word.strip("[]").partition("->-")
                peer.migrating[int(slot)] = other
            else:
                slot, _, other = word.strip("[]").partition("-<-")
                peer.importing[int(slot)] = other
        else:
            first, _, last = word.partition("-")
            peer.slots.update(range(int(first), int(last or first) + 1))
    return peer


def spans(slots: Sequence[int] | set[int]) -> str:
    """Slots as text: 0-8191,9000."""
    parts: list[list[int]] = []
    for slot in sorted(slots):
        if parts and parts[-1][1] == slot - 1:
            parts[-1][1] = slot
        else:
            parts.append([slot, slot])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def is_cluster(node: Node) -> bool:
    """Whether a server runs with `cluster-enabled yes`."""
    return node.info("cluster").get("cluster_enabled") == "1"


def await_true(check: Callable[[], str], timeout: float, say: Say) -> None:
    """Waits until `check` returns ""; passes any other result to `say` whenever it changes.

    Raises:
      ServerError: `check` does not return "" within `timeout` seconds.
    """
    end = time.monotonic() + timeout
    said = ""
    while why := check():
        if time.monotonic() >= end:
            raise ServerError(f"not ready within {timeout:g} s: {why}")
        if why != said:
            say(f"waiting: {why}")
            said = why
        time.sleep(0.1)


def form(primaries: list[Node], replicas: list[list[Node]], timeout: float, say: Say) -> None:
    """Makes one cluster: equal shares of slots in the order of `primaries`, each with its replicas.

    Args:
      primaries: Servers with `cluster-enabled yes`, empty or left by an earlier attempt.
      replicas: For each primary, its replicas.
      timeout: Seconds to wait for the servers to agree.
      say: Called with each step.

    Raises:
      ServerError: A server belongs to another cluster, holds keys, or does not agree in time.
    """
    nodes = primaries + [node for of_one in replicas for node in of_one]
    views = [View(node) for node in nodes]
    ids = [view.myself.id for view in views]
    for node, view in zip(nodes, views, strict=True):
        strangers = [str(p.place) for name, p in view.peers.items() if name not in ids]
        if strangers:
            raise ServerError(f"{node.place} belongs to another cluster already, with {', '.join(strangers)}")
        if not view.myself.slots and not view.myself.primary and int(node.ask("DBSIZE")):
            raise ServerError(f"{node.place} holds keys; a cluster is made of empty servers")
    shards = len(primaries)
    for number, (node, view) in enumerate(zip(primaries, views, strict=False)):
        if view.myself.slots:
            continue
        first, last = number * SLOTS // shards, (number + 1) * SLOTS // shards - 1
        say(f"{node.place} takes the slots {first}-{last}")
        node.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
        if len(view.peers) == 1:  # different epochs from the start: no tie to resolve
            try:
                node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            except Refused as error:
                if "already" not in error.reply and "different than 0" not in error.reply:
                    raise
    for node in nodes[1:]:
        bus = views[nodes.index(node)].myself.bus
        primaries[0].ask("CLUSTER", "MEET", node.place.host, node.place.port, bus)

    def acquainted() -> str:
        for node in nodes:
            known = View(node).peers
            if missing := [str(n.place) for n, i in zip(nodes, ids, strict=True) if i not in known]:
                return f"{node.place} has not met {', '.join(missing)} yet"
        return ""

    await_true(acquainted, timeout, say)
    for primary, of_one in zip(primaries, replicas, strict=True):
        name = View(primary).myself.id
        for node in of_one:
            if View(node).myself.primary != name:
                say(f"{node.place} becomes a replica of {primary.place}")
                node.ask("CLUSTER", "REPLICATE", name)
    await_true(lambda: not_ready(nodes), timeout, say)


def not_ready(nodes: list[Node]) -> str:
    """Returns why a cluster of these servers does not work yet, or ""."""
    for node in nodes:
        lines = str(node.ask("CLUSTER", "INFO")).split()
        if "cluster_state:ok" not in lines:
            assigned = next((line.partition(":")[2] for line in lines if "slots_assigned" in line), "?")
            return f"{node.place} does not see a whole cluster yet ({assigned} of {SLOTS} slots assigned)"
        info = node.info("replication")
        if info.get("role") == "slave" and info.get("master_link_status") != "up":
            copied = "copies" if info.get("master_sync_in_progress") == "1" else "will copy"
            return f"{node.place} {copied} the rows of its primary"
    return ""
