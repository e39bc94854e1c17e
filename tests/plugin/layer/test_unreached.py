"""Options of `compile` and callbacks that do not reach tables: one warning, which says what to write."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import het_tf

keras = tf.keras
pytestmark = pytest.mark.usefixtures("fresh", "eagerly")

IDS, LABELS = np.arange(8), np.ones((8, 1), np.float32)


def said(callbacks=(), rate=0.05, compiled=0.1, **options):
    """The warnings of two fits of a compiled model."""
    embed = het_tf.keras.Embedding(2, name="t", optimizer=het_tf.optimizers.Adagrad(rate))
    model = keras.Sequential([keras.Input((), dtype="int64"), embed, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(compiled, **options), "mse")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(2):
            model.fit(IDS, LABELS, batch_size=4, epochs=2, verbose=0, callbacks=list(callbacks))
        model.evaluate(IDS, LABELS, verbose=0)
    return [str(one.message) for one in found if "tables" in str(one.message)]


OPTIONS = [
    ({"clipnorm": 1.0}, "max_norm=, the longest"),
    ({"clipvalue": 0.5}, "max_norm=, the longest"),
    ({"global_clipnorm": 1.0}, "max_norm=, the longest"),
    ({"weight_decay": 0.01}, "l2=, a penalty"),
    ({"use_ema": True}, "a learning-rate schedule"),
]


@pytest.mark.parametrize("options, instead", OPTIONS)
def test_an_option_that_does_not_reach_tables_is_told_once(options, instead):
    """Would catch: a job that was meant to clip or decay, and whose rows do neither, without a word."""
    (message,) = said(**options)
    ((name, value),) = options.items()
    assert f"optimizer SGD has {name}={value}, which does not reach its tables ('t')" in message
    assert f"Give each het_tf.TableConfig {'an optimizer with ' * (name == 'use_ema')}{instead}" in message


def test_options_are_told_together_and_others_not_at_all():
    (message,) = said(clipnorm=1.0, weight_decay=0.01)
    for words in ("has clipnorm=1.0, weight_decay=0.01, which", "max_norm=", "l2="):
        assert words in message
    assert said(momentum=0.5, nesterov=True) == []


CALLBACKS = [
    lambda: keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2),
    lambda: keras.callbacks.ReduceLROnPlateau("loss", patience=1),
]


@pytest.mark.parametrize("callback", CALLBACKS)
def test_a_callback_that_changes_the_rate_is_told_unless_it_reaches_tables(callback):
    """Would catch: a table that goes on at its own rate while the rest of the model slows down."""
    (message,) = said([callback()])
    assert f"is trained with {type(callback()).__name__}, which does not reach its tables ('t')" in message
    assert 'learning_rate="model", such as het_tf.optimizers.Adam("model")' in message
    het_tf.reset()
    assert said([callback()], rate="model") == []


def assign(optimizer):
    optimizer.learning_rate.assign(0.01)


def put(optimizer):
    optimizer.learning_rate = 0.01


@pytest.mark.parametrize("when, change", [("on_epoch_begin", assign), ("on_train_batch_end", put)])
def test_a_callback_of_the_users_is_told_when_it_has_changed_the_rate(change, when):
    """Would catch: only Keras' own callbacks are known."""

    def callback():
        own = keras.callbacks.Callback()
        setattr(own, when, lambda *_, **__: change(own.model.optimizer))
        return own

    (message,) = said([callback()])
    assert "has another learning_rate, 0.01 in place of 0.1, which does not reach its tables ('t')" in message
    het_tf.reset()
    own = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    assert said([callback()], rate=own) == [], "a table that has its own changes"


def test_a_compiled_schedule_is_told():
    (message,) = said(compiled=keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.9))
    assert "has learning_rate=ExponentialDecay(...), which does not reach its tables" in message
    assert 'learning_rate="model"' in message
    het_tf.reset()
    assert said(rate="model", compiled=keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.9)) == []
