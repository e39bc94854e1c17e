"""`het ps promote`: makes a replica its shard's primary, as planned or because the primary is gone.

A cluster promotes a replica by itself only if a majority of all primaries agrees that its primary is down.
With one or two shards the remaining primaries are not a majority, so an operator must decide.
"""

from collections.abc import Callable

from het_tf.ext.ps.python import cluster
from het_tf.ext.ps.python.address import Address, Place
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.node import Node

Say = Callable[[str], None]

AUTOMATIC_SHARDS = 3  # with fewer, no replica is promoted without an operator


def promote(address: Address, place: Place, timeout: float, say: Say) -> None:
    """Makes the replica at `place` the primary of its shard.

    If the old primary is alive, the hand-over loses nothing: it pauses, the replica catches up, they swap.
    Otherwise the replica takes over with the rows that it has.

    Raises:
      ServerError: It is not a replica, has never copied its primary's rows, or is not primary in time.
    """
    with Node(place, address) as node:
        if not cluster.is_cluster(node):
            raise ServerError(
                f"{place} is not in a cluster; promote a single replica by `redis-cli REPLICAOF NO ONE`"
            )
        view = cluster.View(node)
        if not view.myself.primary:
            raise ServerError(f"{place} is a primary already")
        primary = view.peers.get(view.myself.primary)
        if primary is None:
            raise ServerError(f"{place} does not know its primary; wait until the cluster has told it")
        info = node.info("replication")
        if info.get("master_link_status") == "up":
            say(f"{place}: {primary.place} hands over")
            node.ask("CLUSTER", "FAILOVER")
        else:
            if info.get("slave_repl_offset", "0") == "0" and not int(node.ask("DBSIZE")):
                raise ServerError(
                    f"{place} has no rows of {primary.place} yet; it would begin with empty tables"
                )
            say(f"{place}: takes over from {primary.place}, which does not answer")
            node.ask("CLUSTER", "FAILOVER", "TAKEOVER")

        def waiting() -> str:
            return "" if node.info("replication").get("role") == "master" else f"{place} is not primary yet"

        cluster.await_true(waiting, timeout, say)
