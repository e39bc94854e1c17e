"""The tables that update_docs.py makes of planner.json, placement.json and cache_budget.json."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from traffic_tables import table

Figures = dict[str, Any]


def error(said: float, seen: float) -> str:
    """How far a forecast is off."""
    return f"{100 * (said / seen - 1):+.1f} %"


def jobs(result: Figures) -> list[str]:
    """Forecast and run of each stream."""
    rows = []
    for name, job in result["jobs"].items():
        said, seen = job["forecast"], job["observed"]
        rows.append(
            [
                name,
                job["tables"],
                f"{said['bytes'] / 1e3:.2f} / {seen['bytes'] / 1e3:.2f}",
                error(said["bytes"], seen["bytes"]),
                f"{100 * said['hit_rate']:.1f} / {100 * seen['hit_rate']:.1f}",
                f"{said['server_bytes'] / 1e6:.2f} / {seen['server_bytes'] / 1e6:.2f}",
                error(said["server_bytes"], seen["server_bytes"]),
            ]
        )
    head = ["stream", "tables", "kB a worker-step", "off by", "hits, %", "server, MB", "off by"]
    return table(head, [[str(cell) for cell in row] for row in rows])


def cells(result: Figures) -> list[str]:
    """Cells of slow_link within the limit, by model."""
    rows = [
        [
            name,
            str(of["cells"]),
            f"{100 * of['within']:.0f} %",
            f"{100 * of['median']:.0f} %",
            f"{100 * of['worst']:.0f} %",
        ]
        for name, of in result["cells_by_model"].items()
    ]
    every = [abs(cell["forecast"] / cell["observed"] - 1) for cell in result["cells"]]
    within = sum(off <= result["within"]["step"] for off in every) / len(every)
    rows.append(
        [
            "all",
            str(len(every)),
            f"{100 * within:.0f} %",
            f"{100 * statistics.median(every):.0f} %",
            f"{100 * max(every):.0f} %",
        ]
    )
    return table(["cells of", "cells", "within 25 %", "median error", "worst"], rows)


def costs(result: Figures) -> list[str]:
    """What the planner itself takes."""
    profile, show = result["profile"], result["show"]
    return [
        f"A profile reads {profile['samples_a_second']:,.0f} samples a second and core, of 26 ids in memory,"
        f" and its process takes {profile['memory_mb']:.0f} MB at most. `het-plan show` of criteo_like takes"
        f" {show['cpu_seconds']:.1f} s of CPU time, {show['seconds']:.1f} s on two cores."
    ]


def recshard(result: Figures) -> list[str]:
    """RecShard's figures, over the seeds."""
    rows = []
    for method in ("whole", "greedy", "milp"):
        of = [case[method] for case in result["recshard"]]
        slow = [one.get("slow_of_whole", 1.0) for one in of]
        seconds = [one.get("plan_cpu_seconds", 0.0) for one in of]
        rows.append(
            [
                {"whole": "whole tables", "greedy": "greedy", "milp": "MILP"}[method],
                f"{max(one['max_of_mean'] for one in of):.3f}",
                f"{min(slow):.2f} to {max(slow):.2f}",
                f"{max(seconds):.2f}",
            ]
        )
    return table(["", "max/mean load, worst", "slow traffic beside whole tables", "plan, CPU s"], rows)


def placed(result: Figures) -> list[str]:
    """The slowest of four servers, medians over the seeds."""
    rules = list(next(iter(result["placed"].values()))[0])
    rows = []
    for rule in rules:
        cells = [rule]
        for of in result["placed"].values():
            slowest = statistics.median(case[rule]["slowest_ms"] for case in of)
            uneven = statistics.median(case[rule]["max_of_mean"] for case in of)
            cells.append(f"{slowest:.2f} ({uneven:.2f})")
        rows.append(cells)
    return table(["tables lie by", *(f"{batch} samples" for batch in result["placed"])], rows)


def budget(result: Figures) -> list[str]:
    """One budget beside equal rows a table."""
    rows = []
    for run in result["runs"]:
        equal, one = run["equal rows"], run["one budget"]
        rows.append(
            [
                f"{run['stream']}, {100 * run['share']:.0f} %",
                f"{equal['bytes'] / 1e3:.1f}",
                f"{one['bytes'] / 1e3:.1f}",
                f"{100 * run['saved']:.1f} %",
                f"{100 * equal['hit_rate']:.1f} / {100 * one['hit_rate']:.1f}",
            ]
        )
    return table(["stream, cache", "equal rows, kB", "one budget, kB", "saved", "hits, %"], rows)


WRITERS: dict[str, tuple[str, Callable[[Figures], list[str]]]] = {
    "planner jobs": ("planner.json", jobs),
    "planner cells": ("planner.json", cells),
    "planner costs": ("planner.json", costs),
    "placement recshard": ("placement.json", recshard),
    "placement placed": ("placement.json", placed),
    "cache_budget": ("cache_budget.json", budget),
}
