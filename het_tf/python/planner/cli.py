"""The command `het-plan`. Exit status: 0 done, 1 something is wrong (a line says what), 2 wrong arguments."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable

from het_tf.python.files import local
from het_tf.python.placement.cli.formats import FORMATS
from het_tf.python.planner import show_command, sources
from het_tf.python.planner.profile import Feature
from het_tf.python.planner.stats import KEYS, Stats
from het_tf.python.show import Command, number, run, size
from het_tf.python.show import parser as command_line

DESCRIPTION = """\
Forecasts the cost of a job before it runs.

  het-plan profile --data criteo:train.tsv --dim 16 --out stats
      read the samples once; write stats/stats.json, and stats/keys.npz, the
      stream of a sample of the ids
  het-plan profile --data 'parquet:day-*.parquet' --fields user,item,history \\
      --table item=item,history --dim item=64 --dim user=32 --out stats
  het-plan profile --data train:samples --out stats
      call the function samples of the module train for (dataset, layer)
  het-plan show stats --workers 8 --batch 4096 --link 10Gb --ram 64GB
      show the tables, servers, the time of a step, and helpful changes
  het-plan show stats --workers 8 --batch 4096 --plan plan.json --html plan.html
      write a plan for het_tf.Cache.from_plan and het-ps up, and a page of plots

Exit status: 0 done, 1 something is wrong, 2 wrong arguments."""

_WIDEST = 28


def parser() -> argparse.ArgumentParser:
    """The command line."""
    return command_line("het-plan", DESCRIPTION, (_profile, show_command.add))


def _profile(command: Command) -> None:
    add = command(
        "profile",
        "count the ids of a stream of samples",
        "One pass, constant memory. rows: distinct ids; ~: estimated. ratio: one id of `ratio` is kept.",
    ).add_argument
    add("--data", required=True, metavar="WHAT", help=sources.SCHEMES)
    add("--out", type=local, required=True, metavar="DIR", help="made if missing; replaces a profile")
    add("--samples", type=int, metavar="N", help="samples to count; default all")
    add("--fields", metavar="A,B", help="fields to count, each a table; default all fields of ids")
    add("--table", action="append", default=[], metavar="NAME=A,B", help="fields that share a table")
    add("--dim", action="append", default=[], metavar="N|NAME=N", help="floats of a row, of all or one table")
    add("--fanout", metavar="N,N", help="neighbours drawn from a graph; default 10,5")


def _features(options: argparse.Namespace, fields: list[str]) -> list[Feature]:
    """Returns fields with their tables."""
    tables, dims = {field: field for field in fields}, {}
    for text in options.table:
        name, _, of = text.partition("=")
        for field in of.split(","):
            if not name or tables.get(field) != field:
                raise ValueError(f"--table {text}: give NAME=FIELD,FIELD, each once, of {', '.join(fields)}")
            tables[field] = name
    for text in options.dim:
        name, _, digits = text.rpartition("=")
        if not digits.isdecimal() or not 1 <= int(digits) <= 65536 or name not in ("", *tables.values()):
            known = ", ".join(dict.fromkeys(tables.values()))
            raise ValueError(f"--dim {text}: give 1 to 65536, or NAME=N; the tables are {known}")
        dims[name] = int(digits)
    return [Feature(field, table, dims.get(table, dims.get(""))) for field, table in tables.items()]


def _open(options: argparse.Namespace) -> sources.Source:
    kind, _, rest = options.data.partition(":")
    files, graph = kind in FORMATS, kind == "graph"
    fits = {"fields": files, "table": files or graph, "dim": files or graph, "fanout": graph}
    for name, fit in fits.items():
        if not fit and vars(options)[name]:
            raise ValueError(f"--{name} does not go with --data {options.data}; leave it out")
    if not kind or not rest:
        raise ValueError(f"--data is {options.data!r}; give {sources.SCHEMES}")
    if files:
        fields = options.fields and options.fields.split(",")
        return sources.open_files(kind, rest, fields, lambda names: _features(options, names))
    if graph:
        fanout = tuple(int(one) if one.isdecimal() else 0 for one in (options.fanout or "10,5").split(","))
        return sources.open_graph(rest, fanout, lambda names: _features(options, names))
    return sources.open_function(kind, rest, options.samples)


def run_profile(options: argparse.Namespace) -> int:
    """het-plan profile."""
    print("\n".join(_lines(_open(options).profile(options.data, options.out, options.samples))))
    return 0


def _lines(stats: Stats) -> list[str]:
    written = size((stats.directory / KEYS).stat().st_size)
    wide = max(len("table"), min(_WIDEST, max(len(table.name) for table in stats.tables)))
    lines = textwrap.wrap(
        f"{stats.source}: {stats.samples:,} samples; {stats.directory / KEYS}: {written}", 80
    )
    lines += ["", f"{'table':{wide}}{'dim':>6}{'ids':>8}{'a sample':>10}{'rows':>8}{'ratio':>7}{'kept':>8}"]
    for table in stats.tables:
        name = table.name if len(table.name) <= wide else table.name[: wide - 3] + "..."
        rows = ("" if table.rows_exact else "~") + number(table.rows)
        lines.append(
            f"{name:{wide}}{table.dim or '-':>6}{number(table.uses):>8}{table.uses / stats.samples:>10.2f}"
            f"{rows:>8}{table.ratio:>7}{number(table.entries):>8}"
        )
    return lines


RUN: dict[str, Callable[[argparse.Namespace], int]] = {"profile": run_profile, "show": show_command.run}


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; `arguments` as in sys.argv[1:]. Returns the exit status."""
    return run(parser(), arguments, lambda options: RUN[options.command](options), ValueError, ImportError)
