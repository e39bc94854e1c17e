"""PlanCheck prints the forecast of het plan beside the run."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
from events_lib import scalars

import het_tf
from het_tf.ext.monitor.python.plan_check import compare, text
from het_tf.ext.sizing.python import document
from het_tf.ext.sizing.python.forecast import Request, forecast
from het_tf.ext.sizing.python.profile import Feature, Profiler
from het_tf.ext.sizing.python.replay import Job

STEPS, BATCH, DIM = 120, 64, 4


def of_table(**figures):
    return {
        "uses": 10.0,
        "miss_pull": 4.0,
        "update_pull": 0.0,
        "bound_push": 6.0,
        "evict_push": 2.0,
        **figures,
    }


PLAN = {
    "format": "het_tf plan",
    "version": 1,
    "forecast": {"bytes": 1000.0, "hit_rate": 0.6},
    "tables": [{"name": "user", "forecast": of_table()}],
}
COUNTED = {
    **{"reads": 100, "hits": 60, "miss_pull": 40, "update_pull": 0, "bound_push": 60, "evict_push": 20},
    **{"row_bytes_in": 2000, "row_bytes_out": 4000, "metadata_bytes_in": 1000, "metadata_bytes_out": 3000},
}


def test_a_run_as_planned_is_within_a_tenth():
    lines = compare(PLAN, {"user": COUNTED}, 10)
    assert [(name, forecast, observed) for name, forecast, observed in lines if forecast != observed] == []
    assert ("bytes", 1000.0, 1000.0) in lines and ("hit rate", 0.6, 0.6) in lines
    assert text(lines)[-1] == "all lines within a tenth"
    assert max(map(len, text(lines))) <= 80


def test_lines_off_by_a_tenth_are_named():
    lines = compare(PLAN, {"user": {**COUNTED, "miss_pull": 45, "evict_push": 21}}, 10)
    marked = [line for line in text(lines) if line.endswith("*")]
    assert len(marked) == 1 and marked[0].startswith("user: miss_pull")
    assert text(lines)[-1] == "off by more than a tenth: user: miss_pull"


def test_a_table_that_was_not_planned_is_refused():
    with pytest.raises(ValueError, match="the plan has no table 'item'; its tables are user: profile again"):
        compare(PLAN, {"item": COUNTED}, 10)


@pytest.mark.parametrize("steps", [0, 1, 2.5, True])
def test_steps_that_are_no_number_of_them(tmp_path, steps):
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    with pytest.raises(ValueError, match="give an integer of 2 or more"):
        het_tf.callbacks.PlanCheck(tmp_path / "plan.json", steps=steps)


def test_a_file_that_is_no_plan(tmp_path):
    with pytest.raises(ValueError, match=r"give the plan\.json that het plan wrote"):
        het_tf.callbacks.PlanCheck(tmp_path / "nothing.json")


def test_planned_run_matches_its_forecast(fresh, server, tmp_path, capsys):
    """Profile, plan, train: the callback's lines are within a tenth, and in TensorBoard."""
    rng = np.random.default_rng(3)
    ids = rng.choice(2000, STEPS * BATCH, p=(w := 1 / np.arange(1, 2001) ** 1.1) / w.sum()).astype(np.int64)
    profiler = Profiler([Feature("item", "item", DIM)], "run")
    profiler.add({"item": ids})
    made = forecast(profiler.finish(tmp_path / "stats"), Request(job=Job(workers=1, batch=BATCH)))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document.plan(made, None)))

    het_tf.init(ps=server.address)
    table = het_tf.TableConfig("item", DIM, het_tf.optimizers.RowWiseAdagrad(0.1))
    embed = het_tf.keras.EmbeddingCollection(
        {"item": het_tf.FeatureConfig(table)}, cache=het_tf.Cache.from_plan(path)
    )
    inputs = {"item": tf.keras.Input((), dtype="int64", name="item")}
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(embed(inputs)["item"]))
    model.compile("sgd", "mse")
    labels = rng.normal(size=(len(ids), 1)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices(({"item": ids}, labels)).batch(BATCH)
    check = het_tf.callbacks.PlanCheck(path, steps=STEPS, log_dir=tmp_path / "logs")
    model.fit(data, verbose=0, callbacks=[check])

    said = capsys.readouterr().err
    assert "a step of this worker" in said and "item: miss_pull" in said
    found = {name: (forecast, observed) for name, forecast, observed in check.lines}
    assert found["item: unique ids"][0] == pytest.approx(found["item: unique ids"][1], rel=0.1)
    assert found["item: miss_pull"][0] == pytest.approx(found["item: miss_pull"][1], rel=0.1)
    assert found["hit rate"][0] == pytest.approx(found["hit rate"][1], abs=0.02)
    assert found["bytes"][0] == pytest.approx(found["bytes"][1], rel=0.15)
    logged = scalars(tmp_path / "logs")
    assert logged["plan/bytes/observed"][STEPS] == pytest.approx(found["bytes"][1])
