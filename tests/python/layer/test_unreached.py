"""Options of `compile` and callbacks that do not reach tables: one warning, which says what to write."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import het_tf

keras = tf.keras
pytestmark = pytest.mark.usefixtures("fresh")

IDS, LABELS = np.arange(8), np.ones((8, 1), np.float32)


def said(callbacks=(), rate=0.05, **options):
    """The warnings of two fits of a compiled model."""
    embed = het_tf.keras.Embedding(2, name="t", optimizer=het_tf.optimizers.Adagrad(rate))
    model = keras.Sequential([keras.Input((), dtype="int64"), embed, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, **options), "mse")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(2):
            model.fit(IDS, LABELS, batch_size=4, epochs=2, verbose=0, callbacks=list(callbacks))
        model.evaluate(IDS, LABELS, verbose=0)
    return [str(one.message) for one in found if "tables" in str(one.message)]


@pytest.mark.parametrize(
    "options, instead",
    [
        ({"clipnorm": 1.0}, "max_norm=, the longest"),
        ({"clipvalue": 0.5}, "max_norm=, the longest"),
        ({"global_clipnorm": 1.0}, "max_norm=, the longest"),
        ({"weight_decay": 0.01}, "l2=, a penalty"),
        ({"use_ema": True}, "a learning-rate schedule"),
    ],
)
def test_an_option_that_does_not_reach_tables_is_told_once(options, instead):
    """Would catch: a job that was meant to clip or decay, and whose rows do neither, without a word."""
    (message,) = said(**options)
    ((name, value),) = options.items()
    assert f"is compiled with {name}={value}, which does not reach its tables ('t')" in message
    assert f"Give each het_tf.TableConfig {'an optimizer with ' * (name == 'use_ema')}{instead}" in message


def test_options_are_told_together_and_others_not_at_all():
    (message,) = said(clipnorm=1.0, weight_decay=0.01)
    assert (
        "with clipnorm=1.0, weight_decay=0.01, which" in message
        and "max_norm=" in message
        and "l2=" in message
    )
    assert said(momentum=0.5, nesterov=True) == []


@pytest.mark.parametrize(
    "callback",
    [
        lambda: keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2),
        lambda: keras.callbacks.ReduceLROnPlateau("loss", patience=1),
    ],
)
def test_a_callback_that_changes_the_rate_is_told_unless_it_reaches_tables(callback):
    """Would catch: a table that goes on at its own rate while the rest of the model slows down."""
    name = type(callback()).__name__
    found = said([callback()])
    assert f"is trained with {name}, which does not reach its tables ('t')" in found[0]
    assert 'learning_rate="model", such as het_tf.optimizers.Adam("model")' in found[0]
    het_tf.reset()
    assert said([callback()], rate="model") == []
