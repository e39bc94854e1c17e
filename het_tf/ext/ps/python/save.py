"""`het ps save`: every shard writes its rows to disk, one shard after the other.

Not in parallel, because the child that writes can double a server's memory.
"""

import time
from collections.abc import Callable

from het_tf.ext.ps.python.address import Address
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.node import Node, Refused
from het_tf.ext.ps.python.status import Server, take

Say = Callable[[str], None]


def save(address: Address, rdb: bool, timeout: float, say: Say) -> None:
    """Saves every primary: rewrites its append-only file, or makes a snapshot if it has none.

    Args:
      address: The store.
      rdb: Make a snapshot (dump.rdb) in any case.
      timeout: Seconds without progress after which a shard is given up.
      say: Called with progress.

    Raises:
      ServerError: A shard is down or could not be saved; all others are saved.
    """
    faults = []
    for server in take(address).servers:
        if server.role == "replica":
            continue
        try:
            if not server.info:
                raise ServerError(f"{server.place} does not answer: {server.why}")
            with Node(server.place, address) as node:
                _save(node, server, rdb, timeout, say)
        except ServerError as error:
            faults.append(str(error))
    if faults:
        raise ServerError("\n".join(faults))


def _save(node: Node, server: Server, rdb: bool, timeout: float, say: Say) -> None:
    aof = bool(server.number("aof_enabled")) and not rdb
    what = "append-only file" if aof else "snapshot"
    running, result = (
        ("aof_rewrite_in_progress", "aof_last_bgrewrite_status")
        if aof
        else ("rdb_bgsave_in_progress", "rdb_last_bgsave_status")
    )
    scheduled = "aof_rewrite_scheduled"
    begin = time.monotonic()
    # Wait for a running child first: its snapshot began before this call and does not count.
    _finish(node, ("aof_rewrite_in_progress", "rdb_bgsave_in_progress", scheduled), timeout, say)
    for _ in range(3):
        try:
            node.ask(*(["BGREWRITEAOF"] if aof else ["BGSAVE"]))
            break
        except Refused as error:
            if "in progress" not in error.reply:
                raise
            _finish(node, ("aof_rewrite_in_progress", "rdb_bgsave_in_progress", scheduled), timeout, say)
    say(f"{node.place}: writes its {what}")
    _finish(node, (running, scheduled) if aof else (running,), timeout, say)
    if (status := node.info("persistence").get(result)) != "ok":
        raise ServerError(
            f"{node.place}: the {what} failed ({status}); its log says why, often the disk is full"
        )
    say(f"{node.place}: {what} written in {time.monotonic() - begin:.1f} s")


def _finish(node: Node, flags: tuple[str, ...], timeout: float, say: Say) -> None:
    """Waits until all `flags` of INFO persistence are clear, for `timeout` seconds without progress."""
    seen, end, said = -1, time.monotonic() + timeout, time.monotonic()
    while True:
        info = node.info("persistence")
        if all(info.get(flag, "0") == "0" for flag in flags):
            return
        done = int(info.get("current_save_keys_processed", "0"))
        if done != seen:
            seen, end = done, time.monotonic() + timeout
        if time.monotonic() > end:
            raise ServerError(f"{node.place}: no progress of a save for {timeout:g} s; its log says why")
        if time.monotonic() > said + 1:
            said = time.monotonic()
            say(f"{node.place}: saving, {done} of {info.get('current_save_keys_total', '?')} keys")
        time.sleep(0.05)
