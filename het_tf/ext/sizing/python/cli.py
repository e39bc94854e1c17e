"""The commands `het plan`."""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from collections.abc import Mapping
from typing import Any

from het_tf.ext.sizing.python.stats import KEYS, STATS, Stats
from het_tf.python.cli import JSON, Group, Options, answer, arg, at_least_0, at_least_1
from het_tf.python.files import local
from het_tf.python.show import bar, number, size

HET = Group("""\
Forecasts the cost of a job before it runs.

  het plan profile --data train:samples --out stats
      call the function samples of the module train for (dataset, layer), and
      read the dataset once; write stats/stats.json, and stats/keys.npz, the
      stream of a sample of the ids
  het plan show stats --workers 8 --batch 4096 --link 10Gb --ram 64GB
      show the tables, servers and the time of a step""")

_WIDEST = 28
_BYTES = {"b": 1.0} | {
    f"{prefix}{i}b": (1024.0 if i else 1000.0) ** power
    for power, prefix in enumerate("kmgt", 1)
    for i in ("", "i")
}
_RATES = {  # in bytes a second
    f"{letter}b{end}": 1000.0**power / 8
    for power, prefix in enumerate("kmg", 1)
    for letter in (prefix, prefix.upper())
    for end in ("", "it", "/s", "ps", "it/s", "itps")
}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_UNBOUNDED = "unbounded"  # null in JSON
_OPTIMIZERS = ("row_wise_adagrad", "adagrad", "sgd", "momentum", "adam", "ftrl")


def _quantity(text: str, units: Mapping[str, float], otherwise: str) -> float:
    """Parses a number with its unit. ArgumentTypeError with the text `otherwise`: it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z/]+)", text)
    if not found or found[2] not in units:
        raise argparse.ArgumentTypeError(otherwise)
    return float(found[1]) * units[found[2]]


def _bytes(text: str) -> int:
    """Parses 64GB, 64GiB, 1_000B; without a unit, 64 would be bytes as well as gigabytes."""
    form = "a number of bytes with its unit, such as 64GB (10^9 bytes a GB), 64GiB or 1000B"
    plain = "0b" if text == "0" else text.lower().replace("_", "")
    return round(_quantity(plain, _BYTES, f"'{text}' is not {form}"))


def _rate(text: str) -> float:
    """Parses bits a second, the unit of links; returns bytes a second."""
    return _quantity(
        text, _RATES, f"'{text}' is not a rate in bits a second, such as 10Gb (B would be bytes)"
    )


def _seconds(text: str) -> float:
    return _quantity(text.lower(), _SECONDS, f"'{text}' is not a time, such as 0.2ms")


def _staleness(text: str) -> int | str:
    return text if text in ("synchronous", _UNBOUNDED) else at_least_0(text)


@HET.command(
    "profile",
    "count the ids of a stream of samples",
    arg(
        "--data",
        required=True,
        metavar="MODULE:FUNCTION",
        help="returns (dataset, layer), or (dataset, layer, inputs)",
    ),
    arg("--out", type=local, required=True, metavar="DIR", help="made if missing; replaces a profile"),
    arg("--samples", type=int, metavar="N", help="samples to count; default all"),
    JSON,
    more="One pass, constant memory. rows: distinct ids; ~: estimated. ratio: one id of `ratio` is kept.",
)
def profile(options: Options) -> int:
    """Het plan profile."""
    from het_tf.ext.sizing.python import sources

    stats = sources.open_function(options.data, options.samples).profile(options.data, options.out)
    document = json.loads((stats.directory / STATS).read_text())
    answer(options, document, "\n".join(_lines(stats)))
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
            f"{name:{wide}}{table.dim:>6}{number(table.uses):>8}{table.uses / stats.samples:>10.2f}"
            f"{rows:>8}{table.ratio:>7}{number(table.entries):>8}"
        )
    return lines


def _request(options: Options) -> Any:
    from het_tf.ext.sizing.python.cost import Machine, byte_seconds
    from het_tf.ext.sizing.python.forecast import Request
    from het_tf.ext.sizing.python.replay import Job

    given: dict[str, Any] = {name: getattr(options, name) for name in ("staleness", "wire", "policy")
                             if getattr(options, name) is not None}  # fmt: skip
    cache = {name: None if value == _UNBOUNDED else value for name, value in given.items()}
    return Request(
        job=Job(workers=options.workers, batch=options.batch, shards=options.shards, window=options.window,
                passes=min(options.passes, 2)),
        machine=Machine(rate=options.link, round_trip=options.rtt, compute=options.compute,
                        byte_seconds=byte_seconds()),
        cache_bytes=options.cache,
        cache=cache,
        optimizer={"name": options.optimizer},
        samples=options.total,
        replicas=options.replicas,
        ram=options.ram,
    )  # fmt: skip


@HET.command(
    "show",
    "forecast the cost of a job over a profiled stream",
    arg("stats", type=local, help="the directory that het plan profile wrote"),
    arg("--workers", type=at_least_1, default=8, metavar="N", help="ranks (%(default)s)"),
    arg(
        "--batch", type=at_least_1, default=1024, metavar="B", help="samples of a worker's step (%(default)s)"
    ),
    arg("--shards", type=at_least_1, default=1, metavar="N", help="servers (%(default)s)"),
    arg("--replicas", type=at_least_0, default=0, metavar="R", help="replicas a server (%(default)s)"),
    arg("--link", type=_rate, metavar="RATE", help="each machine's rate, such as 10Gb; default: no limit"),
    arg("--rtt", type=_seconds, default=0.0, metavar="TIME", help="to a server and back, such as 0.2ms"),
    arg("--ram", type=_bytes, metavar="X", help="memory of a server, such as 64GB; default: no limit"),
    arg(
        "--cache", type=_bytes, metavar="X", help="memory of a worker's caches; default: a tenth of all rows"
    ),
    arg("--compute", type=_seconds, default=0.0, metavar="TIME", help="a step without lookups, such as 9ms"),
    arg(
        "--total",
        type=at_least_1,
        metavar="N",
        help="samples of the whole job; default: those of the profile",
    ),
    arg("--passes", type=at_least_1, default=1, metavar="N", help="over the same samples; 2 stands for more"),
    arg(
        "--window",
        type=at_least_0,
        default=0,
        metavar="N",
        help="batches that het_tf.lookahead plans (0: none)",
    ),
    arg("--staleness", type=_staleness, metavar="S", help="as of Cache; or 'synchronous', 'unbounded'"),
    arg("--wire", choices=("float32", "float16", "int8", "int4"), help="of het_tf.Cache"),
    arg("--policy", choices=("lfu", "lru"), help="of het_tf.Cache"),
    arg(
        "--optimizer",
        metavar="NAME",
        choices=_OPTIMIZERS,
        default=_OPTIMIZERS[0],
        help=f"of the rows: {', '.join(_OPTIMIZERS)} (%(default)s)",
    ),
    JSON,
    more="Shows rows and caches of each table, bytes, waits, memory, time and accuracy, by running the client"
    " on the sampled ids. docs/planning.md explains each column, and its measured error.",
)
def show_plan(options: Options) -> int:
    """Het plan show."""
    from het_tf.ext.sizing.python import show
    from het_tf.ext.sizing.python.forecast import forecast

    stats = Stats.load(options.stats)
    request = _request(options)
    with bar("replaying") as (begin, advance):
        begin(2 * len(stats.tables))
        plan = forecast(stats, request, advance)
    answer(options, plan, "\n".join(show.lines(plan, stats.source, stats.samples)))
    return 0
