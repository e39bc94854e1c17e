"""Events of TensorFlow's profiler, sorted by their purpose in a training step.

The profiler writes events of threads (XSpace, tsl/profiler/protobuf/xplane.proto). An op that computes has
one event, NAME:TYPE. An op that waits, such as an all-reduce, has one event at its start and one at its end,
with a common number.
"""

import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

# Kinds of ops, by the first expression that matches the beginning of an op's type.
KINDS = [
    ("lookup", re.compile("HetLookup")),
    ("input", re.compile("Iterator")),
    ("workers", re.compile("Horovod|HetReduce|HetGather|HetExchange")),
    ("update", re.compile("Het")),
    ("compute", re.compile("")),
]
_OP = re.compile(r"[^ ]*[^ :]:(\w+)")
_BEGUN, _DONE = "ExecutorState::ProcessAsync::Start", "ExecutorState::ProcessAsync::Done"


class Span(NamedTuple):
    """A measured event: microseconds since the profiler began."""

    kind: str  # of KINDS; "pipeline": an op of tf.data, on its own threads; "step"
    name: str
    begin: float
    end: float


def read(directory: Path, step: str) -> list[Span]:
    """Returns all ops and steps of a profile, ordered by begin.

    Args:
      directory: The profiler's directory; its newest file is read.
      step: Name of the events that are steps.

    Raises:
      RuntimeError: The profiler has not written a file, or this TensorFlow cannot read it.
    """
    files = sorted(directory.glob("**/*.xplane.pb"))
    if not files:
        raise RuntimeError("TensorFlow's profiler has written no file; is another one running?")
    try:
        xplane = importlib.import_module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    except ImportError as error:
        raise RuntimeError(f"this TensorFlow has no reader of its profiler's files: {error}") from error
    space = xplane.XSpace.FromString(files[-1].read_bytes())
    spans: list[Span] = []
    for plane in space.planes:
        if plane.name.startswith("/host:CPU"):
            spans += _of_plane(plane, step)
    return sorted(spans, key=lambda span: span.begin)


def _of_plane(plane: Any, step: str) -> Iterator[Span]:
    begun: dict[int, tuple[str, str, float]] = {}
    done: dict[int, float] = {}
    for line in plane.lines:
        pipeline = line.name.startswith("tf_data")
        for event in line.events:
            name = plane.event_metadata[event.metadata_id].name
            begin = line.timestamp_ns / 1e3 + event.offset_ps / 1e6
            if name in (_BEGUN, _DONE):
                about = dict(_stats(plane, event))
                if name == _BEGUN and "_p" in about:
                    begun[about["_p"]] = (about.get("name", ""), about.get("kernel_type", ""), begin)
                elif name == _DONE and "_c" in about:
                    done[about["_c"]] = begin
                continue
            op = _OP.fullmatch(name)
            if name == step:
                yield Span("step", name, begin, begin + event.duration_ps / 1e6)
            elif op and "::" not in name:
                kind = "pipeline" if pipeline else kind_of(op[1])
                yield Span(kind, name, begin, begin + event.duration_ps / 1e6)
    for number, (name, type_of_op, begin) in begun.items():
        if number in done:
            yield Span(kind_of(type_of_op), f"{name}:{type_of_op}", begin, done[number])


def _stats(plane: Any, event: Any) -> Iterator[tuple[str, Any]]:
    for stat in event.stats:
        kind = stat.WhichOneof("value")
        value = getattr(stat, kind) if kind else None
        if kind == "ref_value":
            value = plane.stat_metadata[value].name
        yield plane.stat_metadata[stat.metadata_id].name, value


def kind_of(type_of_op: str) -> str:
    """Returns the purpose of an op of a type in a step."""
    return next(kind for kind, pattern in KINDS if pattern.match(type_of_op))


def lanes(spans: Iterable[Span]) -> Iterator[tuple[int, Span]]:
    """Yields spans, ordered by begin, each with a lane in which spans do not overlap."""
    ends: list[float] = []
    for span in spans:
        free = next((lane for lane, end in enumerate(ends) if end <= span.begin), len(ends))
        if free == len(ends):
            ends.append(0.0)
        ends[free] = span.end
        yield free, span


def covered(spans: Iterable[Span], begin: float, end: float) -> float:
    """Microseconds between `begin` and `end` in which at least one span runs; spans ordered by begin."""
    total, reached = 0.0, begin
    for span in spans:
        first, last = max(span.begin, reached), min(span.end, end)
        if last > first:
            total, reached = total + last - first, last
    return total
