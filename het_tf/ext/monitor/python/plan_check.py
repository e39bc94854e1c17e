"""`het_tf.callbacks.PlanCheck`: compares the forecast of het plan with the run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from het_tf.ext.monitor.python.log_dir import Scalars, made
from het_tf.ext.ps.python import plan_file
from het_tf.python.backend import keras
from het_tf.python.checks import whole
from het_tf.python.show import number, say
from het_tf.python.table.layer_state import layers_of
from het_tf.python.table.table import Table

_WITHIN = 0.1
_ROWS = ("miss_pull", "update_pull", "bound_push", "evict_push")
_BYTES = ("row_bytes_in", "row_bytes_out", "metadata_bytes_in", "metadata_bytes_out")
_COUNTED = ("reads", "hits", *_ROWS, *_BYTES)


def compare(
    plan: Mapping[str, Any], counters: Mapping[str, Mapping[str, float]], steps: int
) -> list[tuple[str, float, float]]:
    """Returns lines of (name, forecast, observed) for a step of this worker.

    Args:
      plan: plan.json.
      counters: Growth of the counters of `Table.stats()["cache"]` over the steps, by table.
      steps: Number of steps.

    Raises:
      ValueError: The plan lacks a table.
    """
    known = {table["name"]: table["forecast"] for table in plan["tables"]}
    for name in counters:
        if name not in known:
            raise ValueError(
                f"the plan has no table {name!r}; its tables are {', '.join(known)}: profile again"
            )
    of_all = {field: sum(of[field] for of in counters.values()) for field in _COUNTED}
    found = [
        ("bytes", plan["forecast"]["bytes"], sum(of_all[field] for field in _BYTES) / steps),
        ("hit rate", plan["forecast"]["hit_rate"], of_all["hits"] / max(1, of_all["reads"])),
    ]
    for name, of in counters.items():
        found.append((f"{name}: unique ids", known[name]["uses"], of["reads"] / steps))
        found += [(f"{name}: {field}", known[name][field], of[field] / steps) for field in _ROWS]
    return found


class PlanCheck(keras.callbacks.Callback):
    """Prints, after some steps of a fit, the plan's forecast beside the observations of this worker.

        model.fit(..., callbacks=[het_tf.callbacks.PlanCheck("plan.json")])

    It counts the second half of the steps, when caches are full: bytes and hit rate, and for each table the
    unique ids of a batch and the rows of each class. It marks lines that are off by more than a tenth, if
    they are at least a hundredth of all rows.

    Args:
      plan: Path of plan.json from `het plan show --plan`.
      steps: Number of steps before it compares; >= 2.
      log_dir: TensorBoard's directory for plan/NAME/forecast and plan/NAME/observed of each line. None: none.

    Attributes:
      lines: (name, forecast, observed) of each line, once printed.

    Raises:
      ValueError: An argument is out of range; the file is not a plan, or of another version. When it
        compares: the plan lacks a table of the model.
    """

    def __init__(self, plan: str | os.PathLike[str], steps: int = 1000, log_dir: Any = None) -> None:
        super().__init__()
        self.steps = whole("steps", steps, 2)
        self.plan = plan_file.read(plan)
        self.lines: list[tuple[str, float, float]] = []
        self._scalars = None if log_dir is None else Scalars(made(log_dir, "PlanCheck"))
        self._step = 0
        self._before: dict[str, dict[str, float]] = {}

    def _counters(self) -> dict[str, dict[str, float]]:
        """Returns the counters of every cached table of the model."""
        tables = [
            Table(table.name, layer.namespace) for layer in layers_of(self.model) for table in layer.tables
        ]
        found = {table.name: table.stats().get("cache") for table in tables}
        return {name: {field: of[field] for field in _COUNTED} for name, of in found.items() if of}

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts, and compares once."""
        self._step += 1
        if self._step == self.steps // 2:
            self._before = self._counters()
        if self._step != self.steps:
            return
        grown = {
            name: {field: of[field] - self._before.get(name, {}).get(field, 0) for field in _COUNTED}
            for name, of in self._counters().items()
        }
        self.lines = compare(self.plan, grown, self.steps - self.steps // 2)
        say("\n".join(text(self.lines)))
        if self._scalars is not None:
            for name, forecast, observed in self.lines:
                self._scalars.write(
                    self._step, {f"plan/{name}/forecast": forecast, f"plan/{name}/observed": observed}
                )
            self._scalars.close()


def text(lines: list[tuple[str, float, float]]) -> list[str]:
    """Formats the lines for people in 80 columns; marks those that are off, and names them at the end."""
    least = sum(forecast for name, forecast, _ in lines if name.endswith("_pull")) / 100
    found = [f"{'a step of this worker':<40}{'forecast':>12}{'observed':>12}{'ratio':>9}"]
    off = []
    for name, forecast, observed in lines:
        ratio = observed / forecast if forecast else float("inf") if observed else 1.0
        matters = max(forecast, observed) >= least or name == "hit rate"
        mark = "  *" if matters and abs(ratio - 1) > _WITHIN else ""
        off += [name] if mark else []
        shown = [f"{value:.3f}" if name == "hit rate" else number(value) for value in (forecast, observed)]
        found.append(f"{name[:40]:<40}{shown[0]:>12}{shown[1]:>12}{ratio:>9.2f}{mark}")
    found.append(f"off by more than a tenth: {', '.join(off)}" if off else "all lines within a tenth")
    return found
