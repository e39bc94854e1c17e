"""The cost of staleness in AUC, from accuracy.json, which holds results of benchmarks/accuracy."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("accuracy.json")
_STALENESS = 30  # the default's


def bound_of(cache: Mapping[str, Any]) -> str:
    """Returns the key in accuracy.json for the bounds of these arguments of `het_tf.Cache`."""
    staleness = cache.get("staleness", _STALENESS)
    if "pull_bound" in cache or "push_bound" in cache:
        pull, push = (cache.get(name, staleness) for name in ("pull_bound", "push_bound"))
        return "0" if pull == push == 0 else f"{pull}/{push}"
    return "0" if staleness in (0, "synchronous") else "unbounded" if staleness is None else str(staleness)


def cost(
    cache: Mapping[str, Any], optimizer: str, workers: int, batch: int, planned: bool
) -> dict[str, Any] | None:
    """Returns the measured case that is nearest to a job.

    Returns:
      {"auc": AUC minus that of exact training, "half": half of its 95 % interval, "workers", "batch", "part",
      "seeds"}; zeros for exact training; None: these bounds were not measured with this optimizer.
    """
    bound = bound_of(cache)
    if bound == "0":
        return {"auc": 0.0, "half": 0.0, "workers": workers, "batch": batch, "part": "exact", "seeds": 0}
    cases = [
        case
        for case in json.loads(_FILE.read_text())
        if (case["bound"], case["optimizer"]) == (bound, optimizer)
    ]
    if not cases:
        return None
    return dict(
        min(
            cases,
            key=lambda case: (
                case["planned"] != planned,
                abs(math.log(case["batch"] / batch)) + abs(math.log(case["workers"] / workers)),
            ),
        )
    )
