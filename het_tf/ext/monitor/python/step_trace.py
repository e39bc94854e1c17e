"""`het_tf.callbacks.StepTrace`: writes a few training steps as a trace for Perfetto and chrome://tracing."""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from het_tf.ext.monitor.python import calls
from het_tf.ext.monitor.python import spans as measured
from het_tf.ext.monitor.python.spans import Span
from het_tf.python.checks import whole
from het_tf.python.files import local_path
from het_tf.python.session import settings
from het_tf.python.session.native import tf
from het_tf.python.table.layer_state import layers_of
from het_tf.python.table.table import Table

_STEP = "het_tf step"
_ROWS = {
    "step": "steps",
    "lookup": "lookup: rows for the model",
    "update": "update: gradients to rows",
    "workers": "workers: all-reduces and exchanges",
    "input": "input: next batch",
    "compute": "compute: all other ops",
    "pipeline": "tf.data, beside the steps",
}
_COUNTERS = {
    "bytes": ("row_bytes_in", "row_bytes_out", "metadata_bytes_in", "metadata_bytes_out"),
    "rows": ("miss_pull", "update_pull", "bound_push", "age_push", "evict_push"),
    "requests": ("requests",),
}


class StepTrace(tf.keras.callbacks.Callback):
    """Writes a trace of a few training steps (Trace Event Format of Chrome, JSON).

        trace = het_tf.callbacks.StepTrace("trace.json", first=20, steps=5)
        model.fit(..., callbacks=[trace])

    Open the file at https://ui.perfetto.dev or chrome://tracing. Its rows are the steps (Keras' batch begin
    to batch end) and the ops of TensorFlow's profiler: lookups of rows, updates of rows, Horovod's
    collectives (from the moment at which a rank is ready until it has the result, including the wait for
    others), the next batch of the input, all other ops, and tf.data's own threads. Counters beside
    them show the rows, bytes and requests of each step and table with a cache.

    Under each lookup and update are its parts, measured by het_tf's core: "plan", "send", "wait" (for the
    store: server and wire together), "answers" (rows of answers go to the cache), "copy" (rows go to the
    model); for an update "sum", "tick" (the optimizer) and "push" (due updates go into frames); "lock", while
    another call of this process goes first. Gaps between them are the cache's own work, or the table's
    without a cache.

    All times are measured. The profiler itself slows steps down, and first steps (tracing, first rows)
    cost more than later ones. The trace lacks kernels on a GPU: use TensorFlow's profiler for these.

    Args:
      path: The file; it is replaced. With several ranks each writes its own, `trace-rank-R.json`.
      first: Number of the first step to trace, in this `fit`, from 1.
      steps: Number of steps to trace, >= 1. With `steps_per_execution` an execution is one step.

    Attributes:
      steps_traced: For each traced step a dict of milliseconds: "step" (from begin to end), each kind of op
        ("lookup", "update", "workers", "input", "compute": while at least one of that kind runs; kinds
        overlap), "no_op", while no op runs, and "lookup_wait" and "update_wait", while a lookup or update
        waits for the store.

    Raises:
      ValueError: An argument is out of range. When training begins: the file cannot be written.
      RuntimeError: A profiler is running already, such as that of keras.callbacks.TensorBoard.
    """

    def __init__(self, path: Any, first: int = 10, steps: int = 5) -> None:
        super().__init__()
        self._first, self._number = whole("first", first), whole("steps", steps)
        self._path = local_path("path", path)
        self.steps_traced: list[dict[str, float]] = []
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._step: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Checks that the file can be written."""
        self._rank = settings.workers().rank
        self._file = self._path
        if settings.workers().size > 1:
            self._file = self._path.with_name(f"{self._path.stem}-rank-{self._rank}{self._path.suffix}")
        try:
            self._file.open("a").close()
        except OSError as error:
            raise ValueError(
                f"path {str(self._file)!r} of StepTrace cannot be written: {error.strerror}; give a file in "
                "a directory that exists"
            ) from error
        self._tables = {
            table.name: Table(table.name, layer.namespace)
            for layer in layers_of(self.model)
            for table in layer.tables
        }
        self.steps_traced, self._seen = [], 0
        self._counted: list[dict[str, dict[str, int]]] = []
        if self._directory is not None:  # a fit that has failed left the profiler running
            tf.profiler.experimental.stop(save=False)
            self._directory = None
            calls.end(self._namespaces())

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Starts the trace at its first step."""
        self._seen += 1
        if self._seen == self._first:
            directory = tempfile.TemporaryDirectory(prefix="het_tf_trace_")
            try:
                tf.profiler.experimental.start(directory.name)
            except tf.errors.AlreadyExistsError as error:
                raise RuntimeError(
                    "StepTrace cannot begin: a profiler is running already; give "
                    "keras.callbacks.TensorBoard profile_batch=0, or leave StepTrace out"
                ) from error
            self._directory = directory
            self._stamps: list[tuple[int, int]] = []
            calls.begin(self._namespaces())
            self._count()
        if self._directory is not None:
            before = time.time_ns()
            self._step = tf.profiler.experimental.Trace(_STEP, step_num=self._seen, _r=1)
            self._step.__enter__()
            self._stamps.append((before, time.time_ns()))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Ends a step, and after the last one the trace."""
        if self._directory is None:
            return
        self._step.__exit__(None, None, None)
        self._count()
        if self._seen - self._first + 1 >= self._number:
            self._end()

    def on_train_end(self, logs: Any = None) -> None:
        """Ends the trace if `fit` had fewer steps."""
        if self._directory is not None:
            self._end()

    def _namespaces(self) -> list[str]:
        return sorted({table.namespace for table in self._tables.values()})

    def _count(self) -> None:
        """Reads the counters of the caches, outside of any step."""
        of_tables = {name: table.stats().get("cache", {}) for name, table in self._tables.items()}
        self._counted.append({name: counters for name, counters in of_tables.items() if counters})

    def _end(self) -> None:
        assert self._directory is not None
        entries, left_out = calls.end(self._namespaces())
        tf.profiler.experimental.stop()
        with self._directory as directory:
            spans = measured.read(Path(directory), _STEP)
        self._directory = None
        steps = [span for span in spans if span.kind == "step"]
        parts = calls.parts(spans, entries, *calls.origin(self._stamps, steps))
        self.steps_traced = [_times(spans, parts, step) for step in steps]
        begin = min((span.begin for span in spans), default=0.0)
        process = {
            "ph": "M",
            "pid": self._rank,
            "name": "process_name",
            "args": {"name": f"rank {self._rank}"},
        }
        events = [process, *self._events(spans, parts, begin), *self._counters(steps, begin)]
        trace = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"parts_left_out": left_out}}
        with self._file.open("w") as file:
            json.dump(trace, file)

    def _events(self, spans: list[Span], parts: dict[Span, list[Span]], begin: float) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        for row, (kind, title) in enumerate(_ROWS.items()):
            used = set()
            for lane, span in measured.lanes(one for one in spans if one.kind == kind):
                where = {"pid": self._rank, "tid": 1000 * row + lane}
                # Viewers draw events inside an op of the same row under it.
                for cat, one in ((kind, span), *(("part", part) for part in parts.get(span, ()))):
                    times = {"ts": one.begin - begin, "dur": one.end - one.begin}
                    events.append({"ph": "X", "name": one.name, "cat": cat, **where, **times})
                used.add(lane)
            for lane in sorted(used):
                where = {"pid": self._rank, "tid": 1000 * row + lane}
                events.append({"ph": "M", "name": "thread_name", "args": {"name": title}, **where})
                order = {"sort_index": 1000 * row + lane}
                events.append({"ph": "M", "name": "thread_sort_index", "args": order, **where})
        return events

    def _counters(self, steps: list[Span], begin: float) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        for step, before, after in zip(steps, self._counted, self._counted[1:], strict=False):
            for table in after:
                for title, names in _COUNTERS.items():
                    grown = {name: after[table][name] - before[table][name] for name in names}
                    where = {"pid": self._rank, "name": f"{table}: {title} of the step"}
                    events.append({"ph": "C", "ts": step.begin - begin, "args": grown, **where})
                    zeros = dict.fromkeys(names, 0)
                    events.append({"ph": "C", "ts": step.end - begin, "args": zeros, **where})
        return events


def _times(spans: list[Span], parts: dict[Span, list[Span]], step: Span) -> dict[str, float]:
    """Returns the milliseconds of one step."""
    ops = [span for span in spans if span.kind not in ("step", "pipeline")]
    inside = [span for span in ops if span.end > step.begin and span.begin < step.end]
    found = {"step": step.end - step.begin}
    for kind, _ in measured.KINDS:
        of_kind = [span for span in inside if span.kind == kind]
        found[kind] = measured.covered(of_kind, step.begin, step.end)
    found["no_op"] = found["step"] - measured.covered(inside, step.begin, step.end)
    for kind in calls.CALLS:
        waits = [
            part for op, of_op in parts.items() for part in of_op if op.kind == kind and part.kind == "wait"
        ]
        waits.sort(key=lambda span: span.begin)
        found[f"{kind}_wait"] = measured.covered(waits, step.begin, step.end)
    return {name: microseconds / 1e3 for name, microseconds in found.items()}
