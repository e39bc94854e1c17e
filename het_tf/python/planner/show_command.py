"""The command `het-plan show`."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from typing import Any

from het_tf.python.files import local
from het_tf.python.planner.stats import Stats
from het_tf.python.show import Command, add_json, at_least_0, at_least_1, bar

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_UNBOUNDED = "unbounded"  # null in JSON
_OPTIMIZERS = ("row_wise_adagrad", "adagrad", "sgd", "momentum", "adam", "ftrl")


def _bytes(text: str) -> int:
    """Parses 64GB, 64GiB, 1_000B; without a unit, 64 would be bytes as well as gigabytes."""
    found = re.fullmatch(
        rf"{_NUMBER}\s*([kmgt]?)(i?)b", text.lower().replace("_", "") if text != "0" else "0b"
    )
    if not found:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a number of bytes with its unit, such as 64GB (10^9 bytes a GB), 64GiB or 1000B"
        )
    unit = 1024 ** " kmgt".index(found[2] or " ") if found[3] else _UNITS[found[2]]
    return round(float(found[1]) * unit)


def _rate(text: str) -> float:
    """Parses bits a second, the unit of links; returns bytes a second."""
    found = re.fullmatch(rf"{_NUMBER}\s*([kKmMgG])b(?:it)?(?:/s|ps)?", text)
    if not found:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a rate in bits a second, such as 10Gb (B would be bytes)"
        )
    return float(found[1]) * _UNITS[found[2].lower()] / 8


def _seconds(text: str) -> float:
    found = re.fullmatch(rf"{_NUMBER}\s*(s|ms|us)", text.lower())
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time, such as 0.2ms")
    return float(found[1]) * _SECONDS[found[2]]


def _staleness(text: str) -> int | str:
    return text if text in ("synchronous", _UNBOUNDED) else at_least_0(text)


def add(command: Command) -> None:
    """Adds the command."""
    sub = command(
        "show",
        "forecast the cost of a job over a profiled stream",
        "Shows rows and caches of each table, bytes, waits, memory, time and accuracy, by running the client"
        " on the sampled ids. docs/het-plan.md explains each column, and its measured error.",
    )
    given = sub.add_argument
    given("stats", type=local, help="the directory that het-plan profile wrote")
    given("--workers", type=at_least_1, default=8, metavar="N", help="ranks (%(default)s)")
    given(
        "--batch", type=at_least_1, default=1024, metavar="B", help="samples of a worker's step (%(default)s)"
    )
    given("--shards", type=at_least_1, default=1, metavar="N", help="servers (%(default)s)")
    given("--replicas", type=at_least_0, default=0, metavar="R", help="replicas a server (%(default)s)")
    given("--link", type=_rate, metavar="RATE", help="each machine's rate, such as 10Gb; default: no limit")
    given("--rtt", type=_seconds, default=0.0, metavar="TIME", help="to a server and back, such as 0.2ms")
    given("--ram", type=_bytes, metavar="X", help="memory of a server, such as 64GB; default: no limit")
    given(
        "--cache", type=_bytes, metavar="X", help="memory of a worker's caches; default: a tenth of all rows"
    )
    given("--gpu", type=_bytes, metavar="X", help="memory of a GPU for the hottest cached rows")
    given("--compute", type=_seconds, default=0.0, metavar="TIME", help="a step without lookups, such as 9ms")
    given(
        "--total",
        type=at_least_1,
        metavar="N",
        help="samples of the whole job; default: those of the profile",
    )
    given(
        "--passes", type=at_least_1, default=1, metavar="N", help="over the same samples; 2 stands for more"
    )
    given("--window", type=at_least_0, default=0, metavar="N", help="batches of het_tf.lookahead (0: none)")
    given("--staleness", type=_staleness, metavar="S", help="as of Cache; or 'synchronous', 'unbounded'")
    given("--wire", choices=("float32", "float16", "int8", "int4"), help="of het_tf.Cache")
    given("--policy", choices=("lfu", "light_lfu", "lru"), help="of het_tf.Cache")
    given("--dim", type=at_least_1, default=16, metavar="D", help="if the profile lacks it (%(default)s)")
    given("--optimizer", metavar="NAME", choices=_OPTIMIZERS, default=_OPTIMIZERS[0],
          help=f"of the rows: {', '.join(_OPTIMIZERS)} (%(default)s)")  # fmt: skip
    given("--method", choices=("greedy", "milp"), default="greedy", help="how to divide the caches")
    given("--no-advice", action="store_true", help="skip advice, which takes half of the time")
    given("--plan", type=local, metavar="FILE", help="write plan.json, for Cache.from_plan and het-ps up")
    given("--html", type=local, metavar="FILE", help="write a page with plots (needs matplotlib)")
    add_json(sub)


def _request(options: argparse.Namespace) -> Any:
    from het_tf.python.planner.cost import Machine, byte_seconds
    from het_tf.python.planner.forecast import Request
    from het_tf.python.planner.replay import Job

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
        dim=options.dim,
        optimizer={"name": options.optimizer},
        samples=options.total,
        replicas=options.replicas,
        ram=options.ram,
        gpu=options.gpu,
        method=options.method,
    )  # fmt: skip


def make(stats: Stats, request: Any, advice: bool, advance: Callable[[int], None]) -> dict[str, Any]:
    """Returns the plan of a job in the form of plan.json."""
    from het_tf.python.planner import advice as changes
    from het_tf.python.planner import document
    from het_tf.python.planner.forecast import forecast

    made = forecast(stats, request, advance)
    return document.plan(made, changes.advise(stats, made) if advice else None)


def run(options: argparse.Namespace) -> int:
    """het-plan show."""
    from het_tf.python.planner import show

    stats = Stats.load(options.stats)
    request = _request(options)
    with bar("replaying") as (begin, advance):
        begin(2 * len(stats.tables))
        plan = make(stats, request, not options.no_advice, advance)
    if options.plan:
        options.plan.write_text(json.dumps(plan, indent=1) + "\n")
    if options.html:
        from het_tf.python.planner import page

        options.html.write_text(page.html(plan, stats.source, stats.samples))
    print(
        json.dumps(plan, indent=1)
        if options.json
        else "\n".join(show.lines(plan, stats.source, stats.samples))
    )
    return 0
