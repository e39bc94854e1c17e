"""Options of Keras' optimizers in loops of TensorFlow, and what overflows.

What `fit` learns under every optimizer is tests/plugin/backends/test_training.py.
"""

import numpy as np
import pytest
import tensorflow as tf
from loops_lib import Pair, batches, rows
from rules_lib import MODES, data, embedding, keras, make_model, step

import het_tf

pytestmark = pytest.mark.usefixtures("fresh")


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


@pytest.mark.parametrize("mode", MODES)
def test_inference_takes_no_gradient(mode):
    layer = embedding()
    before = rows()
    step(lambda ids: layer(ids, training=False), [1, 2], mode, layer.trainable_variables)
    np.testing.assert_array_equal(rows(), before)
    step(layer, [1, 2], mode)
    assert het_tf.Table("t").updates == 1
