"""The core's measurements of its calls (het_tf/core/base/trace_log.h), as parts of the ops that made them.

The core and the profiler share a clock, but the profiler counts from its own begin, which not every
TensorFlow records. So the clock is read before and after the begin of each step, which is an event of the
profiler: this gives the profiler's begin to some microseconds. Parts are cut off at the end of their op.
"""

import json
from collections.abc import Iterable, Sequence

from het_tf.ext.monitor.python.spans import Span
from het_tf.python.session import native

CALLS = ("lookup", "update")
Entry = tuple[str, int, int, int]  # kind, thread, begin and end in nanoseconds


def begin(namespaces: Iterable[str]) -> None:
    """Starts logging of the core's calls."""
    for namespace in namespaces:
        native.call("HetTraceBegin", namespace)


def end(namespaces: Iterable[str]) -> tuple[list[Entry], int]:
    """Stops logging. Returns the entries, and the number of dropped ones."""
    entries: list[Entry] = []
    left_out = 0
    for namespace in namespaces:
        found = json.loads(native.call("HetTraceEnd", namespace))
        entries += [tuple(entry) for entry in found["entries"]]
        left_out += found["left_out"]
    return entries, left_out


def origin(stamps: Sequence[tuple[int, int]], steps: Sequence[Span]) -> tuple[int, int]:
    """Returns the profiler's begin in nanoseconds of the core's clock, and by how much it may be wrong.

    Args:
      stamps: The clock before and after the begin of each step.
      steps: The events of the same steps.
    """
    pairs = list(zip(stamps, (round(step.begin * 1e3) for step in steps), strict=False))
    first = max((before - begins for (before, _), begins in pairs), default=0)
    last = min((after - begins for (_, after), begins in pairs), default=0)
    return (first + last) // 2, abs(last - first) // 2


def parts(ops: Iterable[Span], entries: Sequence[Entry], since: int, error: int) -> dict[Span, list[Span]]:
    """Returns the parts of each op that called the core, ordered by begin.

    Args:
      ops: Ops from the profiler; only the kinds CALLS count.
      entries: The log of the core.
      since: The profiler's begin in nanoseconds of the core's clock.
      error: By how much that may be wrong: on a busy machine by more than a short op takes.
    """
    calling = [op for op in ops if op.kind in CALLS]
    found: dict[Span, list[Span]] = {}
    for kind, thread, first, last in entries:
        begins, ends = (first - since) / 1e3, (last - since) / 1e3
        meets = [
            op
            for op in calling
            if op.kind == kind and op.begin < ends + error / 1e3 and begins - error / 1e3 < op.end
        ]
        if not meets:
            continue
        # Calls of several ops may run at once: each op begins and ends with its own call.
        op = min(meets, key=lambda one: abs(one.begin - begins) + abs(one.end - ends))
        for part, of_thread, from_, to in entries:
            if part not in CALLS and of_thread == thread and first <= from_ and to <= last:
                cut = [min(max((at - since) / 1e3, op.begin), op.end) for at in (from_, to)]
                found.setdefault(op, []).append(Span(part, part, *cut))
    return {op: sorted(of_op, key=lambda one: one.begin) for op, of_op in found.items()}
