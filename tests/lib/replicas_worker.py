"""Two replicas on two logical CPUs, against keras.layers.Embedding: `python replicas_worker.py CASE...`.

The model of keras.layers.Embedding has the whole batch on one device: replicas have to learn what one learns.
TensorFlow takes logical devices only before its first op, so these cases have a separate process. Each
prints "CASE: ok", or what it has raised.
"""

from __future__ import annotations

import functools
import sys
import traceback

import numpy as np
import tensorflow as tf
from floats_lib import MODEL, SUM, assert_close

import het_tf

keras = tf.keras
IDS, DIM, BATCH, STEPS = 12, 3, 8, 4
EAGERLY = {"run_eagerly": True}  # without the graph, which takes longer than the steps
UNEVEN = 7  # one replica gets 4 samples, the other one 3; Keras refuses it as the first batch of a fit
OPTIMIZERS = {
    "sgd": (het_tf.optimizers.SGD(0.5), lambda: keras.optimizers.SGD(0.5)),
    # With the scale that is the default, sums of the whole batch overflow where those of half of it do not.
    "scaled": (
        het_tf.optimizers.SGD(0.5),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=2**8),
    ),
    "adagrad": (het_tf.optimizers.Adagrad(0.5, 0.1, 1e-7), lambda: keras.optimizers.Adagrad(0.5)),
}


def batches(batch=BATCH):
    """Ids [batch, 2] and labels [batch, 1] of each step. Both replicas have id 0 in all of them."""
    rng = np.random.default_rng(1)
    ids = rng.integers(0, IDS, (STEPS, batch, 2))
    ids[:, [0, -1], 0] = 0
    return ids, rng.normal(size=(STEPS, batch, 1)).astype(np.float32)


@functools.cache
def mirrored():
    """The one strategy of the process: a second would mix its collectives with those of the first."""
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


class DenseGradients(keras.layers.Embedding):
    """As its base. Keras' Adagrad squares the slices of a sparse gradient before it adds equal ids."""

    def call(self, inputs):
        return tf.tensordot(tf.one_hot(inputs, IDS), tf.convert_to_tensor(self.embeddings), 1)


REFERENCES = {"adagrad": DenseGradients}


def make(embedding, optimizer, **more):
    """A model whose loss is not linear in its rows."""
    ids = keras.Input((2,), dtype="int64")
    hidden = keras.layers.Dense(4, "tanh")(keras.layers.Flatten()(embedding(ids)))
    model = keras.Model(ids, keras.layers.Dense(1, dtype="float32")(hidden))
    model.compile(optimizer, "mse", **more)
    return model


def pair(name, strategy, more=None, cache=None):
    """The replicated model with a table, and one with Keras' own layer on one device, with equal weights."""
    table_optimizer, optimizer = OPTIMIZERS[name]
    with strategy.scope():
        layer = het_tf.keras.Embedding(DIM, name="t", optimizer=table_optimizer, cache=cache)
        ours = make(layer, optimizer(), **(more or {}))
    theirs = make(REFERENCES.get(name, keras.layers.Embedding)(IDS, DIM), optimizer(), run_eagerly=True)
    theirs.layers[1].set_weights([rows()])
    for mine, other in zip(ours.layers[3:], theirs.layers[3:], strict=True):
        other.set_weights(mine.get_weights())
    return ours, theirs


def rows():
    return het_tf.Table("t").lookup(np.arange(IDS))


def compare(ours, theirs, seen, ulps=SUM):
    """Rows and dense weights are those of Keras, and a row has one tick for each step that it was in."""
    equal(weights(ours, rows()), weights(theirs), ulps)
    found = het_tf.Table("t").scan()
    clocks = dict(zip(found["ids"].tolist(), found["clocks"].tolist(), strict=True))
    assert clocks == {key: sum(key in step for step in seen) for key in set(np.concatenate(seen, None))}
    assert het_tf.Table("t").updates == len(seen)


def weights(model, rows=None):
    """The rows and the dense weights."""
    rows = model.layers[1].get_weights()[0] if rows is None else rows
    return [rows, *(weight for layer in model.layers[3:] for weight in layer.get_weights())]


def equal(found, expected, ulps=SUM):
    # A weight that is nearly 0 is a sum of terms as large as the others'.
    largest = max(np.abs(b).max(initial=0) for b in expected)
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b, ulps, magnitude=largest)


def train(model, ids, labels, table=False, planned=False):
    """Trains on all batches, in order; returns the weights after each."""
    seen = []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(weights(model, rows() if table else None))
    )
    data = tf.data.Dataset.from_tensor_slices((ids.reshape(-1, 2), labels.reshape(-1, 1))).batch(BATCH)
    model.fit(het_tf.lookahead(data, model.layers[1]) if planned else data, verbose=0, callbacks=[note])
    return seen


def fit_planned():
    ours, theirs = pair("adagrad", mirrored(), cache=het_tf.Cache(rows=5, staleness=0))
    ids, labels = batches()
    expected = train(theirs, ids, labels)
    found = train(ours, ids, labels, table=True, planned=True)
    # Replicas look up parts of a batch, which are not planned.
    assert het_tf.Table("t").stats()["planned"] == 0
    assert len(found) == STEPS
    for mine, other in zip(found, expected, strict=True):
        equal(mine, other)
    compare(ours, theirs, ids)
    before = rows()
    scores = ours.predict(ids[0], batch_size=BATCH, verbose=0)
    assert_close(scores, theirs(ids[0]), MODEL)
    ours.evaluate(ids[0], labels[0], verbose=0)
    np.testing.assert_array_equal(rows(), before)


def loop():
    """A custom loop as TensorFlow's guide has it: each replica has its share of all losses."""
    strategy = mirrored()
    ours, theirs = pair("sgd", strategy)
    with strategy.scope():
        ours.optimizer.build(ours.trainable_variables)

    def step(model, ids, labels):
        with tf.GradientTape() as tape:
            errors = tf.reduce_mean((model(ids, training=True) - labels) ** 2, -1)
            loss = tf.nn.compute_average_loss(errors, global_batch_size=UNEVEN)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    def replicas(ids, labels):
        strategy.run(step, (ours, ids, labels))

    ids, labels = batches(UNEVEN)
    run = tf.function(replicas)
    data = tf.data.Dataset.from_tensor_slices((ids.reshape(-1, 2), labels.reshape(-1, 1))).batch(UNEVEN)
    for element in strategy.experimental_distribute_dataset(data):
        run(*element)
    for element in data:
        step(theirs, *element)
    compare(ours, theirs, ids)


def one_device():
    ours, theirs = pair("adagrad", tf.distribute.OneDeviceStrategy("CPU:1"), EAGERLY)
    ids, labels = batches()
    for model in (ours, theirs):
        model.fit(np.concatenate(ids), np.concatenate(labels), batch_size=BATCH, shuffle=False, verbose=0)
    compare(ours, theirs, ids)


def mixed():
    """In float16 the optimizer's loss scale is divided out, and the share of a replica is not."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    ours, theirs = pair("scaled", mirrored(), EAGERLY)
    ids, labels = batches()
    for model in (ours, theirs):
        train(model, ids, labels, table=model is ours)
    compare(ours, theirs, ids, 2**13 * SUM)  # float16 keeps 13 bits less
    before = rows()
    labels[0, 0] = 1e9  # overflows at one replica
    ours.fit(ids[0], labels[0], batch_size=BATCH, shuffle=False, verbose=0)
    np.testing.assert_array_equal(rows(), before)


def nan():
    """A gradient that is NaN at one replica is an error of the step, and changes no row."""
    ours, _ = pair("sgd", mirrored(), EAGERLY)
    ids, labels = batches()
    labels[0, -1] = np.nan
    try:
        ours.fit(ids[0], labels[0], batch_size=BATCH, shuffle=False, verbose=0)
    except tf.errors.InvalidArgumentError as error:
        assert "NaN or Inf" in str(error), error
    else:
        raise AssertionError("not refused")
    assert het_tf.Table("t").size == 0


def central_storage():
    try:
        with tf.distribute.experimental.CentralStorageStrategy().scope():
            het_tf.keras.Embedding(DIM, name="t")
    except RuntimeError as error:
        assert "CentralStorageStrategy" in str(error) and "MirroredStrategy" in str(error), error
    else:
        raise AssertionError("not refused")


CASES = {
    "fit_planned": fit_planned,
    "loop": loop,
    "mixed": mixed,
    "nan": nan,
    "central_storage": central_storage,
    "one_device": one_device,
}


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    keras.utils.set_random_seed(3)
    for case in sys.argv[1:]:
        try:
            CASES[case]()
            print(f"{case}: ok", flush=True)
        except Exception:
            print(f"{case}: {traceback.format_exc()}", flush=True)
        het_tf.reset()
        keras.mixed_precision.set_global_policy("float32")
        keras.backend.clear_session()


if __name__ == "__main__":
    main()
