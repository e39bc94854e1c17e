"""The command `het-ps`. Exit status: 0 done, 1 something is wrong (a line says what), 2 wrong arguments."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import json
import os
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live

from het_tf.python.ps import cluster, conf, promote, redis_server, reshard, save, servers, show, status
from het_tf.python.ps import layout as layouts
from het_tf.python.ps.address import Address, Place, parse
from het_tf.python.ps.errors import ServerError
from het_tf.python.ps.node import Node

DESCRIPTION = """\
Redis or Valkey servers that hold tables of het_tf: start, watch, save, reshard, stop.

  het-ps up --shards 2 --dir DIR     start two servers, make them a cluster, print the address for HET_PS
  het-ps status --dir DIR --watch    what they do
  het-ps down --dir DIR              stop them

status, save and reshard also work on servers that someone else runs: --ps ADDRESS, or HET_PS.
`het-ps COMMAND --help` explains each. Exit status: 0 done, 1 something is wrong, 2 wrong arguments."""

ADDRESS_HELP = (
    "redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...] or unix://[USER:PASSWORD@]/PATH; default: $HET_PS"
)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="het-ps", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, more: str = "") -> argparse.ArgumentParser:
        return commands.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}. {more}".rstrip()
        )

    def seconds(sub: argparse.ArgumentParser, default: float) -> None:
        sub.add_argument(
            "--timeout",
            type=_positive,
            default=default,
            metavar="SECONDS",
            help="how long to wait (%(default)g)",
        )

    up = command(
        "up",
        "start servers that outlive this command, and wait until they are ready",
        "Once more on the same directory: starts what is down, leaves alone what runs. More than one server"
        " becomes a Redis Cluster. Every push is written to an append-only file.",
    )
    up.add_argument("--dir", type=Path, required=True, help="for the servers' files; made if it is missing")
    up.add_argument("--shards", type=_count, metavar="N", help="servers that share the rows (1)")
    up.add_argument("--replicas", type=_count_0, metavar="R", help="copies of each shard, for failover (0)")
    up.add_argument("--port", type=_port, metavar="P", help="of the first server; the others follow (7000)")
    up.add_argument(
        "--unix", action="store_true", default=None, help="a Unix socket in DIR and no port; one server"
    )
    up.add_argument(
        "--bind", type=_ip, metavar="IP", help="this machine's address that workers reach (127.0.0.1);"
        " another than 127.* gets a random password"
    )  # fmt: skip
    up.add_argument(
        "--maxmemory", metavar="X", help="of each server, such as 12gb; pushes beyond it wait (0: no limit)"
    )
    up.add_argument(
        "--appendfsync", choices=layouts.APPENDFSYNC,
        help="what a killed server loses: always nothing, everysec (default) a second or two, no some 30 s",
    )  # fmt: skip
    up.add_argument(
        "--node-timeout", type=_positive, metavar="SECONDS",
        help="after which a silent server of a cluster is replaced by its replica (15)",
    )  # fmt: skip
    seconds(up, 60)

    down = command("down", "stop the servers of a directory, replicas first, and wait until they are gone")
    down.add_argument("--dir", type=Path, required=True, help="as given to `up`")
    down.add_argument("--no-save", action="store_true", help="do not wait for disks and replicas")
    down.add_argument("--force", action="store_true", help="kill what does not answer or stop in time")
    seconds(down, 60)

    stat = command(
        "status", "show every server: state, rows, memory, rates, replicas, disks; exit 1 on a fault"
    )
    _target(stat)
    stat.add_argument(
        "--watch",
        type=_positive,
        nargs="?",
        const=2.0,
        metavar="SECONDS",
        help="again every SECONDS (2), until Ctrl-C",
    )
    stat.add_argument("--json", action="store_true", help="for programs; with --watch one line each time")
    stat.add_argument(
        "--interval", type=_positive, default=1.0, metavar="SECONDS", help="measure rates over this long (1)"
    )

    saving = command("save", "have every shard write what it has to disk, one after the other, and wait")
    _target(saving)
    saving.add_argument(
        "--rdb", action="store_true", help="a snapshot (dump.rdb) even where there is an append-only file"
    )
    seconds(saving, 600)

    config = command(
        "conf", "print redis.conf and ACL lines, with reasons, for servers that someone else runs"
    )
    config.add_argument("--cluster", action="store_true", help="for the nodes of a Redis Cluster")
    config.add_argument("--maxmemory", default="0", metavar="X", help="such as 12gb (0: no limit)")
    config.add_argument("--appendfsync", choices=layouts.APPENDFSYNC, default="everysec")
    config.add_argument("--module", metavar="PATH", help="of het.so where the server runs")
    config.add_argument("--no-acl", action="store_true", help="without users")

    form = command(
        "form",
        "make one cluster of empty servers that run already, such as one on each machine",
        "They run with the lines of `het-ps conf --cluster`. The first N addresses become the shards, the"
        " rest their replicas in turn.",
    )
    form.add_argument("--ps", required=True, metavar="ADDRESS", help=ADDRESS_HELP.partition("; default")[0])
    form.add_argument("--replicas", type=_count_0, default=0, metavar="R", help="of each shard (0)")
    seconds(form, 60)

    first = command(
        "promote",
        "make a replica the primary of its shard",
        "With the primary alive, as before its restart, nothing is lost. A cluster of three or more shards"
        " replaces a primary that died by itself; one or two shards need this command.",
    )
    first.add_argument("replica", metavar="HOST:PORT", help="which")
    _target(first)
    seconds(first, 60)

    shard = command(
        "reshard",
        "repair slots that an interrupted resharding left open, then spread partitions evenly over shards",
        "Training goes on meanwhile; a shard stands still while one of its partitions leaves.",
    )
    _target(shard)
    shard.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if there is something to do"
    )
    shard.add_argument("--repair", action="store_true", help="repair open slots only")
    which = shard.add_mutually_exclusive_group()
    which.add_argument("--add", metavar="HOST:PORT", help="first take this empty server in as a new shard")
    which.add_argument("--remove", metavar="HOST:PORT", help="leave this shard without slots")
    return top


def _target(sub: argparse.ArgumentParser) -> None:
    one = sub.add_mutually_exclusive_group()
    one.add_argument("--dir", type=Path, help="the servers of `het-ps up --dir`")
    one.add_argument("--ps", metavar="ADDRESS", help=ADDRESS_HELP)


def _number(kind: type, low: float, high: float, what: str):
    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"'{text}' is not {what}")
        return value

    return read


_positive = _number(float, 1e-3, 1e6, "a number of seconds > 0")
_count = _number(int, 1, 1000, "a number from 1 to 1000")
_count_0 = _number(int, 0, 100, "a number from 0 to 100")
_port = _number(int, 1, 65535, "a port from 1 to 65535")


def _ip(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no IP address of this machine") from None
    if address.is_unspecified:
        raise argparse.ArgumentTypeError(
            f"'{text}' is every address; name the one that workers reach (127.0.0.1 works in any case)"
        )
    return text


def _where(options: argparse.Namespace) -> tuple[Address, layouts.Layout | None]:
    """The store that --dir, --ps or HET_PS names."""
    if options.dir:
        layout = layouts.need(options.dir.absolute())
        return layout.address(), layout
    if options.ps or os.environ.get("HET_PS"):
        return parse(options.ps or os.environ["HET_PS"]), None
    raise ServerError("which servers? give --dir DIR, --ps ADDRESS, or set HET_PS")


def say(text: str) -> None:
    """A line of progress, on stderr: stdout is for results."""
    print(text, file=sys.stderr, flush=True)


def run_up(options: argparse.Namespace) -> int:
    """het-ps up."""
    asked = {
        name: getattr(options, name)
        for name in ("shards", "replicas", "port", "unix", "bind", "appendfsync", "node_timeout")
    }
    asked["maxmemory"] = layouts.check_memory(options.maxmemory) if options.maxmemory else None
    layout = servers.prepare(options.dir.absolute(), **asked)
    servers.up(layout, options.timeout, say)
    print(servers.summary(layout))
    return 0


def run_down(options: argparse.Namespace) -> int:
    """het-ps down."""
    layout = layouts.need(options.dir.absolute())
    servers.down(layout, not options.no_save, options.force, options.timeout, say)
    return 0


def run_status(options: argparse.Namespace) -> int:
    """het-ps status."""
    address, layout = _where(options)
    console = Console()
    picture = status.rates(address, layout, options.interval)

    def print_json() -> None:
        print(json.dumps(picture.to_json(), indent=None if options.watch else 1), flush=True)

    if not options.watch:
        if options.json:
            print_json()
        else:
            # A pipe has no width: nothing is cut off there.
            (console if console.is_terminal else Console(width=200)).print(show.render(picture))
        return bool(picture.faults)
    with contextlib.nullcontext() if options.json else Live(show.render(picture), console=console) as live:
        while True:
            if live is None:
                print_json()
            else:
                live.update(show.render(picture))
            time.sleep(options.watch)
            with contextlib.suppress(ServerError):  # all are away: the old picture stays until one is back
                before, picture = picture, status.take(address, layout)
                picture.since(before)


def run_save(options: argparse.Namespace) -> int:
    """het-ps save."""
    address, _ = _where(options)
    save.save(address, options.rdb, options.timeout, say)
    return 0


def run_conf(options: argparse.Namespace) -> int:
    """het-ps conf."""
    module = options.module or str(redis_server.find_module())
    maxmemory = layouts.check_memory(options.maxmemory)
    print(conf.lines(module, options.cluster, maxmemory, options.appendfsync, not options.no_acl), end="")
    return 0


def run_form(options: argparse.Namespace) -> int:
    """het-ps form."""
    address = parse(options.ps)
    count = len(address.places)
    if count % (1 + options.replicas) or count < 2:
        raise ServerError(f"{count} addresses cannot be shards with {options.replicas} replicas each")
    shards = count // (1 + options.replicas)
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(Node(p, address.user, address.password)) for p in address.places]
        for node in nodes:
            if not cluster.is_cluster(node):
                raise ServerError(
                    f"{node.place} does not run with cluster-enabled yes; see `het-ps conf --cluster`"
                )
        cluster.form(
            nodes[:shards], [nodes[i + shards :: shards] for i in range(shards)], options.timeout, say
        )
    say(f"{shards} shards with {options.replicas} replicas each are ready")
    return 0


def run_promote(options: argparse.Namespace) -> int:
    """het-ps promote."""
    address, _ = _where(options)
    promote.promote(address, _place(options.replica), options.timeout, say)
    return 0


def _place(text: str) -> Place:
    return parse(f"redis://{text}").places[0]


def run_reshard(options: argparse.Namespace) -> int:
    """het-ps reshard."""
    address, _ = _where(options)
    with contextlib.ExitStack() as stack:
        shards = reshard.Shards(address, stack)
        if options.check:
            todo = [
                f"slot {move.slot} is open, on its way from {shards.nodes[move.source].place} to"
                f" {shards.nodes[move.target].place}; " + ("to be finished" if finish else "to be taken back")
                for move, finish in reshard.open_slots(shards)
            ]
            if not todo and not options.repair:
                moves = reshard.plan(shards)
                todo = [f"{len(moves)} slots would move, so that partitions are even"] if moves else []
            print(
                "\n".join(todo) or "no slot is open" + ("" if options.repair else ", and partitions are even")
            )
            return bool(todo)
        repaired = reshard.repair(shards, say)
        if options.repair:
            print(f"{repaired} open slots were closed")
            return 0
        leaving = ""
        if options.add:
            reshard.add(shards, _place(options.add), address, stack, say)
        if options.remove:
            leaving = reshard.remove(shards, _place(options.remove))
        moves = reshard.plan(shards, leaving)
        begin = said = time.monotonic()
        keys = 0
        for number, move in enumerate(moves, 1):
            moved = shards.run(move)
            keys += moved
            if moved or time.monotonic() > said + 1 or number == len(moves):
                said = time.monotonic()
                source, target = shards.nodes[move.source].place, shards.nodes[move.target].place
                say(f"{number} of {len(moves)}: slot {move.slot} from {source} to {target}, {moved} keys")
        print(
            f"{repaired} open slots closed; {len(moves)} slots moved, with {keys} keys,"
            f" in {time.monotonic() - begin:.1f} s"
        )
        if leaving:
            print(f"{options.remove} owns no slots any more and can be stopped")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; `arguments` as in sys.argv[1:]. Returns the exit status."""
    options = parser().parse_args(arguments)
    run = {
        "up": run_up, "down": run_down, "status": run_status, "save": run_save, "conf": run_conf,
        "form": run_form, "promote": run_promote, "reshard": run_reshard,
    }[options.command]  # fmt: skip
    try:
        status_of_run = int(run(options))
        sys.stdout.flush()
        return status_of_run
    except (ServerError, ValueError) as error:
        print(f"het-ps: {error}", file=sys.stderr)
    except BrokenPipeError:  # as in `het-ps status | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what Python flushes at its end
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"het-ps: {where}{error.strerror or error}", file=sys.stderr)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 0 if options.command == "status" else 130
    return 1
