"""Changes of a gradient that no factor describes, and gradients that are gone, are refused; rows stay."""

import numpy as np
import pytest
import tensorflow as tf
from loops_lib import DIM, Pair, batches, rows

import het_tf

keras = tf.keras
pytestmark = pytest.mark.usefixtures("fresh")


def ticket_of(pair):
    variable = pair.ours.layers[0].anchor
    with tf.GradientTape() as tape:
        loss = pair.ours.loss(batches(1)[0])
    return tape.gradient(loss, variable), variable


@pytest.mark.parametrize(
    "change",
    [tf.sign, lambda g: tf.clip_by_value(g, -1e-3, 1e-3), lambda g: tf.minimum(g, 0.5 * tf.reduce_max(g)),
     lambda g: g + 0.1, tf.square],
)  # fmt: skip
def test_a_change_that_is_not_linear_is_refused(change):
    pair = Pair()
    gradient, variable = ticket_of(pair)
    before = rows()
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError), match="'t'"):
        het_tf.apply([(change(gradient), variable)])
    np.testing.assert_array_equal(rows(), before)
    het_tf.apply([(gradient, variable)])  # the gradient is still there
    assert het_tf.Table("t").updates == 1


def test_a_dropped_gradient_is_refused():
    pair = Pair()
    old, variable = ticket_of(pair)
    for _ in range(63):
        ticket_of(pair)
    het_tf.apply([(old, variable)])
    old, _ = ticket_of(pair)
    for _ in range(256):
        ticket_of(pair)
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"'t' .*newest 64 gradients"):
        het_tf.apply([(old, variable)])


def test_a_gradient_of_before_the_reset_is_refused():
    pair = Pair()
    old, variable = ticket_of(pair)
    het_tf.reset()
    with pytest.raises((RuntimeError, tf.errors.FailedPreconditionError), match="'t'"):
        het_tf.apply([(old, variable)])


def test_a_gradient_of_another_process_is_refused():
    pair = Pair()
    gradient, variable = ticket_of(pair)
    other = np.roll(gradient.numpy(), 7, 0)
    with pytest.raises(
        tf.errors.FailedPreconditionError, match=r"'t' .*newest 64 gradients.*no row was changed"
    ):
        het_tf.apply([(tf.constant(other), variable)])


def test_other_updates_of_the_variable_are_refused():
    pair = Pair()
    gradient, variable = ticket_of(pair)
    with pytest.raises(RuntimeError, match=r"'t' is assigned.*het_tf\.apply"):
        variable.assign(gradient)
    for move in (variable.assign_sub, variable.assign_add):
        with pytest.raises(RuntimeError, match=r"'t' are not moved.*het_tf\.apply"):
            move(0.1 * gradient)
    with pytest.raises(RuntimeError, match="is not an array"):
        variable.numpy()
    with pytest.raises(RuntimeError, match="is not an array"):
        variable.assign(np.zeros((64, 2), np.float32))


@pytest.mark.parametrize("wrapper", [tf.function, lambda function: function])
def test_a_gradient_of_the_gradient_is_refused(wrapper):
    layer = Pair().ours.layers[0]

    def second(ids):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = tf.reduce_sum(layer(ids) ** 2)
            gradient = inner.gradient(loss, layer.trainable_variables[0])
        return outer.gradient(gradient, layer.trainable_variables[0])

    with pytest.raises(Exception, match=r"gradient of a gradient"):
        wrapper(second)(tf.constant([1], tf.int64))


def test_a_rate_of_the_model_needs_an_optimizer():
    layer = het_tf.keras.Embedding(DIM, name="t", optimizer=het_tf.optimizers.SGD("model"))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([1])))
    gradient = tape.gradient(loss, layer.anchor)
    with pytest.raises(RuntimeError, match="learning_rate='model'"):
        het_tf.apply([(gradient, layer.anchor)])
    before = het_tf.Table("t").lookup([1])
    keras.optimizers.SGD(0.25).apply_gradients([(gradient, layer.anchor)])
    np.testing.assert_allclose(het_tf.Table("t").lookup([1]), before - 0.25)


@pytest.mark.parametrize(
    "name", ["MirroredStrategy", "MultiWorkerMirroredStrategy", "ParameterServerStrategy", "TPUStrategy"]
)
def test_strategies_are_refused_by_name(monkeypatch, name):
    """Would catch: replicas that each update the rows."""
    layer = het_tf.keras.Embedding(2, name="t")
    before = het_tf.Table("t").lookup([1])
    monkeypatch.setattr(tf.distribute, "has_strategy", lambda: True)
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: object.__new__(getattr(tf.distribute, name)))
    refused = rf"'.*' is used under {name}, .* one rank a device, without a strategy: het run --nproc N"
    with pytest.raises(RuntimeError, match=refused):
        het_tf.keras.Embedding(2, name="other")
    with pytest.raises(RuntimeError, match=refused):
        layer(tf.constant([1], tf.int64), training=True)
    np.testing.assert_array_equal(het_tf.Table("t").lookup([1]), before)
