"""`het ps reshard`: finishes interrupted resharding, and moves slots (balance.py chooses them).

A slot moves in four steps: the target imports it, the source migrates it, its keys go over one by one
(MIGRATE), and all servers are told the new owner. Training goes on meanwhile: clients follow redirections.
A crash between the steps leaves the slot *open*. Nothing is lost then, but every request for the slot is
redirected, and it cannot move again.

The repair depends on where its keys are:

    the target has some of them, or both sides know of the move   -> the move is finished
    only one side knows of it, and the target has none of them    -> the move is taken back

No key is ever overwritten: if both sides have one (the source lost its last second in a crash), the repair
stops with an error.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping

from het_tf.ext.ps.python import cluster
from het_tf.ext.ps.python.address import Address, Place
from het_tf.ext.ps.python.balance import Move
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.node import Node, Refused, Unreachable
from het_tf.python.show import Say

KEYS_AT_ONCE = 100  # of a slot; a slot has one partition of each namespace
MIGRATE_SECONDS = 120


class Shards:
    """Connections to all primaries of a cluster by id, and each one's view of itself.

    Raises:
      ServerError: The server is not in a cluster, or a primary does not answer.
    """

    def __init__(self, address: Address, stack: contextlib.ExitStack) -> None:
        first = _first(address, stack)
        self.nodes: dict[str, Node] = {}
        self._login = (address.user, address.secret())
        for peer in cluster.View(first).primaries:
            down = peer.failed or "noaddr" in peer.flags
            node = stack.enter_context(Node(peer.place, address, MIGRATE_SECONDS + 10))
            if not peer.slots and (down or not _answers(node)):
                continue  # it owns no slots, and can receive none
            if down:
                raise ServerError(f"{peer.place} is down; bring it back before slots are moved")
            self.nodes[peer.id] = node
        self.read()

    def read(self) -> None:
        """Asks all servers again which slots they own."""
        self.views = {name: cluster.View(node) for name, node in self.nodes.items()}

    @property
    def owners(self) -> dict[int, str]:
        """Slot -> id of the primary that claims it."""
        return {slot: name for name, slots in self.owned.items() for slot in slots}

    def keys(self, name: str, slot: int) -> int:
        """Number of a slot's keys on a server, its owner or not."""
        return int(self.nodes[name].ask("CLUSTER", "COUNTKEYSINSLOT", slot))

    @property
    def owned(self) -> dict[str, set[int]]:
        """Id of each primary -> the slots that it claims."""
        return {name: view.myself.slots for name, view in self.views.items()}

    def weights(self) -> Mapping[int, int]:
        """Slot -> number of its partitions of het. Without any partition, every slot weighs the same."""
        slots = (cluster.slot_of(key) for node in self.nodes.values() for key in node.scan("het:*}"))
        return Counter(slots) or dict.fromkeys(self.owners, 1)

    def migrate(self, move: Move) -> int:
        """Sends all keys of a slot to the target; returns their number."""
        source, place = self.nodes[move.source], self.nodes[move.target].place
        user, password = self._login
        login = ["AUTH2", user or "default", password] if password else []
        count = 0
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", move.slot, KEYS_AT_ONCE):
            for key in keys:
                self._migrate_key(source, place, key, login)
                count += 1
        return count

    def _migrate_key(self, source: Node, place: Place, key: str, login: list[str]) -> None:
        try:
            source.ask("MIGRATE", place.host, place.port, "", 0, MIGRATE_SECONDS * 1000, *login, "KEYS", key)
        except Refused as error:
            if "BUSYKEY" in error.reply:
                raise ServerError(
                    f"{key} is both at {source.place} and at {place}; neither was changed. One of them came"
                    f" back in a crash. HET.STAT {key} shows rows and bytes of each (the importing one wants"
                    " ASKING before it). DEL the one that is older, and run het ps reshard again"
                ) from None
            if "IOERR" in error.reply:
                raise ServerError(
                    f"{source.place}: {key} did not arrive at {place}: {error.reply}. Its size may be over"
                    " proto-max-bulk-len there (CONFIG SET proto-max-bulk-len 4gb, and"
                    " client-query-buffer-limit 4gb, on both), or it took longer than"
                    f" {MIGRATE_SECONDS} s. The slot is left open; run het ps reshard again"
                ) from None
            raise

    def run(self, move: Move) -> int:
        """Moves one slot, resuming an earlier attempt. Returns the number of keys sent."""
        self.nodes[move.target].ask("CLUSTER", "SETSLOT", move.slot, "IMPORTING", move.source)
        self.nodes[move.source].ask("CLUSTER", "SETSLOT", move.slot, "MIGRATING", move.target)
        count = self.migrate(move)
        # Tell the target first: if this process died after telling the source, the slot would have no owner.
        rest = [name for name in self.nodes if name != move.target]
        for name in (move.target, *rest):
            self.tell(name, move)
        return count

    def tell(self, name: str, move: Move) -> None:
        """Tells one server who owns a slot now."""
        try:
            self.nodes[name].ask("CLUSTER", "SETSLOT", move.slot, "NODE", move.target)
        except Refused as error:
            # A server that gave its last slot away becomes a replica, and knows the new owner already.
            if name == move.target or "only with masters" not in error.reply:
                raise


def _answers(node: Node) -> bool:
    try:
        return str(node.ask("PING")) == "PONG"
    except Unreachable:
        return False


def _first(address: Address, stack: contextlib.ExitStack) -> Node:
    said = []
    for place in address.places:
        node = Node(place, address)
        stack.callback(node.close)
        try:
            if cluster.is_cluster(node):
                return node
            raise ServerError(f"{place} is a single server: there is nothing to move")
        except Refused:
            raise
        except ServerError as error:
            said.append(str(error))
    raise ServerError("; ".join(said))


def open_slots(shards: Shards) -> Iterator[tuple[Move, bool]]:
    """Yields each interrupted move, and whether it must be finished (else undone)."""
    owners = shards.owners
    seen = set()
    for name, view in shards.views.items():
        sides = [(slot, name, other) for slot, other in view.myself.migrating.items()]
        sides += [(slot, owners.get(slot, other), name) for slot, other in view.myself.importing.items()]
        for slot, source, target in sides:
            if slot in seen or source not in shards.nodes or target not in shards.nodes:
                continue
            seen.add(slot)
            both = (
                shards.views[source].myself.migrating.get(slot) == target
                and shards.views[target].myself.importing.get(slot) == source
            )
            move = Move(slot, source, target)
            if owners.get(slot) == target:
                yield move, True  # told to the target already
            else:
                yield move, both or shards.keys(target, slot) > 0


def repair(shards: Shards, say: Say) -> int:
    """Closes all open slots. Returns their number.

    Raises:
      ServerError: A slot cannot be closed; the message says why.
    """
    count = 0
    for move, finish in list(open_slots(shards)):
        count += 1
        source, target = shards.nodes[move.source].place, shards.nodes[move.target].place
        if not finish:
            for name in (move.source, move.target):
                shards.nodes[name].ask("CLUSTER", "SETSLOT", move.slot, "STABLE")
            say(f"slot {move.slot}: the move from {source} to {target} had not begun; it is taken back")
        elif shards.owners.get(move.slot) == move.target:
            _close(shards, move)
            say(f"slot {move.slot}: {target} has it already; {source} knows now")
        else:
            keys = shards.run(move)
            say(f"slot {move.slot}: the move from {source} to {target} is finished ({keys} keys went over)")
    shards.read()
    for name, view in shards.views.items():
        for slot in {**view.myself.migrating, **view.myself.importing}:
            shards.nodes[name].ask("CLUSTER", "SETSLOT", slot, "STABLE")
            say(f"slot {slot}: {shards.nodes[name].place} forgets a move: its other side is no primary now")
            count += 1
    shards.read()
    return count


def _close(shards: Shards, move: Move) -> None:
    # Send the keys that are still at the source first: they would be out of reach.
    if shards.keys(move.source, move.slot):
        shards.migrate(move)
    for name in shards.nodes:
        shards.tell(name, move)


def add(shards: Shards, place: Place, address: Address, stack: contextlib.ExitStack, say: Say) -> None:
    """Makes an empty server a shard of the cluster; `plan` then gives it its share.

    Raises:
      ServerError: It is not empty, not a cluster node, or in another cluster.
    """
    node = stack.enter_context(Node(place, address, MIGRATE_SECONDS + 10))
    if not cluster.is_cluster(node):
        raise ServerError(
            f"{place} does not run with cluster-enabled yes; examples/deploy/redis.conf has the lines"
        )
    new = cluster.View(node).myself
    mine = new.id
    if mine not in shards.nodes:
        if len(cluster.View(node).peers) > 1 or int(node.ask("DBSIZE")):
            raise ServerError(f"{place} is not empty, or in another cluster; a new shard is an empty server")
        next(iter(shards.nodes.values())).ask("CLUSTER", "MEET", place.host, place.port, new.bus)
        everyone = [*shards.nodes.values(), node]
        say(f"{place} joins the cluster")

        def waiting() -> str:
            for one in everyone:
                if not {*shards.nodes, mine} <= set(cluster.View(one).peers):
                    return f"{one.place} does not know all servers yet"
            return cluster.not_ready(everyone)  # until then it would refuse what is sent to it

        cluster.await_true(waiting, 60, say)
        shards.nodes[mine] = node
    shards.read()


def member(shards: Shards, place: Place) -> cluster.Peer:
    """The server of the cluster at `place`, up or down. ServerError: no server is there."""
    peers = next(iter(shards.views.values())).peers.values()
    for peer in peers:
        if peer.place == place:
            return peer
    known = ", ".join(sorted(str(peer.place) for peer in peers))
    raise ServerError(f"{place} is not a server of this cluster; its servers are {known}")


def forget(
    shards: Shards, leaving: cluster.Peer, address: Address, stack: contextlib.ExitStack, say: Say
) -> None:
    """Removes a server without slots from the cluster: empties it, and makes the others forget it.

    Stopping a server is not enough: the others would list it as failed. Its replicas go on as replicas of
    another shard.

    Raises:
      ServerError: Another server does not answer; it would reintroduce the removed one.
    """
    peers = next(iter(shards.views.values())).peers.values()
    others = [
        stack.enter_context(Node(p.place, address)) for p in peers if p.id != leaving.id and p.place.port
    ]
    heir = next(name for name in shards.nodes if name != leaving.id)
    for node in others:
        if cluster.View(node).myself.primary == leaving.id:
            node.ask("CLUSTER", "REPLICATE", heir)
            say(f"{node.place} becomes a replica of {shards.nodes[heir].place}")
    with contextlib.suppress(Unreachable):  # it is down, and cannot announce itself
        stack.enter_context(Node(leaving.place, address)).ask("CLUSTER", "RESET", "HARD")

    def waiting() -> str:
        # Each bans it for a minute: by then no server announces it.
        for node in others:
            if leaving.id in cluster.View(node).peers:
                with contextlib.suppress(Refused):  # its own primary, until it knows the new one
                    node.ask("CLUSTER", "FORGET", leaving.id)
        knows = [str(node.place) for node in others if leaving.id in cluster.View(node).peers]
        return f"{', '.join(knows)} still knows {leaving.place}" if knows else ""

    cluster.await_true(waiting, 30, say)
