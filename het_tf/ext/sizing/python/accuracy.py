"""The cost of staleness in AUC, from accuracy.json, which holds results of benchmarks/accuracy."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from het_tf.python.table import optimizers

_FILE = Path(__file__).with_name("accuracy.json")
_STALENESS = 30  # the default's


def bound_of(cache: Mapping[str, Any]) -> str:
    """Returns the key in accuracy.json for the bounds of these arguments of `het_tf.Cache`."""
    staleness = cache.get("staleness", _STALENESS)
    return "0" if staleness in (0, "synchronous") else "unbounded" if staleness is None else str(staleness)


def cost(
    cache: Mapping[str, Any], optimizer: Mapping[str, Any], workers: int, batch: int, planned: bool
) -> dict[str, dict[str, Any]]:
    """Returns what was measured, of each kind of stream the case that is nearest to a job.

    Args:
      cache: Arguments of `het_tf.Cache`.
      optimizer: The tables', {"name": ..., "params": ...}.
      workers: How many.
      batch: Samples of a worker's step.
      planned: Whether lookups are planned.

    Returns:
      {stream: {"auc": AUC minus that of exact training, "half": half of its 95 % interval, "workers",
      "batch", "part", "seeds"}}; of exact training {"any": zeros}; {}: these bounds were not measured with
      this optimizer. Streams: "clicks", Criteo-like; "rare", pairs with a long tail of rare rows.
    """
    bound = bound_of(cache)
    if bound == "0":
        exact = {"auc": 0.0, "half": 0.0, "workers": workers, "batch": batch, "part": "exact", "seeds": 0}
        return {"any": exact}
    found: dict[str, dict[str, Any]] = {}
    far: dict[str, tuple[bool, float]] = {}
    for case in json.loads(_FILE.read_text()):
        if case["bound"] != bound or _rule(case["optimizer"]) != _rule(optimizer):
            continue
        distance = abs(math.log(case["batch"] / batch)) + abs(math.log(case["workers"] / workers))
        key, stream = (case["planned"] != planned, distance), case["stream"]
        if stream not in far or key < far[stream]:
            far[stream], found[stream] = key, case
    return found


def _rule(optimizer: Mapping[str, Any]) -> tuple[str, float | None]:
    """What decides an optimizer's bounds: its name, and the ticks after which steps shrink."""
    own = optimizers.get(str(optimizer["name"])).arguments
    given = {name: value for name, value in (optimizer.get("params") or {}).items() if value is not None}
    return str(optimizer["name"]), {**own, **given}.get("decay_steps")
