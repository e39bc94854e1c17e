"""GAUC: exact by its definition, in compile, in loops, and what it refuses."""

from __future__ import annotations

import keras
import metrics_lib
import numpy as np
import pytest
from backends_lib import BACKEND, invalid, on_jax, on_tensorflow

import het_tf
from het_tf.python import ids

GAUC = het_tf.metrics.GAUC


def samples(rows=300, groups=40, seed=0):
    """Groups, labels, scores with many ties, weights; some groups have one class, some one sample."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, rows) * 2**40 + 1  # no float could tell them apart
    group[:5] = np.arange(5) - 9
    return group, rng.integers(0, 2, rows), rng.integers(0, 8, rows) / 8, rng.random(rows).astype("float32")


def feed(metric, group, label, score, weight=None, batch=64):
    for i in range(0, len(label), batch):
        part = slice(i, i + batch)
        metric.update_state(
            label[part], score[part], None if weight is None else weight[part], groups=group[part]
        )
    return metric


@pytest.mark.parametrize("weighted", [False, True])
def test_gauc_is_auc_over_pairs_of_groups(weighted):
    group, label, score, weight = samples()
    weight = weight if weighted else np.ones_like(weight)
    expected, found, left_out = metrics_lib.gauc(group, label, score, weight)
    gauc = feed(GAUC(dtype="float64"), group, label, score, weight if weighted else None)
    assert float(gauc.result()) == pytest.approx(expected, abs=1e-12)
    assert (gauc.groups, gauc.left_out) == (found, left_out) and left_out >= 5
    gauc.reset_state()
    assert np.isnan(float(gauc.result())) and gauc.left_out == 0
    other = samples(seed=1)
    feed(gauc, *other[:3])
    assert float(gauc.result()) == pytest.approx(metrics_lib.gauc(*other[:3], np.ones(300))[0], abs=1e-12), (
        "nothing of before the reset is left"
    )


def test_samples_of_weight_0_are_not_there():
    group, label, score, weight = samples()
    weight[group == group[20]] = 0
    gauc = feed(GAUC(), group, label, score, weight)
    there = weight > 0
    again = feed(GAUC(), group[there], label[there], score[there], weight[there])
    assert float(gauc.result()) == float(again.result())
    assert (gauc.groups, gauc.left_out) == (again.groups, again.left_out)


def test_groups_may_be_strings_and_scores_of_half_precision():
    group, label, score, _ = samples()
    expected = float(feed(GAUC(), group, label, score).result())
    named = feed(GAUC(), group.astype(str), label[:, None], score.astype("float16")[:, None])
    assert float(named.result()) == expected, "eighths are exact in float16"
    assert keras.backend.standardize_dtype(named.result().dtype) == "float32"


def test_order_is_all_that_matters():
    group, label, score, _ = samples()
    logits = np.log(score + 0.01) * 50  # a sigmoid in float32 would make many of them equal
    assert float(feed(GAUC(), group, label, logits).result()) == float(
        feed(GAUC(), group, label, score).result()
    )


def model(metrics, dtype=None, **compiled):
    inputs = {
        "user": keras.Input((), dtype=dtype or ids.widest(), name="user"),
        "x": keras.Input((3,), name="x"),
    }
    made = keras.Model(inputs, keras.layers.Dense(1)(inputs["x"]))
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    made.compile("sgd", loss, metrics=metrics, **{"jit_compile": False, **compiled})
    return made


@pytest.mark.parametrize("compiled", [{}, {"run_eagerly": True}, {"steps_per_execution": 3}])
def test_in_compile_it_finds_the_groups_in_an_input(compiled):
    group, label, _, _ = samples()
    group = np.unique(group, return_inverse=True)[1].astype("int32") if BACKEND == "jax" else group
    x = {"user": group, "x": np.random.default_rng(1).random((len(group), 3)).astype("float32")}
    y = label[:, None].astype("float32")
    if BACKEND == "torch":
        compiled.pop("steps_per_execution", None)
    made = model([GAUC(by="user"), "mse"], **compiled)
    with pytest.raises(
        ValueError, match=r"GAUC\(by='user'\) cannot see .* het_tf.metrics.with_inputs\(model\)"
    ):
        made.evaluate(x, y, verbose=0)
    made = het_tf.metrics.with_inputs(het_tf.metrics.with_inputs(made))
    made.evaluate(x, 1 - y, batch_size=32, verbose=0)  # nothing of it is left
    logs = made.evaluate(x, y, batch_size=32, verbose=0, return_dict=True)
    scores = made.predict(x, verbose=0)
    expected = metrics_lib.gauc(group, label, scores[:, 0], np.ones(len(group)))[0]
    assert logs["gauc"] == pytest.approx(expected, abs=1e-6) and set(logs) >= {"loss", "gauc"}


@on_tensorflow
@pytest.mark.long
def test_graph_recomputes_after_growth_by_a_quarter():
    import tensorflow as tf

    group, label, score, _ = samples(400)
    gauc = GAUC()

    @tf.function
    def step(g, y, s):
        gauc.update_state(y, s, groups=g)
        return gauc.result()

    seen = []
    for i in range(0, 400, 20):
        part = slice(i, i + 20)
        seen.append(float(step(tf.constant(group[part]), tf.constant(label[part]), tf.constant(score[part]))))
    assert float(gauc.result()) == pytest.approx(
        metrics_lib.gauc(group, label, score, np.ones(400))[0], abs=1e-6
    )
    different = 1 + np.count_nonzero(np.diff([s for s in seen if not np.isnan(s)]))
    assert 6 < different < 15, "sorted often enough to be of use, and seldom enough to be cheap"


def test_states_merge_and_configurations_return():
    group, label, score, weight = samples()
    halves = [feed(GAUC(by="user", name="mine"), *(one[part] for one in (group, label, score, weight)))
              for part in (slice(0, 100), slice(100, 300))]  # fmt: skip
    halves[0].merge_state(halves[1:])
    assert float(halves[0].result()) == float(feed(GAUC(), group, label, score, weight).result())
    again = GAUC.from_config(halves[0].get_config())
    assert (again.by, again.name) == ("user", "mine")
    assert keras.metrics.deserialize(keras.metrics.serialize(again)).by == "user"


INVALID = invalid()
BAD = [
    (dict(groups=None), ValueError, "GAUC has no groups; give update_state groups="),
    (dict(groups=[0.5, 1.0]), ValueError, "groups are float64; give integers or strings"),
    (dict(groups=[1, 2, 3]), ValueError, r"groups has shape \(3,\), but y_pred \(2,\)"),
    (dict(y_true=[1, 0, 1]), ValueError, "y_true has 3 values, but y_pred 2"),
    (dict(y_true=[1, 2]), INVALID, "y_true has a value other than 0 and 1"),
    (dict(y_pred=[0.1, np.nan]), INVALID, "y_pred is NaN"),
    (dict(sample_weight=[1.0, -1.0]), INVALID, "sample_weight has a negative value"),
    (dict(sample_weight=[1.0, 1.0, 1.0]), ValueError, r"sample_weight has shape \(3,\)"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_input_is_refused_and_leaves_nothing(change, error, message):
    gauc = GAUC()
    with pytest.raises(error, match=message):
        gauc.update_state(**{**dict(y_true=[1, 0], y_pred=[0.2, 0.1], groups=[1, 1]), **change})
    assert gauc.left_out == gauc.groups == 0


def test_inputs_that_are_not_there_are_named():
    with pytest.raises(ValueError, match=r"by is 1\.5; give the name or the number"):
        GAUC(by=1.5)
    _, label, _, _ = samples(8)
    x, y = (
        {"user": np.arange(8, dtype="int32"), "x": np.ones((8, 3), "float32")},
        label[:, None].astype("float32"),
    )
    for by in ("item", 0):
        made = het_tf.metrics.with_inputs(model([GAUC(by=by)]))
        with pytest.raises(ValueError, match="has no such input; its inputs have the names 'user', 'x'"):
            made.evaluate(x, y, verbose=0)
    with pytest.raises(TypeError, match="give a Keras model"):
        het_tf.metrics.with_inputs("model")


@on_tensorflow
def test_what_xla_compiles_keeps_no_samples():
    made = het_tf.metrics.with_inputs(model([GAUC(by="user")], jit_compile=True))
    with pytest.raises(ValueError, match=r"is compiled by XLA, which .* give compile jit_compile=False"):
        made.evaluate({"user": np.zeros(2, "int32"), "x": np.ones((2, 3))}, np.ones((2, 1)), verbose=0)


def test_bad_values_in_a_compiled_step_get_the_same_text():
    x = {"user": np.zeros(4, "int32"), "x": np.ones((4, 3), "float32")}
    for number, message in ((2.0, "y_true has a value other than 0 and 1"), (np.nan, "y_pred is NaN")):
        made = het_tf.metrics.with_inputs(model([GAUC(by="user")]))
        y = np.array([[0.0], [1.0], [0.0], [number if number == 2 else 1.0]], "float32")
        with pytest.raises(Exception, match=message):
            made.evaluate({**x, "x": x["x"] * (1.0 if number == 2 else number)}, y, verbose=0)


def test_a_step_that_is_not_finished_keeps_no_samples():
    """Keras builds a model by calls with other numbers: their samples, in the same columns, do not count."""
    group, label, score, _ = samples()
    gauc, other = feed(GAUC(), group, label, score), samples(seed=1)
    before = float(gauc.result())
    state = [one.value for one in gauc.variables]
    more = gauc.stateless_update_state(state, other[1], other[2], groups=other[0])
    assert float(gauc.result()) == before != float(gauc.stateless_result(more))
    both = [np.concatenate(pair) for pair in zip(samples()[:3], other[:3], strict=True)]
    assert float(gauc.stateless_result(more)) == float(feed(GAUC(), *both).result())


@on_jax
def test_groups_that_jax_has_cut_are_refused():
    made = het_tf.metrics.with_inputs(model([GAUC(by="user")], "int64"))
    with pytest.raises(ValueError, match=r"GAUC\(by='user'\): the groups are declared int64; JAX would cut"):
        made.evaluate({"user": np.zeros(2, "int64"), "x": np.ones((2, 3))}, np.ones((2, 1)), verbose=0)


@on_jax
def test_a_program_of_ones_own_keeps_wide_groups_and_scores():
    """A callback of JAX has 32 bits: groups that differ above them would be one."""
    import jax

    group, label, score, weight = samples()
    close = score + 1e-12 * np.arange(300)
    with jax.enable_x64(True):
        arrays = [jax.numpy.asarray(one) for one in (label, close, weight, group)]
    gauc = GAUC(dtype="float64")
    update = jax.jit(lambda state, *args: gauc.stateless_update_state(state, *args[:3], groups=args[3]))
    state = update([one.value for one in gauc.variables], *arrays)
    expected = metrics_lib.gauc(group, label, close, weight)[0]
    assert float(jax.jit(gauc.stateless_result)(state)) == pytest.approx(expected, abs=1e-12)
