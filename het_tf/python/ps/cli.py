"""The command `het-ps`. Exit status: 0 done, 1 something is wrong (a line says what), 2 wrong arguments."""

import argparse
import contextlib
import json
import os
import time

from rich.live import Live

from het_tf.python.ps import cluster, conf, programs, promote, reshard, save, servers, show, status, watch
from het_tf.python.ps import layout as layouts
from het_tf.python.ps.address import Address, Place, parse
from het_tf.python.ps.arguments import parser
from het_tf.python.ps.errors import ServerError
from het_tf.python.ps.node import Node
from het_tf.python.ps.plan_file import servers as servers_of_plan
from het_tf.python.ps.weighing import ByCount, ByLoad
from het_tf.python.show import console, say
from het_tf.python.show import run as run_command
from het_tf.python.show import show as show_result


def _where(options: argparse.Namespace) -> tuple[Address, layouts.Layout | None]:
    """The store that --dir, --ps or HET_PS names."""
    if options.dir:
        layout = layouts.need(options.dir.absolute())
        return layout.address(), layout
    if options.ps or os.environ.get("HET_PS"):
        return parse(options.ps or os.environ["HET_PS"]), None
    raise ServerError("which servers? give --dir DIR, --ps ADDRESS, or set HET_PS")


def run_up(options: argparse.Namespace) -> int:
    """het-ps up."""
    asked = {
        name: getattr(options, name)
        for name in ("shards", "replicas", "port", "unix", "bind", "tls", "appendfsync", "node_timeout")
    }
    asked["maxmemory"] = layouts.check_memory(options.maxmemory) if options.maxmemory else None
    if options.plan:
        asked |= servers_of_plan(options.plan, asked)
    layout = servers.prepare(options.dir.absolute(), **asked)
    servers.up(layout, options.timeout, say)
    print(servers.summary(layout), flush=True)
    if options.watch:
        watch.watch(layout.directory, options.timeout, say)
    return 0


def run_down(options: argparse.Namespace) -> int:
    """het-ps down."""
    layout = layouts.need(options.dir.absolute())
    servers.down(layout, not options.no_save, options.force, options.timeout, say)
    return 0


def run_status(options: argparse.Namespace) -> int:
    """het-ps status."""
    address, layout = _where(options)
    picture = status.rates(address, layout, options.interval)

    def print_json() -> None:
        print(json.dumps(picture.to_json(), indent=None if options.watch else 1), flush=True)

    if not options.watch:
        if options.json:
            print_json()
        else:
            show_result(show.render(picture))
        return bool(picture.faults)
    screen = Live(show.render(picture), console=console(), vertical_overflow="visible")
    with contextlib.suppress(KeyboardInterrupt), contextlib.nullcontext() if options.json else screen as live:
        while True:
            if live is None:
                print_json()
            else:
                live.update(show.render(picture))
            time.sleep(options.watch)
            with contextlib.suppress(ServerError):  # no server answers: the old picture stays until one does
                before, picture = picture, status.take(address, layout)
                picture.since(before)
    return 0


def run_save(options: argparse.Namespace) -> int:
    """het-ps save."""
    address, _ = _where(options)
    save.save(address, options.rdb, options.timeout, say)
    return 0


def run_conf(options: argparse.Namespace) -> int:
    """het-ps conf."""
    module = options.module or str(programs.find_module())
    maxmemory = layouts.check_memory(options.maxmemory)
    print(conf.lines(module, options.cluster, maxmemory, options.appendfsync, not options.no_acl), end="")
    return 0


def run_form(options: argparse.Namespace) -> int:
    """het-ps form."""
    address = parse(options.ps)
    count = len(address.places)
    if count % (1 + options.replicas) or count < 2:
        raise ServerError(f"{count} addresses cannot form shards with {options.replicas} replicas each")
    shards = count // (1 + options.replicas)
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(Node(p, address)) for p in address.places]
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
    if options.interval and options.by != "load":
        raise ValueError(f"--interval {options.interval:g} is for --by load: counts are not measured")
    by = ByLoad(options.interval or 10.0) if options.by == "load" else ByCount()
    address, layout = _where(options)
    if options.remove and layout is not None and _place(options.remove) in {m.place for m in layout.members}:
        raise ServerError(
            f"{options.remove} belongs to {options.dir}, and `het-ps up` would start it again; the servers"
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
                moves = by.plan(shards, "", print)
                todo = [f"{len(moves)} slots would move, so that {by.even}"] if moves else []
            print("\n".join(todo) or "no slot is open" + ("" if options.repair else f", and {by.even}"))
            return bool(todo)
        repaired = reshard.repair(shards, say)
        if options.repair:
            print(f"{repaired} open slots were closed")
            return 0
        leaving = None
        if options.add:
            reshard.add(shards, _place(options.add), address, stack, say)
        if options.remove:
            leaving = reshard.member(shards, _place(options.remove))
        moves = by.plan(shards, leaving.id if leaving is not None and leaving.slots else "", say)
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
        if leaving is not None:
            reshard.forget(shards, leaving, address, stack, say)
            print(f"{options.remove} has left the cluster, is empty, and can be stopped")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; `arguments` as in sys.argv[1:]. Returns the exit status."""
    run = {
        "up": run_up, "down": run_down, "status": run_status, "save": run_save, "conf": run_conf,
        "form": run_form, "promote": run_promote, "reshard": run_reshard,
    }  # fmt: skip
    return run_command(
        parser(), arguments, lambda options: run[options.command](options), ServerError, ValueError
    )
