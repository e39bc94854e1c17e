"""The tables that update_docs.py makes of benchmarks/results/accuracy.json, and the goals judged there."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from traffic_tables import table

Figures = dict[str, Any]

# Quantiles 0.975 of Student's t, by degrees of freedom from 1 on.
T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
)  # fmt: skip
OPTIMIZERS = ("Adagrad", "SGD", "FTRL", "Adam")
"""Parts that are named by the optimizer of their tables."""
PLANNED_BY = ("criteo_like", "thousand", "many", "planned", *OPTIMIZERS)
"""Parts that het-plan quotes: clicks, one pass, the optimizers' default rates."""
WITHIN = 0.0005
FIGURE = Path(__file__).resolve().parent.parent / "docs/img/accuracy.png"
NAMES = {"wide_deep": "Wide & Deep", "deepfm": "DeepFM", "dcn": "DCN-v2"}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns mean and half-width of the 95 % interval of the mean, by Student's t; NaN for one value."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return mean, math.nan
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return mean, T[count - 2] * math.sqrt(variance / count)


def differences(part: Figures, number: int, what: str = "auc", **wanted: Any) -> list[float]:
    """Returns, seed by seed, the mean difference of run `number` to the first, over the groups wanted.

    What is compared with is the first run's AUC after its flush. A group is a model and a number of workers:
    one seed's groups share its rows, so seeds are what is drawn independently, and not groups.
    """
    by_seed: dict[int, list[float]] = {}
    for group in part["groups"]:
        if all(group[name] == value for name, value in wanted.items()):
            runs = group["runs"]
            by_seed.setdefault(group["seed"], []).append(runs[number][what] - runs[0]["auc"])
    return [math.fsum(of) / len(of) for of in by_seed.values()]


def core_name(optimizer: str) -> str:
    """Returns what the core calls an optimizer: row_wise_adagrad for RowWiseAdagrad, sgd for SGD."""
    return optimizer.lower() if optimizer.isupper() else re.sub(r"(?<!^)(?=[A-Z])", "_", optimizer).lower()


def points(result: Figures) -> list[Figures]:
    """What het-plan says of accuracy (planner/accuracy.json): one entry a part and run that is not placed."""
    found = []
    for name, part in result["parts"].items():
        settings = part["settings"]
        if name not in PLANNED_BY:
            continue
        for number, run in enumerate(settings["runs"][1:], 1):
            if run["placed"] or run.get("on_demand"):
                continue
            mean, half = interval(differences(part, number))
            found.append(
                {
                    "part": name,
                    "workers": settings["workers"][0],
                    "batch": settings["of_step"],
                    "optimizer": core_name(settings["optimizer"]),
                    "bound": run["bound"],
                    "planned": run.get("planned", False),
                    "auc": round(mean, 6),
                    "half": round(half, 6),
                    "seeds": settings["seeds"],
                }
            )
    return found


def kinds(part: Figures) -> list[tuple[str, int]]:
    """Returns the part's models and numbers of workers."""
    return list(dict.fromkeys((group["model"], group["workers"]) for group in part["groups"]))


def name_of(run: Figures) -> str:
    """Returns what a run is called in a table's head."""
    bound = run["bound"] if run["bound"] == "unbounded" or "/" in run["bound"] else f"s={run['bound']}"
    wire = "" if run["wire"] == "float32" else f", {run['wire']}"
    placed = f", placed by {run['placed']}" if run["placed"] else ""
    return (
        bound
        + wire
        + placed
        + (", planned" if run.get("planned") else "")
        + (", on demand" if run.get("on_demand") else "")
    )


def show(values: Sequence[float]) -> str:
    """Returns mean and interval of differences, as a cell."""
    mean, half = interval(values)
    return f"{mean:+.4f} ± {half:.4f}"


def part_table(part: Figures) -> list[str]:
    """Returns the table of one part: AUC of its first run, and the others' differences to it."""
    runs = part["groups"][0]["runs"]
    head = ["model", "workers", f"AUC, {name_of(runs[0])}", *(name_of(run) for run in runs[1:])]
    rows = []
    for model, workers in kinds(part):
        of = {"model": model, "workers": workers}
        groups = [group for group in part["groups"] if all(group[name] == of[name] for name in of)]
        mean = math.fsum(group["runs"][0]["auc"] for group in groups) / len(groups)
        cells = []
        for number in range(1, len(runs)):
            unfelt = all(group["runs"][number]["unfelt"] for group in groups)
            cells.append("as unbounded" if unfelt else show(differences(part, number, **of)))
        rows.append([NAMES[model], str(workers), f"{mean:.4f}", *cells])
    if len(rows) > 1:
        pooled = [show(differences(part, number)) for number in range(1, len(runs))]
        rows.append(["mean of all", "", "", *pooled])
    return [*table(head, rows), "", " ".join(notes(part))]


def rate_of(settings: Figures) -> str:
    """Returns what a part says of its tables' optimizer; nothing for the models' own."""
    rate, begin = settings["learning_rate"], settings["accumulator"]
    if rate is None:
        return ""
    return f"learning rate {rate:g}, " + ("" if begin is None else f"initial_accumulator={begin:g}, ")


def notes(part: Figures) -> list[str]:
    """Returns the sentences below a part's table."""
    settings, first = part["settings"], part["groups"][0]
    share = f"{100 * settings['cache']:g} %" if settings["cache"] < 1 else "all"
    lines = [
        f"{settings['seeds']} seeds, {first['runs'][0]['steps']:,} steps of {settings['of_step']} samples, "
        f"{rate_of(settings)}{first['test_rows']:,} test rows, a cache of {share} "
        "of the rows."
    ]
    oracles = [group["oracle_auc"] for group in part["groups"] if group["oracle_auc"] is not None]
    if oracles:
        lines.append(f"A perfect model scores {math.fsum(oracles) / len(oracles):.4f}.")
    errors = [run["test_error"] for group in part["groups"] for run in group["runs"] if run["bound"] == "30"]
    if errors:
        lines.append(
            f"Standard error of a difference at s=30 by the test rows alone: {max(errors):.5f} at most."
        )
    return lines


def flush_table(parts: dict[str, Figures]) -> list[str]:
    """Returns the mean differences before and after the flush."""
    of = {name: part for name, part in parts.items() if part["settings"]["before_flush"]}
    if not of:
        return []
    heads = list(dict.fromkeys(name_of(run) for part in of.values() for run in part["groups"][0]["runs"][1:]))
    rows = []
    for name, part in of.items():
        names = [name_of(run) for run in part["groups"][0]["runs"]]
        for when, what in (("before", "auc_before_flush"), ("after", "auc")):
            means = {
                head: interval(differences(part, at, what))[0] for at, head in enumerate(names) if at > 0
            }
            rows.append([name, when, *(f"{means[head]:+.4f}" if head in means else "" for head in heads)])
    return table(["", "flush", *heads], rows, 2)


def goals(result: Figures) -> list[Figures]:
    """Returns what is judged: {goal, met, measured}."""
    entries: list[Figures] = []
    for name, part in result["parts"].items():
        if name == "accumulator":
            continue  # it shows what such an optimizer hides
        for at, run in enumerate(part["groups"][0]["runs"]):
            mean, half = interval(differences(part, at))
            low, high = mean - half, mean + half
            worst = min(interval(differences(part, at, model=m, workers=n))[0] for m, n in kinds(part))
            if run["bound"] == "unbounded":
                goal, met = f"visibly worse (by more than {WITHIN}, all of the interval)", high < -WITHIN
            elif at > 0 and "/" not in run["bound"]:
                goal, met = f"within {WITHIN}, models together", -WITHIN <= low and high <= WITHIN
            else:
                continue
            entries.append(
                {
                    "goal": f"{name}: AUC at {name_of(run)} less that at s=0 {goal}",
                    "met": met,
                    "measured": f"{low:+.5f} to {high:+.5f}; worst model {worst:+.5f}",
                }
            )
    return entries


def goals_table(result: Figures) -> list[str]:
    """Returns the goals as a table, and the figure below it where there is one."""
    rows = [["met" if g["met"] else "**missed**", g["goal"], g["measured"]] for g in goals(result)]
    figure = ["", "![AUC less that at s=0, by bound](img/accuracy.png)"] if FIGURE.exists() else []
    return [*table(["", "goal", "95 % interval"], rows, 2), *figure]


def writer(name: str) -> Callable[[Figures], list[str]]:
    """Returns what writes the table of a part."""

    def write(result: Figures) -> list[str]:
        part = result["parts"].get(name)
        return ["Not measured yet."] if part is None else part_table(part)

    return write


def optimizers_table(result: Figures) -> list[str]:
    """Returns the parts that differ in the tables' optimizer, a row each."""
    parts = [part for name, part in result["parts"].items() if name in OPTIMIZERS]
    if not parts:
        return ["Not measured yet."]
    runs = parts[0]["groups"][0]["runs"]
    head = ["optimizer", "rate", f"AUC, {name_of(runs[0])}", *(name_of(run) for run in runs[1:])]
    rows = []
    for part in parts:
        settings, groups = part["settings"], part["groups"]
        mean = math.fsum(group["runs"][0]["auc"] for group in groups) / len(groups)
        cells = [show(differences(part, number)) for number in range(1, len(runs))]
        rows.append([settings["optimizer"], f"{settings['learning_rate']:g}", f"{mean:.4f}", *cells])
    return table(head, rows)


WRITERS: dict[str, Callable[[Figures], list[str]]] = {
    "goals": goals_table,
    **{
        name: writer(name)
        for name in (
            "criteo_like",
            "planned",
            "on_demand",
            "thousand",
            "many",
            "long",
            "census",
            "movielens",
            "accumulator",
        )
    },
    "optimizers": optimizers_table,
    "flush": lambda result: flush_table(result["parts"]),
}
