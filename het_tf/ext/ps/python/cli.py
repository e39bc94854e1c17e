"""The commands `het ps`."""

import argparse
import contextlib
import ipaddress
import os
import time

from het_tf.ext.ps.python import balance, reshard, servers, show, status
from het_tf.ext.ps.python import layout as layouts
from het_tf.ext.ps.python.address import FORM, Address, Place, parse
from het_tf.ext.ps.python.errors import ServerError
from het_tf.python.cli import JSON, Group, Options, answer, arg, either, within
from het_tf.python.files import local
from het_tf.python.show import say

HET = Group("""\
Valkey or Redis servers that hold tables of het_tf.

  het ps up --shards 2 --dir DIR     start two servers, make them a cluster,
                                     print the address for HET_PS
  het ps status --dir DIR            what they do
  het ps down --dir DIR              stop them

status and reshard also work on servers that someone else runs:
--ps ADDRESS, or HET_PS. `het ps COMMAND --help` explains each.""")

_positive = within(float, 1e-3, 1e6, "a number of seconds > 0")
_count = within(int, 1, 1000, "a number from 1 to 1000")
_count_0 = within(int, 0, 100, "a number from 0 to 100")
_port = within(int, 1, 65535, "a port from 1 to 65535")
STORE = either(
    arg("--dir", type=local, help="the servers of `het ps up --dir`"),
    arg("--ps", metavar="ADDRESS", help=f"{FORM}; default: $HET_PS"),
)
_TIMEOUT = arg(
    "--timeout", type=_positive, default=60, metavar="SECONDS", help="how long to wait (%(default)g)"
)


def _ip(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not an IP address of this machine") from None
    if address.is_unspecified:
        raise argparse.ArgumentTypeError(
            f"'{text}' is every address; name the one that workers reach (127.0.0.1 works in any case)"
        )
    return text


def where(options: Options) -> tuple[Address, layouts.Layout | None]:
    """Returns the store that --dir, --ps or HET_PS names: the arguments STORE."""
    if options.dir:
        layout = layouts.need(options.dir.absolute())
        return layout.address(), layout
    if options.ps or os.environ.get("HET_PS"):
        return parse(options.ps or os.environ["HET_PS"]), None
    raise ServerError("which servers? give --dir DIR, --ps ADDRESS, or set HET_PS")


@HET.command(
    "up",
    "start servers that outlive this command, and wait until they are ready",
    arg("--dir", type=local, required=True, help="for the servers' files; made if it is missing"),
    arg("--shards", type=_count, metavar="N", help="servers that share the rows (1)"),
    arg("--replicas", type=_count_0, metavar="R", help="copies of each shard, for failover (0)"),
    arg("--port", type=_port, metavar="P", help="port of the first server; others follow (7000)"),
    arg("--unix", action="store_true", default=None, help="a Unix socket in DIR and no port; one server"),
    arg("--bind", type=_ip, metavar="IP", help="this machine's address that workers reach (127.0.0.1);"
        " outside 127.* the servers get a random password"),
    arg("--tls", action="store_true", default=None, help="encrypt everything: workers, replicas and the"
        " cluster's bus use TLS, with a CA that the program openssl makes in DIR/tls"),
    arg("--maxmemory", metavar="X", help="limit a server, such as to 12gb; pushes beyond it wait (0: none)"),
    arg("--appendfsync", choices=layouts.APPENDFSYNC,
        help="what a killed server loses: always nothing, everysec (default) a second or two, no some 30 s"),
    arg("--node-timeout", type=_positive, metavar="SECONDS",
        help="silence after which a replica replaces a server of a cluster (15)"),
    _TIMEOUT,
    JSON,
    more="A second call on the same directory starts only the servers that are down. Two or more servers"
    " become a Redis Cluster. Every push is written to an append-only file.",
)  # fmt: skip
def up(options: Options) -> int:
    """Het ps up."""
    asked = {
        name: getattr(options, name)
        for name in ("shards", "replicas", "port", "unix", "bind", "tls", "appendfsync", "node_timeout")
    }
    asked["maxmemory"] = layouts.check_memory(options.maxmemory) if options.maxmemory else None
    layout = servers.prepare(options.dir.absolute(), **asked)
    servers.up(layout, options.timeout, say)
    found = {"address": layout.address().public().url(), "directory": str(layout.directory)}
    answer(options, found, servers.summary(layout))
    return 0


@HET.command(
    "down",
    "stop the servers of a directory, replicas first, and wait until they are gone",
    arg("--dir", type=local, required=True, help="as given to `up`"),
    arg("--no-save", action="store_true", help="do not wait for disks and replicas"),
    arg("--force", action="store_true", help="kill servers that do not answer or stop in time"),
    _TIMEOUT,
)
def down(options: Options) -> int:
    """Het ps down."""
    layout = layouts.need(options.dir.absolute())
    servers.down(layout, not options.no_save, options.force, options.timeout, say)
    return 0


@HET.command(
    "status",
    "show every server: state, rows, memory, rates, replicas, disks; exit 1 on a fault",
    STORE,
    arg("--interval", type=_positive, default=1.0, metavar="SECONDS",
        help="measure rates over this long (1)"),
    JSON,
)  # fmt: skip
def show_status(options: Options) -> int:
    """Het ps status."""
    address, layout = where(options)
    picture = status.rates(address, layout, options.interval)
    answer(options, picture.to_json(), show.render(picture))
    return bool(picture.faults)


def _place(text: str) -> Place:
    return parse(f"redis://{text}").places[0]


@HET.command(
    "reshard",
    "repair slots that an interrupted resharding left open, then spread partitions evenly over shards",
    STORE,
    arg("--check", action="store_true", help="change nothing; exit 1 if there is work to do"),
    arg("--repair", action="store_true", help="repair open slots only"),
    either(
        arg("--add", metavar="HOST:PORT", help="first take this empty server in as a new shard"),
        arg("--remove", metavar="HOST:PORT",
            help="take this server out of the cluster; its rows go to the others"),
    ),
    JSON,
    more="Training goes on meanwhile; a shard stalls while one of its partitions leaves.",
)  # fmt: skip
def move_slots(options: Options) -> int:
    """Het ps reshard."""
    address, layout = where(options)
    if options.remove and layout is not None and _place(options.remove) in {m.place for m in layout.members}:
        raise ServerError(
            f"{options.remove} belongs to {options.dir}, and `het ps up` would start it again; the servers"
            " of a directory cannot be removed"
        )
    with contextlib.ExitStack() as stack:
        shards = reshard.Shards(address, stack)
        if options.check:
            todo = [
                f"slot {move.slot} is open, on its way from {shards.nodes[move.source].place} to"
                f" {shards.nodes[move.target].place}; " + ("must be finished" if finish else "must be undone")
                for move, finish in reshard.open_slots(shards)
            ]
            if not todo and not options.repair:
                moves = balance.plan(shards.owned, shards.weights())
                todo = [f"{len(moves)} slots would move, so that partitions are even"] if moves else []
            nothing = "no slot is open" + ("" if options.repair else ", and partitions are even")
            answer(options, {"todo": todo}, "\n".join(todo) or nothing)
            return bool(todo)
        repaired = reshard.repair(shards, say)
        if options.repair:
            answer(options, {"closed": repaired}, f"{repaired} open slots were closed")
            return 0
        leaving = None
        if options.add:
            reshard.add(shards, _place(options.add), address, stack, say)
        if options.remove:
            leaving = reshard.member(shards, _place(options.remove))
        without = leaving.id if leaving is not None and leaving.slots else ""
        moves = balance.plan(shards.owned, shards.weights(), without)
        begin = said = time.monotonic()
        keys = 0
        for number, move in enumerate(moves, 1):
            moved = shards.run(move)
            keys += moved
            if moved or time.monotonic() > said + 1 or number == len(moves):
                said = time.monotonic()
                source, target = shards.nodes[move.source].place, shards.nodes[move.target].place
                say(f"{number} of {len(moves)}: slot {move.slot} from {source} to {target}, {moved} keys")
        seconds = time.monotonic() - begin
        text = f"{repaired} open slots closed; {len(moves)} slots moved, with {keys} keys, in {seconds:.1f} s"
        if leaving is not None:
            reshard.forget(shards, leaving, address, stack, say)
            text += f"\n{options.remove} has left the cluster, is empty, and can be stopped"
        found = {"closed": repaired, "moved": len(moves), "keys": keys, "seconds": seconds}
        answer(options, found, text)
    return 0
