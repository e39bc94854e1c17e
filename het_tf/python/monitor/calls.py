"""What the core measures of its own calls (het_tf/core/base/trace_log.h), as parts of the ops that made them.

The core's clock is the profiler's, but the profiler counts from its own begin, which not every TensorFlow
writes down. So the clock is read before and after the begin of each step, of which the profiler has an event:
where it began is known to some microseconds, and parts are cut off where their op ends.
"""

import json
from collections.abc import Iterable, Sequence

from het_tf.python.monitor.spans import Span
from het_tf.python.session import native

CALLS = ("lookup", "update")
Entry = tuple[str, int, int, int]  # kind, thread, begin and end in nanoseconds


def begin(namespaces: Iterable[str]) -> None:
    """The core logs its calls from here on."""
    for namespace in namespaces:
        native.call("HetTraceBegin", namespace)


def end(namespaces: Iterable[str]) -> tuple[list[Entry], int]:
    """It stops. Returns what it has logged, and how many entries it had no room for."""
    entries: list[Entry] = []
    left_out = 0
    for namespace in namespaces:
        found = json.loads(native.call("HetTraceEnd", namespace))
        entries += [tuple(entry) for entry in found["entries"]]
        left_out += found["left_out"]
    return entries, left_out


def origin(stamps: Sequence[tuple[int, int]], steps: Sequence[Span]) -> int:
    """When the profiler began, in nanoseconds of the core's clock.

    Args:
      stamps: The clock before and after the begin of each step.
      steps: The events of the same steps.
    """
    pairs = list(zip(stamps, (round(step.begin * 1e3) for step in steps), strict=False))
    first = max((before - begins for (before, _), begins in pairs), default=0)
    last = min((after - begins for (_, after), begins in pairs), default=0)
    return (first + last) // 2


def parts(ops: Iterable[Span], entries: Sequence[Entry], since: int) -> dict[Span, list[Span]]:
    """The parts of each op that made a call of the core, by their begin.

    Args:
      ops: What the profiler has measured; those of the kinds CALLS count.
      entries: What the core has logged.
      since: When the profiler began, in nanoseconds of the core's clock.
    """
    calling = [op for op in ops if op.kind in CALLS]
    found: dict[Span, list[Span]] = {}
    for kind, thread, first, last in entries:
        begins, ends = (first - since) / 1e3, (last - since) / 1e3
        meets = [op for op in calling if op.begin < ends and begins < op.end]
        if kind not in CALLS or not meets:
            continue
        # Calls of several ops may run at once: each op begins and ends with its own.
        op = min(meets, key=lambda one: abs(one.begin - begins) + abs(one.end - ends))
        for part, of_thread, from_, to in entries:
            if part not in CALLS and of_thread == thread and first <= from_ and to <= last:
                cut = [min(max((at - since) / 1e3, op.begin), op.end) for at in (from_, to)]
                found.setdefault(op, []).append(Span(part, part, *cut))
    return {op: sorted(of_op, key=lambda one: one.begin) for op, of_op in found.items()}
