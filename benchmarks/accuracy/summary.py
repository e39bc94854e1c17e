"""What runs of accuracy come to: differences of AUC to the first run, with intervals, and the goals."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from benchmarks.report import goal

Figures = dict[str, Any]

# Quantiles 0.975 of Student's t, by degrees of freedom from 1 on.
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145)
WITHIN = 0.0005


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns mean and half-width of the 95 % interval of the mean, by Student's t; NaN for one value."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return mean, math.nan
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return mean, T[count - 2] * math.sqrt(variance / count)


def differences(groups: list[Figures], number: int, what: str = "auc") -> list[float]:
    """Returns, seed by seed, the mean difference of run `number` to the first, whose AUC is after its flush.

    One seed's groups, a model and a number of workers each, share its rows, so seeds are what is drawn
    independently, and not groups.
    """
    by_seed: dict[int, list[float]] = {}
    for group in groups:
        runs = group["runs"]
        by_seed.setdefault(group["seed"], []).append(runs[number][what] - runs[0]["auc"])
    return [math.fsum(of) / len(of) for of in by_seed.values()]


def core_name(optimizer: str) -> str:
    """Returns what the core calls an optimizer: row_wise_adagrad for RowWiseAdagrad, sgd for SGD."""
    return optimizer.lower() if optimizer.isupper() else re.sub(r"(?<!^)(?=[A-Z])", "_", optimizer).lower()


def name_of(run: Figures) -> str:
    """Returns what a run is called."""
    bound = run["bound"] if run["bound"] == "unbounded" or "/" in run["bound"] else f"s={run['bound']}"
    words = [bound, "" if run["wire"] == "float32" else run["wire"]]
    words += [f"placed by {run['placed']}" if run["placed"] else "", "planned" if run.get("planned") else ""]
    words += ["on demand" if run.get("on_demand") else ""]
    stored = run.get("stored", "float32")
    return ", ".join(filter(None, [*words, "" if stored == "float32" else f"stored as {stored}"]))


def summary(parts: dict[str, Figures]) -> list[Figures]:
    """Returns a record for each part, model ("all": the mean of them) and run but the first.

    `auc` is the mean difference to the first run, `half` half its interval; `first` is the first run's AUC.
    """
    found = []
    for name, part in parts.items():
        settings, groups = part["settings"], part["groups"]
        for model in (*dict.fromkeys(group["model"] for group in groups), "all"):
            of = [group for group in groups if model in (group["model"], "all")]
            for number, run in enumerate(groups[0]["runs"][1:], 1):
                mean, half = interval(differences(of, number))
                one = {"part": name, "model": model, "run": name_of(run)}
                one |= {"workers": of[0]["workers"], "batch": settings["of_step"], "seeds": settings["seeds"]}
                one["optimizer"] = {"name": core_name(settings["optimizer"])}
                if settings.get("decay_steps") is not None:
                    one["optimizer"]["params"] = {"decay_steps": settings["decay_steps"]}
                one["stream"] = "rare" if settings["data"] in ("packages", "maintainers") else "clicks"
                one |= {key: bool(run.get(key)) for key in ("planned", "on_demand")}
                one |= {"bound": run["bound"], "wire": run["wire"], "placed": run["placed"]}
                one["stored"] = run.get("stored", "float32")
                one["first"] = math.fsum(group["runs"][0]["auc"] for group in of) / len(of)
                one |= {"auc": round(mean, 6), "half": None if math.isnan(half) else round(half, 6)}
                if settings["before_flush"]:
                    one["before_flush"] = math.fsum(differences(of, number, "auc_before_flush")) / len(
                        differences(of, number)
                    )
                found.append(one)
    return found


def goals(records: list[Figures]) -> list[Figures]:
    """Returns what is judged of the means of all models: all of an interval is within a thousandth's half.

    Unbounded runs must be visibly worse: else the data would show nothing.
    """
    found = []
    for one in records:
        if one["model"] != "all" or one["part"] == "accumulator" or one["half"] is None:
            continue  # `accumulator` shows what such an optimizer hides
        low, high = one["auc"] - one["half"], one["auc"] + one["half"]
        if one["bound"] == "unbounded":
            found.append(goal(f"{one['part']}: AUC lost at {one['run']}, least", -high, ">=", WITHIN))
        elif "/" not in one["bound"]:
            most = max(abs(low), abs(high))
            found.append(goal(f"{one['part']}: AUC off at {one['run']}, most", most, "<=", WITHIN))
    return found
