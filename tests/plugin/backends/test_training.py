"""A table learns what a variable of rows learns: fit, loops and every optimizer, on each backend of Keras."""

import keras
import numpy as np
import pytest
from backends_lib import BACKEND, DIM, IDS, Reference, apply, array, gradients, on_tensorflow, rows

import het_tf

pytestmark = pytest.mark.slow
ALL = ["SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Adafactor", "Nadam", "Ftrl"]
ALL += ["Lion", "Lamb", "Muon"]


def close(mine, other, largest=2e-6):
    np.testing.assert_allclose(array(mine), array(other), rtol=0, atol=largest)


def data(n=48, width=2):
    rng = np.random.default_rng(0)
    return rng.integers(0, IDS, (n, width)).astype("int32"), rng.normal(size=(n, 1)).astype(np.float32)


def model_of(layer, width=2):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((width,), dtype="int32")
    hidden = keras.layers.Dense(4, "tanh")(keras.layers.Flatten()(layer(inputs)))
    return keras.Model(inputs, keras.layers.Dense(1, dtype="float32")(hidden))


def pair(optimizer=lambda: het_tf.optimizers.SGD(0.1), **arguments):
    """A layer of a table, and one of a variable with its rows."""
    ours = het_tf.keras.Embedding(DIM, name="t", optimizer=optimizer(), **arguments)
    return ours, Reference(rows())


def learned(layer, model):
    """Rows and dense weights."""
    mine = rows() if layer.name == "t" else layer.get_weights()[0]
    return [mine, *(weight for one in model.layers[2:] for weight in one.get_weights())]


def fitted(make_optimizer, policy="float32", of_table=lambda: het_tf.optimizers.SGD(0.1), **compile_args):
    """Trains both models; returns rows and dense weights of each."""
    keras.mixed_precision.set_dtype_policy(policy)
    found = []
    ids, labels = data()
    for layer in pair(of_table):
        model = model_of(layer)
        model.compile(make_optimizer(), "mse", **compile_args)
        model.fit(ids, labels, batch_size=8, epochs=2, shuffle=False, verbose=0)
        found.append(learned(layer, model))
    return found


def agree(found, largest=2e-6):
    for mine, other in zip(*found, strict=True):
        close(mine, other, largest)


FITS = [
    ({}, {}, 12),
    ({}, {"run_eagerly": True}, 12),
    pytest.param({}, {"steps_per_execution": 3}, 12, marks=on_tensorflow),
    ({"gradient_accumulation_steps": 3}, {}, 4),
    ({"loss_scale_factor": 64.0, "gradient_accumulation_steps": 2}, {}, 6),
]


@pytest.mark.parametrize(("options", "compile_args", "updates"), FITS)
def test_fit(options, compile_args, updates):
    """Also by optimizers that scale or add gradients."""
    agree(fitted(lambda: keras.optimizers.SGD(0.1, **options), **compile_args))
    assert het_tf.Table("t").updates == updates


def test_accumulated_gradients_are_one_to_an_optimizer_with_slots():
    options = {"gradient_accumulation_steps": 3, "initial_accumulator_value": 0.1, "epsilon": 1e-7}
    table = het_tf.optimizers.Adagrad(0.1, initial_accumulator=0.1, epsilon=1e-7)
    agree(fitted(lambda: keras.optimizers.Adagrad(0.1, **options), of_table=lambda: table))
    assert het_tf.Table("t").updates == 4


@pytest.mark.parametrize("accumulate", [None, 2])
def test_a_loss_scale_is_divided_out(accumulate):
    inner = {"gradient_accumulation_steps": accumulate}
    agree(fitted(lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, **inner))))


def test_moving_averages_are_of_the_dense_part():
    with pytest.warns(UserWarning, match=r"use_ema=True, which does not reach its tables \('t'\)"):
        found = fitted(lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5))
    agree([one[1:] for one in found])


MORE = {"clipnorm": 1.0, "weight_decay": 1e-3, "use_ema": True}
MORE |= {} if BACKEND == "jax" else {"ema_overwrite_frequency": 4}


EVERY = [*((name, {}) for name in ALL), ("Adam", {"global_clipnorm": 1.0}), ("Adam", MORE)]


@pytest.mark.filterwarnings("ignore:.*use_ema=True")
@pytest.mark.parametrize(("name", "options"), EVERY)
def test_every_optimizer_trains_dense_and_table(name, options):
    model = model_of(het_tf.keras.Embedding(DIM, name="t", optimizer=het_tf.optimizers.SGD(0.05)))
    eager = BACKEND == "tensorflow" and name != "Adam"  # a graph of each takes seconds
    optimizer = getattr(keras.optimizers, name)(learning_rate=0.01, **options)
    model.compile(optimizer, "mse", run_eagerly=eager)
    ids, labels = data()
    kernel = model.layers[-1].kernel
    before = rows(), array(kernel)
    history = model.fit(ids, labels, batch_size=16, epochs=2, verbose=0, shuffle=False).history
    assert het_tf.Table("t").updates == 6
    assert (rows() != before[0]).any(1).all() and np.abs(array(kernel) - before[1]).max() > 0
    assert history["loss"][1] < history["loss"][0]
    assert not array(model.layers[1].anchor.value).any()
    assert not any("anchor" in one.path for one in model.optimizer.variables)


def loop(step):
    """Runs step(model, optimizer, loss of a batch, number) 6 times for each of the pair; compares."""
    found = []
    ids, labels = data()
    for layer in pair():
        model = model_of(layer)
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
        for number in range(6):
            part = slice(8 * number, 8 * number + 8)

            def loss(part=part, model=model):
                wanted = keras.ops.convert_to_tensor(labels[part])
                return keras.ops.mean(keras.ops.square(model(ids[part], training=True) - wanted))

            step(model, optimizer, loss, number)
        found.append(learned(layer, model))
    agree(found)


def test_a_loop_that_applies_some_gradients():
    def step(model, optimizer, loss, number):
        _, found = gradients(loss, model.trainable_variables)
        before = rows()
        if number % 3 != 1:
            apply(optimizer, found, model.trainable_variables)
        else:
            np.testing.assert_array_equal(rows(), before)  # taken, not applied

    loop(step)
    assert het_tf.Table("t").updates == 4
    assert het_tf.Table("t").stats()["unapplied_gradients"] == 0  # still kept


def test_a_loop_that_adds_and_scales_gradients():
    sums = {}

    def step(model, optimizer, loss, number):
        _, found = gradients(lambda: loss() + loss(), model.trainable_variables)
        found = [one / 4 for one in found]
        if number % 2 == 0:
            sums[id(model)] = found
        else:
            found = [a + b for a, b in zip(sums[id(model)], found, strict=True)]
            apply(optimizer, found, model.trainable_variables)

    loop(step)
    assert het_tf.Table("t").updates == 3


def test_two_layers_share_a_table():
    first = het_tf.keras.Embedding(DIM, name="a", table="t", optimizer="sgd")
    second = het_tf.keras.Embedding(DIM, name="b", table="t", optimizer="sgd", reuse=True)
    assert first.anchor is second.anchor
    start = rows()
    ids = np.array([1, 2], "int32")
    variables = first.trainable_variables
    _, found = gradients(lambda: keras.ops.sum(first(ids)) + 2 * keras.ops.sum(second(ids)), variables)
    apply(keras.optimizers.SGD(1.0), found, variables)
    close(rows()[1:3], start[1:3] - 0.01 * 3)
    assert het_tf.Table("t").updates == 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_gradient_that_is_not_finite_changes_no_row(bad):
    layer = het_tf.keras.Embedding(DIM, name="t", optimizer="sgd")
    start = rows()
    ids = np.array([1], "int32")
    _, found = gradients(lambda: keras.ops.sum(layer(ids)) * bad, layer.trainable_variables)
    assert np.isnan(array(found[0])).any()
    with pytest.raises(Exception, match="for id 1 is NaN or Inf; no row was changed"):
        apply(keras.optimizers.SGD(1.0), found, layer.trainable_variables)
    np.testing.assert_array_equal(rows(), start)


def test_fit_ends_with_the_error_of_its_step():
    """Keras on JAX puts the step's arrays back, which are deleted then."""
    inputs = keras.Input((2,), dtype="int32")
    x = keras.layers.Flatten()(het_tf.keras.Embedding(DIM, name="t", optimizer="sgd")(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile("sgd", "mse")
    ids, labels = np.arange(64, dtype="int32").reshape(32, 2), np.ones((32, 1), "float32")
    labels[16] = np.nan
    with pytest.raises(Exception, match=r"for id 3\d is NaN or Inf") as caught:
        model.fit(ids, labels, batch_size=4, shuffle=False, verbose=0)
    assert "deleted" not in str(caught.value)
    assert het_tf.Table("t").updates == 4


def moved(rate, optimizer, change):
    """How far an element of a row moves in each of 4 steps of fit, whose gradient is 1."""
    layer = het_tf.keras.Embedding(1, name="t", optimizer=het_tf.optimizers.SGD(rate))
    inputs = keras.Input((), dtype="int32")
    model = keras.Model(inputs, layer(inputs))
    model.compile(optimizer, lambda y, p: keras.ops.sum(p - y))
    found = [rows(ids=1)[0, 0]]
    for number in range(4):
        model.fit(np.zeros(1, "int32"), np.zeros((1, 1), "float32"), verbose=0)
        found.append(rows(ids=1)[0, 0])
        change(number)
    return -np.diff(found)


SCHEDULE = keras.optimizers.schedules.ExponentialDecay(0.25, 1, 0.5)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ["schedule", "model", "variable"])
def test_rates_are_read_at_every_update(kind):
    optimizer, variable = keras.optimizers.SGD(0.5), keras.Variable(0.5)

    def change(number):
        optimizer.learning_rate = 0.25 / (number + 1)
        variable.assign(0.25 / (number + 1))

    found = moved({"schedule": SCHEDULE, "model": "model", "variable": variable}[kind], optimizer, change)
    expected = [0.25, 0.125, 0.0625, 0.03125] if kind == "schedule" else [0.5, 0.25, 0.125, 0.25 / 3]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_frozen_layer_and_calls_without_training_learn_nothing():
    layer = het_tf.keras.Embedding(DIM, name="t")
    model = model_of(layer)
    layer.trainable = False
    assert len(model.trainable_variables) == 4, "Keras warns of one without a gradient"
    model.compile("sgd", "mse")
    start, kernel = rows(), array(model.layers[-1].kernel)
    model.fit(*data(), verbose=0)
    model.evaluate(*data(), verbose=0)
    assert model.predict(data()[0], verbose=0).shape == (48, 1)
    np.testing.assert_array_equal(rows(), start)
    assert het_tf.Table("t").updates == 0
    assert np.abs(array(model.layers[-1].kernel) - kernel).max() > 0


POLICIES = [("mixed_bfloat16", 0.05), pytest.param("mixed_float16", 0.01, marks=on_tensorflow)]


@pytest.mark.parametrize(("policy", "largest"), POLICIES)
def test_mixed_precision(policy, largest):
    agree(fitted(lambda: keras.optimizers.SGD(0.1), policy=policy), largest)
