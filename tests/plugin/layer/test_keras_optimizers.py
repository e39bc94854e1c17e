"""Tables under every optimizer of Keras and its options: fit equals what a variable of rows learns."""

import warnings

import numpy as np
import pytest
import tensorflow as tf
from floats_lib import MODEL, TRAINED, assert_close
from loops_lib import IDS, OPTIMIZERS, Pair, Reference, batches, rows
from rules_lib import MODES, data, embedding, keras, make_model, step

import het_tf

pytestmark = pytest.mark.usefixtures("fresh")

NAMES = ["SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Adafactor", "Nadam", "Ftrl"]
NAMES += ["Lion", "Lamb", "Muon"]
VARIANTS = {
    "plain": {},
    "global_clipnorm": {"global_clipnorm": 1.0},
    "clipnorm_decay_ema": {
        "clipnorm": 1.0,
        "weight_decay": 1e-3,
        "use_ema": True,
        "ema_overwrite_frequency": 4,
    },
}


@pytest.mark.parametrize(
    ("name", "variant"),
    [*(("Adam", variant) for variant in VARIANTS), ("SGD", "plain"), ("Ftrl", "plain"),
     *(pytest.param(name, "plain", marks=pytest.mark.long) for name in NAMES
       if name not in ("Adam", "SGD", "Ftrl"))],
)  # fmt: skip
def test_every_optimizer_trains_dense_and_table(name, variant):
    rate = 0.1 if name == "Ftrl" else 0.01
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make_model(getattr(keras.optimizers, name)(learning_rate=rate, **VARIANTS[variant]))
        anchor, kernel = model.trainable_variables[:2]
        before_rows, before_kernel = rows()[:10], kernel.numpy().copy()
        ids, labels = data()
        history = model.fit(ids, labels, batch_size=16, epochs=2, verbose=0, shuffle=False).history
    assert het_tf.Table("t").updates == 12
    assert np.abs(rows()[:10] - before_rows).min() > 0
    assert np.abs(kernel.numpy() - before_kernel).max() > 0
    assert not np.any(tf.convert_to_tensor(anchor.value))
    assert history["loss"][1] < history["loss"][0]
    names = [variable.path for variable in model.optimizer.variables]
    assert not any("anchor" in one for one in names)


# --- fit, against a variable of rows ------------------------------------------------------------------


def fitted(make_optimizer, kind="sgd", policy="float32", **compile_args):
    """Trains both models; returns rows and dense weights of each."""
    keras.mixed_precision.set_global_policy(policy)
    found = []
    rng = np.random.default_rng(0)
    ids, labels = rng.integers(0, IDS, (48, 2)), rng.normal(size=(48, 1)).astype(np.float32)
    table_optimizer, _ = OPTIMIZERS[kind]
    start = None
    for ours in (True, False):
        first = (
            het_tf.keras.Embedding(3, name="t", optimizer=table_optimizer()) if ours else Reference(name="r")
        )
        if not ours:
            first.build((None,))
            first.set_weights([start])
        start = rows() if ours else start
        keras.utils.set_random_seed(0)
        inputs = keras.Input((2,), dtype="int64")
        hidden = keras.layers.Dense(4, "tanh")(keras.layers.Flatten()(first(inputs)))
        model = keras.Model(inputs, keras.layers.Dense(1, dtype="float32")(hidden))
        model.compile(make_optimizer(), "mse", **(compile_args if ours else {"run_eagerly": True}))
        model.fit(ids, labels, batch_size=8, epochs=2, shuffle=False, verbose=0)
        found.append([rows() if ours else first.get_weights()[0]])
        found[-1] += [weight for layer in model.layers[2:] for weight in layer.get_weights()]
    return found


def agree(found, ulps=TRAINED):
    largest = max(np.abs(one).max(initial=0) for one in found[1])
    for mine, other in zip(*found, strict=True):
        assert_close(mine, other, ulps, magnitude=largest)


@pytest.mark.parametrize("compile_args", [{}, {"steps_per_execution": 3}, {"run_eagerly": True}])
def test_fit(compile_args):
    agree(fitted(lambda: keras.optimizers.SGD(0.1), **compile_args))
    assert het_tf.Table("t").updates == 12


@pytest.mark.parametrize(("kind", "steps"), [("sgd", 2), ("adagrad", 3)])
def test_gradient_accumulation_steps(kind, steps):
    _, optimizer = OPTIMIZERS[kind]
    agree(fitted(lambda: optimizer(gradient_accumulation_steps=steps), kind))
    assert het_tf.Table("t").updates == 12 // steps


def test_accumulation_of_a_layer_that_some_steps_do_not_use():
    """As Keras has it: the mean is over all steps, and what an update step does not use is left."""
    pair = Pair(tables=("a", "b"))
    for model in pair:
        optimizer = pair.optimizer(gradient_accumulation_steps=3)
        optimizer.build(model.variables)
        for number, batch in enumerate(batches(9)):
            with tf.GradientTape() as tape:
                loss = model.loss(batch) + (model.loss(batch, 1) if number % 3 else 0.0)
            found = tape.gradient(loss, model.variables)
            pairs = [(g, v) for g, v in zip(found, model.variables, strict=True) if g is not None]
            optimizer.apply_gradients(pairs)
    pair.check()
    assert het_tf.Table("a").updates == het_tf.Table("b").updates == 3


def test_moving_averages_are_of_the_dense_part():
    with pytest.warns(UserWarning, match=r"use_ema=True, which does not reach its tables \('t'\)"):
        found = fitted(lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5))
    for mine, other in zip(*(one[1:] for one in found), strict=True):
        assert_close(mine, other, MODEL)


@pytest.mark.parametrize("accumulate", [None, 2])
def test_a_loss_scale_is_divided_out(accumulate):
    agree(
        fitted(
            lambda: keras.optimizers.LossScaleOptimizer(
                keras.optimizers.SGD(0.1, gradient_accumulation_steps=accumulate)
            )
        )
    )


def test_a_loss_scale_factor_is_divided_out():
    agree(fitted(lambda: keras.optimizers.SGD(0.1, loss_scale_factor=64.0)))


@pytest.mark.parametrize("policy", ["mixed_float16", pytest.param("mixed_bfloat16", marks=pytest.mark.long)])
def test_mixed_precision(policy):
    agree(fitted(lambda: keras.optimizers.SGD(0.1), policy=policy), 2**14 * TRAINED)


@pytest.mark.parametrize("mode", MODES)
def test_a_loss_scale_in_a_loop(mode):
    pair = Pair()
    for model in pair:
        optimizer = keras.optimizers.LossScaleOptimizer(pair.optimizer(), initial_scale=2.0**9)
        optimizer.build(model.variables)

        def train(*batch, model=model, optimizer=optimizer):
            with tf.GradientTape() as tape:
                loss = optimizer.scale_loss(model.loss(batch) / 4.0)
            optimizer.apply(tape.gradient(loss, model.variables), model.variables)

        run = tf.function(train) if mode == "graph" else train
        for batch in batches():
            run(*batch)
    pair.check()


def test_a_loss_scale_by_hand():
    pair = Pair()
    for model in pair:
        optimizer = pair.optimizer()
        for batch in batches():
            with tf.GradientTape() as tape:
                loss = model.loss(batch) * 256.0
            found = [tf.convert_to_tensor(one) / 256.0 for one in tape.gradient(loss, model.variables)]
            optimizer.apply(found, model.variables)
    pair.check()


def test_overflow_skips_step_and_lowers_scale():
    keras.mixed_precision.set_global_policy("mixed_float16")
    # float16 ends at 65504: a huge first scale overflows for some steps.
    inner = keras.optimizers.SGD(0.05)
    optimizer = keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=2.0**30)
    model = make_model(optimizer)
    before, kernel = rows(), model.layers[-1].get_weights()[0]
    ids, labels = data(16)
    model.train_on_batch(ids, labels)
    assert float(tf.convert_to_tensor(optimizer.dynamic_scale)) == 2.0**29
    assert het_tf.Table("t").updates == 0
    np.testing.assert_array_equal(rows(), before)
    np.testing.assert_array_equal(model.layers[-1].get_weights()[0], kernel)
    for _ in range(40):
        model.train_on_batch(ids, labels)
    assert het_tf.Table("t").updates > 10
    assert np.isfinite(rows()).all()
    for weight in model.layers[-1].get_weights():
        assert np.isfinite(weight).all()


# --- errors, and what is frozen -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_raises(mode, bad):
    layer = embedding()
    before = rows()
    with pytest.raises(tf.errors.InvalidArgumentError, match="for id 1 is NaN or Inf; no row was changed"):
        step(layer, [1], mode, loss=lambda x: tf.reduce_sum(x) * bad)
    np.testing.assert_array_equal(rows(), before)


@pytest.mark.parametrize("mode", MODES)
def test_inference_takes_no_gradient(mode):
    layer = embedding()
    before = rows()
    step(lambda ids: layer(ids, training=False), [1, 2], mode, layer.trainable_variables)
    np.testing.assert_array_equal(rows(), before)
    step(layer, [1, 2], mode)
    assert het_tf.Table("t").updates == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_frozen_model_trains_its_other_layers(mode):
    model = make_model()
    model.layers[1].trainable = False
    assert len(model.trainable_variables) == 2, "Keras warns of one without a gradient"
    model.compile("sgd", "mse", run_eagerly=mode == "eager")
    before, kernel = rows(), model.layers[-1].get_weights()[0]
    model.fit(*data(), verbose=0)
    np.testing.assert_array_equal(rows(), before)
    assert np.abs(model.layers[-1].get_weights()[0] - kernel).max() > 0
    model.trainable = False
    assert model.trainable_variables == []
