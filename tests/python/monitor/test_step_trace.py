"""StepTrace: measured spans of steps, in a file that Perfetto opens."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict

import pytest
import rules_lib
import tensorflow as tf

import het_tf
from het_tf.python.monitor.spans import Span, covered, kind_of, lanes

keras = tf.keras
StepTrace = het_tf.callbacks.StepTrace


def fit(callbacks, steps=8, distributed=False):
    ids, y = rules_lib.data(8 * steps)
    inputs = keras.Input((3,), dtype="int64")
    x = rules_lib.embedding(cache=het_tf.Cache(rows=4, staleness=2))(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(x)))
    model.compile("sgd", "mse")
    model = het_tf.horovod.distribute(model) if distributed else model
    model.fit(ids, y, batch_size=8, verbose=0, shuffle=False, callbacks=callbacks)


@pytest.mark.tf215
def test_a_trace_has_the_steps_their_ops_and_what_travelled(fresh, tmp_path):
    path = tmp_path / "trace.json"
    counted = []

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            counted.append(het_tf.table("t").stats()["cache"])

    trace = StepTrace(path, first=3, steps=4)
    fit([trace, Count()])
    events = json.loads(path.read_text())["traceEvents"]
    spans = [one for one in events if one["ph"] == "X"]
    steps = [one for one in spans if one["cat"] == "step"]
    assert len(steps) == len(trace.steps_traced) == 4
    for kind in ("lookup", "update"):
        of_kind = [one for one in spans if one["cat"] == kind]
        assert len(of_kind) == 4, "one a step"
        for step, one in zip(steps, of_kind, strict=True):
            assert step["ts"] <= one["ts"] and one["ts"] + one["dur"] <= step["ts"] + step["dur"]
    assert all(one["ts"] >= 0 and one["dur"] >= 0 for one in spans)
    assert sum("MatMul" in one["name"] and one["cat"] == "compute" for one in spans) >= 4
    assert not any(one["cat"] == "workers" for one in spans), "there is one process"
    for times in trace.steps_traced:
        assert set(times) == {"step", "lookup", "update", "workers", "input", "compute", "no_op"}
        assert all(0 <= times[name] <= times["step"] for name in times) and times["lookup"] > 0
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


def test_a_fit_that_ends_early_has_what_it_did_and_a_rank_its_own_file(played, tmp_path):
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


def test_spans_are_covered_once_and_lie_in_lanes():
    spans = [
        Span("compute", str(i), begin, end) for i, (begin, end) in enumerate([(0, 4), (1, 2), (3, 6), (8, 9)])
    ]
    assert covered(spans, 0, 10) == 7 and covered(spans, 1.5, 8.5) == 5 and covered([], 0, 1) == 0
    assert [lane for lane, _ in lanes(spans)] == [0, 1, 1, 0]
    types = ["HetLookup", "HetApplyGrad", "HorovodAllreduce", "IteratorGetNext", "MatMul", "HetReadCriteo"]
    assert [kind_of(one) for one in types] == ["lookup", "update", "workers", "input", "compute", "input"]
