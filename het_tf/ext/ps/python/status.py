"""`het ps status`: figures of every server of a store and of its jobs, and faults with their remedies.

`take` asks all servers once. Rates need two such pictures: `INFO het` counts from the start of a server.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from het_tf.ext.ps.python import cluster
from het_tf.ext.ps.python.address import Address, Place
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.jobs import Job, add_reports, of_tables
from het_tf.ext.ps.python.layout import Layout
from het_tf.ext.ps.python.node import Node, Refused, Unreachable, primary
from het_tf.ext.ps.python.redis_server import last_words
from het_tf.python.show import size

LARGE_PARTITION = 256 << 20  # bytes; beyond it, moving one takes long
_ANSWER_SECONDS = 2.0
REPLICATION = "mem_total_replication_buffers"  # in INFO: the backlog, and data not yet sent to replicas


@dataclass
class Server:
    """The state of one server at one moment.

    Attributes:
      place: Where it listens.
      name: Such as shard-0, if a directory's layout is known.
      shard: Number of its shard, ordered by slots; None without one.
      role: primary, replica or "?".
      state: up, loading, failing or down.
      why: The reason of a state other than up.
      info: Its INFO; empty if it did not answer.
      view: Its view of the cluster.
      lag: Bytes that a replica is behind its primary.
      pushes, pulls: Pushes applied and rows sent per second; None without an earlier picture.
    """

    place: Place
    name: str = ""
    shard: int | None = None
    role: str = "?"
    state: str = "down"
    why: str = ""
    info: dict[str, str] = field(default_factory=dict)
    view: cluster.View | None = None
    lag: int | None = None
    pushes: float | None = None
    pulls: float | None = None

    def number(self, name: str) -> int:
        """Returns a number of INFO; 0 if it is missing."""
        text = self.info.get(name, "0")
        return int(text) if text.lstrip("-").isdigit() else 0

    @property
    def het(self) -> dict[str, int]:
        """The module's numbers in INFO."""
        found = self.info.items()
        return {name: int(text) for name, text in found if name.startswith("het_") and text.isdigit()}

    @property
    def persistence(self) -> str:
        """Describes its persistence in a few words."""
        if not self.info:
            return ""
        if self.number("aof_enabled"):
            text = "aof"
            if self.number("aof_rewrite_in_progress"):
                text += ", rewriting"
            if self.info.get("aof_last_write_status", "ok") != "ok":
                text += ", WRITE ERROR"
        else:
            age = int(time.time()) - self.number("rdb_last_save_time")
            changes = self.number("rdb_changes_since_last_save")
            text = f"rdb {age} s ago, {changes} changes" if self.number("rdb_saves") else "none"
        if self.number("rdb_bgsave_in_progress"):
            text += ", saving"
        if self.info.get("rdb_last_bgsave_status", "ok") != "ok":
            text += ", SAVE FAILED"
        return text

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "place": str(self.place), "name": self.name, "shard": self.shard, "role": self.role,
            "state": self.state, "why": self.why, "partitions": self.number("het_partitions"),
            "tables": self.number("het_tables"), "rows": self.number("het_rows"),
            "bytes": self.number("het_bytes"),
            "used_memory": self.number("used_memory"), "maxmemory": self.number("maxmemory"),
            "replication_bytes": self.number(REPLICATION),
            "pushes_per_second": self.pushes, "rows_pulled_per_second": self.pulls,
            "connections": self.number("connected_clients"), "lag_bytes": self.lag,
            "persistence": self.persistence,
            "het": {name.removeprefix("het_"): value for name, value in self.het.items()},
        }  # fmt: skip


@dataclass
class Picture:
    """All servers at one moment.

    Attributes:
      servers: Ordered by shard, primaries first.
      faults: Each with its remedy; empty if all is well.
      notes: Observations that are not faults.
      when: Seconds of a monotonic clock.
      jobs: Namespace -> what the store says of its job.
      unread: Why there are no jobs; "": they were read.
    """

    servers: list[Server]
    faults: list[str]
    notes: list[str]
    when: float
    jobs: dict[str, Job] = field(default_factory=dict)
    unread: str = ""

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "servers": [server.to_json() for server in self.servers],
            "faults": self.faults,
            "notes": self.notes,
            "jobs": {name: vars(job) for name, job in self.jobs.items()},
        }

    def since(self, before: "Picture") -> None:
        """Fills the rates in, from an earlier picture."""
        old = {server.place: server for server in before.servers}
        for server in self.servers:
            was = old.get(server.place)
            # A restarted server counts from 0 again.
            if was is None or not was.info or was.info.get("run_id") != server.info.get("run_id"):
                continue
            seconds = max(self.when - before.when, 1e-3)
            server.pushes = (server.number("het_pushes_applied") - was.number("het_pushes_applied")) / seconds
            server.pulls = (server.number("het_rows_pulled") - was.number("het_rows_pulled")) / seconds


def look(node: Node, name: str = "") -> Server:
    """Asks one server."""
    server = Server(node.place, name)
    try:
        server.info = node.info("default", "het")
        server.role = "replica" if server.info.get("role") == "slave" else "primary"
        if server.number("loading"):
            server.state, server.why = "loading", f"{server.info.get('loading_loaded_perc', '?')} % loaded"
            return server
        if server.info.get("cluster_enabled") == "1":
            server.view = cluster.View(node)
        server.state = "up"
    except Unreachable as error:
        server.why = str(error)
    except Refused as error:
        # The right to CLUSTER NODES may be missing; keep the values of INFO.
        server.state = "up" if server.info else "down"
        server.why = str(error).removeprefix(f"{node.place}: ")
    return server


def take(address: Address, layout: Layout | None = None) -> Picture:
    """Asks every server of a store.

    Args:
      address: Servers of the store, of which one must answer.
      layout: Layout of a directory; its servers are shown even if they are down.

    Raises:
      ServerError: No server answers, and no layout is given.
    """
    address = primary(address, _ANSWER_SECONDS)
    with contextlib.ExitStack() as stack:
        nodes: dict[Place, Node] = {}

        def node(place: Place) -> Node:
            nodes[place] = stack.enter_context(Node(place, address, _ANSWER_SECONDS))
            return nodes[place]

        found = _look_at_all(address, layout, node)
        picture = Picture(found, list(_faults(found)), list(_notes(found)), time.monotonic())
        primaries = [server for server in found if server.role == "primary" and server.state == "up"]
        picture.jobs = of_tables(server.info for server in primaries)
        try:
            add_reports(picture.jobs, [nodes[server.place] for server in primaries])
        except (Refused, Unreachable) as error:
            picture.unread = str(error)
            picture.notes.append(f"ranks and followers are not shown: {error}")
    return picture


def _look_at_all(address: Address, layout: Layout | None, node: Callable[[Place], Node]) -> list[Server]:
    members = {member.place: member for member in layout.members} if layout else {}
    servers: dict[Place, Server] = {}

    def ask(place: Place) -> None:
        if place not in servers:
            member = members.get(place)
            servers[place] = look(node(place), member.name if member else "")
            if member and not member.pid() and (words := last_words(member.log)):
                servers[place].why += f"; its log ends: {words}"

    for place in address.places:
        ask(place)
        if not layout and servers[place].info:
            break
    if not layout and not any(server.info for server in servers.values()):
        told = (s.why if str(s.place) in s.why else f"{s.place}: {s.why}" for s in servers.values())
        raise ServerError("no server answers: " + "; ".join(told))
    for known in list(servers.values()):
        for place in _others(known):
            ask(place)
    found = list(servers.values())
    number_shards(found)
    _measure_lag(found)
    return sorted(found, key=lambda s: (s.shard is None, s.shard, s.role != "primary", s.name, str(s.place)))


def _others(server: Server) -> Iterator[Place]:
    if server.view:
        yield from (p.place for p in server.view.peers.values() if p.place.port and "noaddr" not in p.flags)
        return
    for name, value in server.info.items():  # slave0:ip=127.0.0.1,port=7001,state=online,...
        if name.startswith("slave") and value.startswith("ip="):
            pairs = dict(pair.split("=", 1) for pair in value.split(","))
            yield Place(pairs["ip"], int(pairs["port"]))
    if server.role == "replica" and server.info.get("master_port"):
        yield Place(server.info["master_host"], int(server.info["master_port"]))


def number_shards(servers: list[Server]) -> None:
    """Fills in `shard`, and the cluster's view of servers that did not answer."""
    # Just after a failover some servers do not know of it yet.
    view = max((server.view for server in servers if server.view), key=lambda v: v.epoch, default=None)
    if view is None:
        for server in servers:
            server.shard = 0
        return
    numbers = {peer.id: number for number, peer in enumerate(p for p in view.primaries if p.slots)}
    at = {peer.place: peer for peer in view.peers.values()}
    for server in servers:
        peer = server.view.myself if server.view else at.get(server.place)
        if peer is None:
            continue
        server.shard = numbers.get(peer.primary or peer.id)
        if server.role == "?":
            server.role = "replica" if peer.primary else "primary"
        seen = view.peers.get(peer.id)
        if server.state == "up" and seen is not None and seen.failed:
            server.state, server.why = "failing", "other servers of the cluster do not reach it"


def _measure_lag(servers: list[Server]) -> None:
    newest: dict[int | None, int] = {}
    for server in servers:
        if server.role == "primary" and server.info:
            newest[server.shard] = server.number("master_repl_offset")
    for server in servers:
        if server.role == "replica" and server.info and server.shard in newest:
            server.lag = max(0, newest[server.shard] - server.number("slave_repl_offset"))


def _faults(servers: list[Server]) -> Iterator[str]:
    shards = len({server.shard for server in servers} - {None})
    for server in servers:
        here = f"{server.name} ({server.place})" if server.name else str(server.place)
        if server.state == "down":
            full = "AOF write error" in server.why
            remedy = (
                "Free its disk and start it (`het ps up`)"
                if full
                else "Start it (`het ps up`), or read its log"
            )
            if not server.name and (server.shard is None or server.role == "replica"):  # has no unique rows
                remedy += f". If it is gone for good: `het ps reshard --remove {server.place}`"
            yield f"{here} does not answer: {server.why}. {remedy}"
            heirs = [s for s in servers if s.shard == server.shard and s.role == "replica" and s.info]
            if server.role == "primary" and heirs and shards < cluster.AUTOMATIC_SHARDS:
                yield (
                    f"{here} is not replaced automatically with {shards} shards."
                    f" `CLUSTER FAILOVER TAKEOVER` at its replica {heirs[0].place} does it"
                )
            continue
        if server.state != "up":
            yield f"{here}: {server.why}. Wait"
        if "het_partitions" not in server.info:
            yield f"{here} has not loaded the module het. Restart it with --loadmodule PATH/het.so"
        if server.role == "replica" and server.info.get("master_link_status", "up") != "up":
            yield f"{here} has no link to its primary. It copies all rows when the link is back"
        if server.info.get("aof_last_write_status", "ok") != "ok":
            yield f"{here} cannot write its append-only file: no push is accepted. Free its disk"
        if server.info.get("rdb_last_bgsave_status", "ok") != "ok":
            yield f"{here}: its last snapshot failed. Read its log; often disk or memory is short"
        limit, used = server.number("maxmemory"), server.number("used_memory")
        if limit and used > 0.9 * limit:
            yield f"{here} uses {100 * used // limit} % of maxmemory; at 100 % pushes are refused. Add shards"
        if server.view:
            mine = server.view.myself
            for slot, other in {**mine.migrating, **mine.importing}.items():
                peer = server.view.peers.get(other)
                way = "to" if slot in mine.migrating else "from"
                yield (
                    f"{here}: slot {slot} is open, on its way {way} {peer.place if peer else other}."
                    " If no resharding runs, `het ps reshard` repairs it"
                )
    for server in servers:
        if server.view:
            if missing := server.view.uncovered:
                yield f"slots {cluster.spans(missing)} have no server. `redis-cli --cluster fix` assigns them"
            break


def _notes(servers: list[Server]) -> Iterator[str]:
    for server in servers:
        partitions = server.number("het_partitions")
        if partitions and server.number("het_bytes") // partitions > LARGE_PARTITION:
            each = size(server.number("het_bytes") / partitions)
            yield f"{server.place}: partitions of {each} on average; moving one stalls its shard"


def rates(address: Address, layout: Layout | None, seconds: float) -> Picture:
    """Takes a picture with rates measured over `seconds`."""
    before = take(address, layout)
    time.sleep(seconds)
    now = take(address, layout)
    now.since(before)
    return now
