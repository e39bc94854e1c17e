"""The command `het-plan`. Exit status: 0 done, 1 something is wrong (a line says what), 2 wrong arguments."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable
from pathlib import Path

from het_tf.python.planner import sources
from het_tf.python.planner.dataset import profile_of
from het_tf.python.planner.profile import Feature, Profiler
from het_tf.python.planner.stats import KEYS, Stats
from het_tf.python.show import Command, bar, number, run, size
from het_tf.python.show import parser as command_line

DESCRIPTION = """\
Says what a job will cost before it runs.

  het-plan profile --data criteo:train.tsv --dim 16 --out stats
      one pass over the samples: stats/stats.json, and stats/keys.npz, the
      stream of a sample of the ids
  het-plan profile --data 'parquet:day-*.parquet' --table item=item,history \\
      --dim item=64 --dim user=32 --fields item,history,user --out stats
  het-plan profile --data train:samples --out stats
      the module train has a function samples, which returns (dataset, layer)

Exit status: 0 done, 1 something is wrong, 2 wrong arguments."""

_WIDEST = 28


def parser() -> argparse.ArgumentParser:
    """The command line."""
    return command_line("het-plan", DESCRIPTION, (_profile,))


def _profile(command: Command) -> None:
    sub = command(
        "profile",
        "count the ids of a stream of samples",
        "In one pass and constant memory. A field of files is a table by its own name. rows: distinct ids; ~:"
        " estimated. ratio: one of so many ids is in keys.npz.",
    )
    add = sub.add_argument
    add("--data", required=True, metavar="WHAT", help=sources.SCHEMES)
    add("--out", type=Path, required=True, metavar="DIR", help="is made; a profile in it is replaced")
    add("--samples", type=_count, metavar="N", help="how many are counted; default all")
    add("--fields", type=_names, metavar="A,B", help="of files: those that are counted; default all of ids")
    add("--table", action="append", default=[], type=_table, metavar="NAME=A,B", help="fields of one table")
    add("--dim", action="append", default=[], metavar="N|NAME=N", help="floats of a row, of all or one table")
    add("--fanout", type=_fanout, metavar="N,N", help="of a graph: neighbours that are drawn; default 10,5")


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1 << 40:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number of 1 or more")
    return int(text)


def _names(text: str) -> list[str]:
    names = text.split(",")
    if "" in names or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of different names, as in user,item")
    return names


def _table(text: str) -> tuple[str, list[str]]:
    name, _, fields = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=FIELD,FIELD")
    return name, _names(fields)


def _fanout(text: str) -> tuple[int, ...]:
    return tuple(_count(one) for one in text.split(","))


def _features(options: argparse.Namespace, source: sources.Source) -> list[Feature]:
    """The fields of files, each of its table."""
    fields = options.fields or source.fields
    tables = {field: field for field in fields}
    named: set[str] = set()
    for table, of in options.table:
        if named & set(of):
            raise ValueError(f"--table: {sorted(named & set(of))} are of two tables; give each field once")
        named |= set(of)
        tables |= dict.fromkeys(of, table)
    for field in tables:
        if field in source.left_out:
            raise ValueError(f"field {field!r} {source.left_out[field]}; leave it out")
        if field not in fields or field not in source.fields:
            raise ValueError(f"there is no field {field!r}; those of ids are {', '.join(source.fields)}")
    dims: dict[str | None, int] = {}
    for text in options.dim:
        name, _, digits = text.rpartition("=")
        if not digits.isdecimal() or not 1 <= int(digits) <= 65536:
            raise ValueError(f"--dim is {text!r}; give 1 to 65536, as in 16 or user=16")
        if name and name not in tables.values():
            raise ValueError(f"--dim {text}: the tables are {', '.join(dict.fromkeys(tables.values()))}")
        dims[name or None] = int(digits)
    return [Feature(field, table, dims.get(table, dims.get(None))) for field, table in tables.items()]


def run_profile(options: argparse.Namespace) -> int:
    """het-plan profile."""
    kind, colon, rest = options.data.partition(":")
    if not colon or not kind or not rest:
        raise ValueError(f"--data is {options.data!r}; give {sources.SCHEMES}")
    if options.fanout and kind != "graph":
        raise ValueError(f"--fanout is of graphs, and --data is {options.data}; leave it out")
    with bar("profile") as (begin, advance):
        if kind not in ("criteo", "parquet", "tfrecord", "graph"):
            if options.fields or options.table or options.dim:
                raise ValueError(f"the layer of {options.data} has features, tables and dims; leave out "
                                 "--fields, --table and --dim")  # fmt: skip
            begin(options.samples)
            made = sources.call(kind, rest)
            stats = profile_of(*made, options.out, options.samples, options.data, advance)
        else:
            graph = kind == "graph"
            source = (
                sources.open_graph(rest, options.fanout or (10, 5))
                if graph
                else sources.open_files(kind, rest)
            )
            begin(source.total)
            profiler = Profiler(_features(options, source), options.data, options.samples)
            for batch, units in source.batches([feature.name for feature in profiler.features]):
                profiler.add(batch)
                advance(units)
                if profiler.full:
                    break
            stats = profiler.finish(options.out)
    print("\n".join(_lines(stats)))
    return 0


def _lines(stats: Stats) -> list[str]:
    written = size((stats.directory / KEYS).stat().st_size)
    wide = max(len("table"), min(_WIDEST, max(len(table.name) for table in stats.tables)))
    lines = textwrap.wrap(f"{stats.source}: {stats.samples:,} samples; {stats.directory} has {written}", 80)
    lines += ["", f"{'table':{wide}}{'dim':>6}{'ids':>8}{'a sample':>10}{'rows':>8}{'ratio':>7}{'kept':>8}"]
    for table in stats.tables:
        name = table.name if len(table.name) <= wide else table.name[: wide - 3] + "..."
        rows = ("" if table.rows_exact else "~") + number(table.rows)
        lines.append(
            f"{name:{wide}}{table.dim or '-':>6}{number(table.uses):>8}{table.uses / stats.samples:>10.2f}"
            f"{rows:>8}{table.ratio:>7}{number(table.entries):>8}"
        )
    return lines


RUN: dict[str, Callable[[argparse.Namespace], int]] = {"profile": run_profile}


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; `arguments` as in sys.argv[1:]. Returns the exit status."""
    options = parser().parse_args(arguments)
    return run("het-plan", lambda: RUN[options.command](options), 130, ValueError)
