"""StepTrace: measured spans of steps, in a file that Perfetto opens."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict

import pytest
import rules_lib
import tensorflow as tf

import het_tf
from het_tf.ext.monitor.python import calls
from het_tf.ext.monitor.python.spans import Span, covered, kind_of, lanes

keras = tf.keras
StepTrace = het_tf.callbacks.StepTrace


def fit(callbacks, steps=8, distributed=False):
    ids, y = rules_lib.data(8 * steps)
    inputs = keras.Input((3,), dtype="int64")
    x = rules_lib.embedding(cache=het_tf.Cache(rows=4, staleness=2))(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(x)))
    model.compile("sgd", "mse")
    model = het_tf.workers.distribute(model) if distributed else model
    model.fit(ids, y, batch_size=8, verbose=0, shuffle=False, callbacks=callbacks)


def test_trace_has_steps_ops_and_traffic(fresh, tmp_path):
    path = tmp_path / "trace.json"
    counted = []

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            counted.append(het_tf.Table("t").stats()["cache"])

    trace = StepTrace(path, first=3, steps=4)
    fit([trace, Count()])
    events = json.loads(path.read_text())["traceEvents"]
    spans = [one for one in events if one["ph"] == "X"]
    steps = [one for one in spans if one["cat"] == "step"]
    assert len(steps) == len(trace.steps_traced) == 4
    for kind in ("lookup", "update"):
        of_kind = [one for one in spans if one["cat"] == kind and "KeepGrad" not in one["name"]]
        assert len(of_kind) == 4, "one a step"
        for step, one in zip(steps, of_kind, strict=True):
            assert step["ts"] <= one["ts"] and one["ts"] + one["dur"] <= step["ts"] + step["dur"]
    assert all(one["ts"] >= 0 and one["dur"] >= 0 for one in spans)
    assert sum("MatMul" in one["name"] and one["cat"] == "compute" for one in spans) >= 4
    assert not any(one["cat"] == "workers" for one in spans), "there is one process"
    waits = {"lookup_wait", "update_wait"}
    for times in trace.steps_traced:
        assert set(times) == {"step", "lookup", "update", "workers", "input", "compute", "no_op"} | waits
        assert all(0 <= times[name] <= times["step"] for name in times) and times["lookup"] > 0
    # Each lookup and update has its parts in the same row, and nothing is logged any more.
    for kind, name, names in (
        ("lookup", "HetLookup", {"plan", "answers", "copy"}),
        ("update", "HetKeepGrad", {"sum"}),
        ("update", "HetApplyGrad", {"tick"}),
    ):
        ops = [one for one in spans if one["cat"] == kind and name in one["name"]]
        assert len(ops) == 4
        for op in ops:
            end = op["ts"] + op["dur"]
            inside = [one for one in spans if one["cat"] == "part" and op["ts"] <= one["ts"] <= end]
            assert {one["name"] for one in inside} >= names
            assert all(one["tid"] == op["tid"] and one["ts"] + one["dur"] <= end + 1e-6 for one in inside)
    assert calls.end([""]) == ([], 0)
    spans = [one for one in spans if one["cat"] != "part"]
    # In a row nothing overlaps: viewers would draw one over the other.
    rows = defaultdict(list)
    for one in spans:
        rows[one["tid"]].append(one)
    for row in rows.values():
        for before, after in itertools.pairwise(row):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-6
    titles = {one["tid"] for one in events if one["name"] == "thread_name"}
    assert titles == set(rows)
    # Counters begin with a step and return to 0 with its end.
    of_rows = [one for one in events if one["ph"] == "C" and one["name"] == "t: rows of the step"]
    assert [one["ts"] for one in of_rows[::2]] == [one["ts"] for one in steps]
    grown = [after["miss_pull"] - before["miss_pull"] for before, after in itertools.pairwise(counted[1:6])]
    assert [one["args"]["miss_pull"] for one in of_rows[::2]] == grown and any(grown)
    assert not any(value for one in of_rows[1::2] for value in one["args"].values())


def test_short_fit_is_traced_into_file_of_rank(played, tmp_path):
    trace = StepTrace(tmp_path / "trace.json", first=2, steps=99)
    fit([trace], steps=3, distributed=True)
    assert len(trace.steps_traced) == 2 and (tmp_path / "trace-rank-0.json").stat().st_size > 100


def test_what_is_refused(fresh, tmp_path):
    for change in (dict(first=0), dict(steps=1.5), dict(steps=True)):
        with pytest.raises(ValueError, match="give an integer of 1 or more"):
            StepTrace(tmp_path / "x.json", **change)
    with pytest.raises(ValueError, match=r"x.json' of StepTrace cannot be written: No such"):
        fit([StepTrace(tmp_path / "not" / "x.json")])
    het_tf.reset()
    tf.profiler.experimental.start(str(tmp_path))
    try:
        with pytest.raises(RuntimeError, match=r"a profiler is running already; give .* profile_batch=0"):
            fit([StepTrace(tmp_path / "x.json", first=1)])
    finally:
        tf.profiler.experimental.stop(save=False)


def test_parts_belong_to_the_op_that_made_their_call():
    # The profiler began at 1,000,000 ns, which is known to 100 ns; two lookups run side by side.
    steps = [Span("step", "s", 0, 90), Span("step", "s", 100, 190)]
    since = calls.origin([(999_900, 1_000_400), (1_099_500, 1_100_100)], steps)
    assert since == (1_000_000, 100)
    ops = [Span("lookup", "a", 10, 60), Span("lookup", "b", 20, 50), Span("compute", "c", 0, 90)]
    entries = [
        ("plan", 1, 1_012_000, 1_014_000),
        ("wait", 2, 1_025_000, 1_030_000),
        ("wait", 1, 1_026_000, 1_059_900),
        ("lookup", 2, 1_020_100, 1_050_300),  # past the end of its op: the clocks differ a little
        ("copy", 2, 1_040_000, 1_050_200),
        ("lookup", 1, 1_010_100, 1_059_950),
        ("wait", 3, 1_030_000, 1_031_000),  # of no lookup, such as a flush
        ("update", 3, 1_200_000, 1_210_000),  # of no op that was measured
        ("sum", 3, 1_201_000, 1_202_000),
    ]
    found = calls.parts(ops, entries, *since)
    assert found == {
        ops[0]: [Span("plan", "plan", 12, 14), Span("wait", "wait", 26, 59.9)],
        ops[1]: [Span("wait", "wait", 25, 30), Span("copy", "copy", 40, 50)],
    }


def test_parts_of_a_short_op_are_found_where_the_clocks_are_known_badly():
    # Each stamp of the clock took 40 us, and the middle of that is 15 us late.
    steps = [Span("step", "s", 0, 900)]
    since, error = calls.origin([(995_000, 1_035_000)], steps)
    ops = [Span("update", "keep", 100, 104), Span("update", "apply", 300, 350)]
    entries = [
        ("update", 1, 1_100_500, 1_103_500), ("sum", 1, 1_101_000, 1_103_000),
        ("update", 1, 1_301_000, 1_349_000), ("tick", 1, 1_310_000, 1_340_000),
    ]  # fmt: skip
    found = calls.parts(ops, entries, since, error)
    assert {op.name: [part.name for part in of_op] for op, of_op in found.items()} == {
        "keep": ["sum"], "apply": ["tick"]
    }  # fmt: skip


def test_next_fit_ends_abandoned_profiler(fresh, tmp_path):
    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyError("over")

    trace = StepTrace(tmp_path / "trace.json", first=1)
    with pytest.raises(KeyError, match="over"):
        fit([trace, Fails()])
    het_tf.reset()
    trace._first = 99
    fit([trace])
    assert calls.end([""]) == ([], 0)


def test_spans_are_covered_once_and_lie_in_lanes():
    spans = [
        Span("compute", str(i), begin, end) for i, (begin, end) in enumerate([(0, 4), (1, 2), (3, 6), (8, 9)])
    ]
    assert covered(spans, 0, 10) == 7 and covered(spans, 1.5, 8.5) == 5 and covered([], 0, 1) == 0
    assert [lane for lane, _ in lanes(spans)] == [0, 1, 1, 0]
    types = ["HetLookup", "HetApplyGrad", "HorovodAllreduce", "IteratorGetNext", "MatMul"]
    assert [kind_of(one) for one in types] == ["lookup", "update", "workers", "input", "compute"]
