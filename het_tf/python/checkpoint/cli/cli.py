"""The command `het-ckpt`. Exit status: 0 done, 1 something is wrong (a line says what), 2 wrong arguments."""

import argparse
import json
from collections.abc import Callable

from het_tf.python.checkpoint.cli import inspect, verify
from het_tf.python.checkpoint.cli.view import View
from het_tf.python.files import local
from het_tf.python.show import Command, add_json, bar, number, run, say, show, size
from het_tf.python.show import parser as command_line

DESCRIPTION = """\
Shows, checks and merges checkpoints of het_tf.
Only merge needs TensorFlow.

  het-ckpt inspect runs/ctr
      show the newest checkpoint in a directory
  het-ckpt verify runs/ctr/ckpt-00000012
      read every byte of it; exit status 1 on a fault
  het-ckpt merge full runs/ctr/ckpt-00000012
      write it and its bases as one full checkpoint

A PATH is a checkpoint, or a directory: then its newest checkpoint. An increment
includes the rows of all its bases.
`het-ckpt COMMAND --help` explains each.
Exit status: 0 done, 1 something is wrong, 2 wrong arguments."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    return command_line("het-ckpt", DESCRIPTION, (_inspect, _verify, _merge))


def _path(sub: argparse.ArgumentParser, name: str = "path", text: str = "") -> None:
    sub.add_argument(
        name, type=local, metavar=name.upper(), help=text or "a checkpoint, or a directory of checkpoints"
    )


def _inspect(command: Command) -> None:
    sub = command("inspect", "show tables, rows, clocks, dates, files, bases and dense weights")
    _path(sub)
    sub.add_argument("--table", metavar="T", help="everything about this table")
    add_json(sub)
    sub.add_argument("--all", action="store_true", help="every file and every dense tensor")


def _verify(command: Command) -> None:
    sub = command(
        "verify",
        "check every checksum, that each row is once and in the right file, and that floats are finite",
        "Checks the bases of the checkpoint too.",
    )
    _path(sub)


def _merge(command: Command) -> None:
    sub = command(
        "merge",
        "write a checkpoint and the increments on it as one checkpoint",
        "The bases of a single IN are read from its directory. Several must build on one another; without a"
        " full one among them the result is an increment. The dense weights are those of the newest.",
    )
    _path(sub, "out", "the new checkpoint; must not exist")
    sub.add_argument("inputs", type=local, metavar="IN", nargs="+", help="checkpoints, in any order")


def _checked(view: View, what: str) -> View:
    """Checks a view before it is rewritten: a new checksum would hide damage."""
    with bar(f"checksums of {what}") as (begin, advance):
        begin(verify.total_bytes(view.chain))
        faults = verify.checksums(view.chain, advance)
    if faults:
        raise ValueError("\n".join(faults))
    return view


def run_inspect(options: argparse.Namespace) -> int:
    """het-ckpt inspect."""
    view = View.open(options.path)
    with bar("rows") as (begin, advance):
        begin(sum(table.count() for table in view.select(options.table)))
        found = inspect.take(view, options.table, advance)
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        show(inspect.render(found, options.all, options.table is not None))
    return 0


def run_verify(options: argparse.Namespace) -> int:
    """het-ckpt verify."""
    with bar("bytes") as (begin, advance):
        chain, faults = verify.verify(options.path, advance, begin)
    for fault in faults:
        say(f"het-ckpt: {fault}")
    if faults:
        return 1
    files = sum(len(one.files) + bool(one.dense) for one in chain)
    builds = (
        f", which builds on {', '.join(one.path.name for one in chain[-2::-1])}," if len(chain) > 1 else ""
    )
    print(f"{chain[-1].path}{builds} is sound: {files} files, {size(verify.total_bytes(chain))}")
    return 0


def run_merge(options: argparse.Namespace) -> int:
    """het-ckpt merge."""
    from het_tf.python.checkpoint.cli import merge  # loads TensorFlow, which the other commands do without

    view = _checked(View(merge.chain_of(options.inputs)), "the inputs")
    with bar("files") as (begin, advance):
        begin(len(view.manifest.files))
        document = merge.merge(options.out, view, advance)
    rows = ", ".join(
        f"{table['name']} {number(table['rows'])} rows"
        + (f" and {number(table['removed'])} removals" if table["removed"] else "")
        for table in document["tables"]
    )
    kind = f"an increment on {document['base']['name']}" if document["base"] else "full"
    names = ", ".join(one.path.name for one in view.chain)
    print(f"{options.out}: {kind}, from {names}: {rows}")
    return 0


RUN: dict[str, Callable[[argparse.Namespace], int]] = {
    "inspect": run_inspect,
    "verify": run_verify,
    "merge": run_merge,
}


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; `arguments` as in sys.argv[1:]. Returns the exit status."""
    return run(parser(), arguments, lambda options: RUN[options.command](options), ValueError, ImportError)
