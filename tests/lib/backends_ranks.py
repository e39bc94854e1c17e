"""Two ranks on the backend that KERAS_BACKEND names: `het run --nproc 2 backends_ranks.py FOLDER CASE...`

Each rank prints "CASE: ok" when it is through; the first error ends the job.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import warnings
from pathlib import Path

import backends_worker
import keras
import layers_lib
import numpy as np
from backends_lib import DIM, apply, array, gradients

import het_tf
from het_tf.ext.workers.python.backends import ops
from het_tf.ext.workers.python.metrics import global_states
from het_tf.python.session import collective, settings

BACKEND = keras.backend.backend()
IDS, ROWS, BATCH = 40, 192, 8
SYNCHRONOUS = het_tf.Cache(rows=64, staleness=0)


def data():
    """What all ranks together read in batches of ranks * BATCH."""
    rng = np.random.default_rng(3)
    ids = rng.integers(0, IDS, (ROWS, 2)).astype("int32")
    return ids, (ids.sum(1, keepdims=True) % 3 == 0).astype("float32")


def model_of(name, cache=SYNCHRONOUS, width=4):
    optimizer = het_tf.optimizers.Adam(0.02) if name == "accumulate" else het_tf.optimizers.SGD(0.5)
    embed = het_tf.keras.Embedding(DIM, name=name, optimizer=optimizer, cache=cache)
    inputs = keras.Input((2,), dtype="int32")
    hidden = keras.layers.Dense(width, "tanh")(keras.layers.Flatten()(embed(inputs)))
    return keras.Model(inputs, keras.layers.Dense(1, "sigmoid", dtype="float32")(hidden), name="m")


def compiled(model):
    auc = keras.metrics.AUC(name="auc", num_thresholds=50)
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy", metrics=[auc])
    return model


def dense(model):
    return [one for layer in model.layers[2:] for one in layer.get_weights()]


def fitted(model, ids, labels, batch):
    history = model.fit(
        ids, labels, batch_size=batch, epochs=3, shuffle=False, verbose=0,
        validation_data=(ids[: 4 * batch], labels[: 4 * batch]),
    ).history  # fmt: skip
    het_tf.flush(all_ranks=True)
    name = model.layers[1].name
    found = {"rows": het_tf.Table(name).lookup(np.arange(IDS))}
    found |= {f"weight{number}": one for number, one in enumerate(dense(model))}
    return found | {f"history/{key}": np.array(value) for key, value in history.items()}


def union(name, start):
    """What one process finds with the union of the ranks' batches; `start`: dense weights to begin with."""
    model = compiled(model_of(name, cache=None))
    for layer, number in zip([one for one in model.layers[2:] if one.weights], (0, 2), strict=True):
        layer.set_weights(start[number : number + 2])
    return fitted(model, *data(), 2 * BATCH)


# --- cases --------------------------------------------------------------------------------------------------


def fit(workers, place, name="fit"):
    """`fit` begins with rank 0's weights, averages gradients, and merges metrics."""
    keras.utils.set_random_seed(workers.rank())
    model = het_tf.workers.distribute(compiled(model_of(name)))
    assert het_tf.workers.distribute(model) is model
    if workers.rank() == 0:
        np.savez(place / "start.npz", *dense(model))
    found = fitted(model, *het_tf.workers.shard(data()), BATCH)
    np.savez(place / f"{name}{workers.rank()}.npz", **found)


def accumulate(workers, place):
    """Under init(accumulate=True) a row that both ranks use gets one update by Adam; an error is of both."""
    fit(workers, place, "accumulate")
    model = het_tf.workers.distribute(compiled(model_of("nan")))
    ids, labels = het_tf.workers.shard(data())
    before = het_tf.Table("nan").lookup(np.arange(IDS))
    weights = np.full(BATCH, np.nan if workers.rank() == 1 else 1.0, "float32")
    with refused(Exception, "is NaN or Inf"):
        model.train_on_batch(ids[:BATCH], labels[:BATCH], sample_weight=weights)
    np.testing.assert_array_equal(het_tf.Table("nan").lookup(np.arange(IDS)), before)


def batches(workers, place):
    """train_on_batch begins with rank 0's weights, too, and the ranks stay equal."""
    del place
    keras.utils.set_random_seed(workers.rank())
    model = het_tf.workers.distribute(compiled(model_of("batches")))
    ids, labels = het_tf.workers.shard(data())
    for number in range(3):
        part = slice(BATCH * number, BATCH * number + BATCH)
        model.train_on_batch(ids[part], labels[part])
    same(dense(model))


def same(arrays):
    of_ranks = settings.workers().gather_objects([np.asarray(one).tolist() for one in arrays], "test.same")
    for one, other in zip(*of_ranks, strict=True):
        np.testing.assert_array_equal(one, other)


def merged(workers, place):
    """Metrics of all ranks are those of one process with all samples; afterwards each rank has its own."""
    del place
    rng = np.random.default_rng(5)
    labels, scores = rng.integers(0, 2, (120, 1)), rng.random((120, 1))

    def metrics(part):
        found = [keras.metrics.AUC(), keras.metrics.MeanSquaredError()]
        for one in found:
            one.update_state(labels[part], scores[part])
        return found

    mine = metrics(slice(0, 50) if workers.rank() == 0 else slice(50, 120))
    before = [float(one.result()) for one in mine]
    with global_states(mine):
        np.testing.assert_allclose(
            [float(one.result()) for one in mine],
            [float(one.result()) for one in metrics(slice(0, 120))],
            rtol=1e-6,
        )
    assert [float(one.result()) for one in mine] == before


def loop(workers, place):
    """A loop of one's own: broadcast, reduce_gradients, apply. Then without reduce_gradients: refused."""
    del place
    keras.utils.set_random_seed(workers.rank())
    model = model_of("loop")
    het_tf.workers.broadcast(model)
    optimizer = keras.optimizers.SGD(0.1)
    variables = model.trainable_variables
    optimizer.build(variables)
    ids, labels = (keras.ops.convert_to_tensor(one) for one in het_tf.workers.shard(data()))

    def loss():
        return keras.ops.mean((model(ids[:BATCH], training=True) - labels[:BATCH]) ** 2)

    for _ in range(3):
        _, found = gradients(loss, variables)
        apply(optimizer, het_tf.workers.reduce_gradients(found, variables), variables)
    same(dense(model))
    assert het_tf.Table("loop").updates == 3
    _, found = gradients(loss, variables)
    with refused((ValueError, RuntimeError, Exception), "every rank would train a different model"):
        apply(optimizer, found, variables)
    with refused(ValueError, f"there are {len(found) - 1} gradients and {len(found)} variables"):
        het_tf.workers.reduce_gradients(found[1:], variables)


@contextlib.contextmanager
def refused(kinds, text):
    try:
        yield
    except kinds as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"not refused: {text}")


def nan(workers, place):
    """A NaN of one rank is one of all: none updates a row, and all go on."""
    del place
    model = model_of("nan")
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0), "mse")
    model = het_tf.workers.distribute(model)
    ids, labels = het_tf.workers.shard(data())
    for number in range(3):
        y = labels[:BATCH] * (np.inf if number == 1 and workers.rank() == 1 else 1)
        model.train_on_batch(ids[:BATCH], y.astype("float32"))
    assert het_tf.Table("nan").updates == 2
    same(dense(model))
    assert np.isfinite(dense(model)[0]).all()


def shards(workers, place):
    """Parts of arrays, and of a data set of PyTorch; what has no parts is refused."""
    del place
    rank = workers.rank()
    part = het_tf.workers.shard({"x": np.arange(7), "y": (np.arange(7) + 10,)})
    assert part["x"].tolist() == [rank, rank + 2, rank + 4] == (part["y"][0] - 10).tolist()
    assert len(het_tf.workers.shard(np.arange(7), drop_remainder=False)) == 4 - rank
    with refused(ValueError, "data is a list, which het_tf.workers.shard does not support"):
        het_tf.workers.shard([1, 2])
    if BACKEND == "tensorflow":
        return
    assert array(het_tf.workers.shard(keras.ops.arange(4))).tolist() == [rank, rank + 2]
    with refused(ImportError, "needs TensorFlow"):
        het_tf.workers.shard_placed(np.arange(7), by="user", batch=2)
    with refused(ImportError, "het_tf.workers.until_shortest needs TensorFlow"):
        het_tf.workers.until_shortest  # noqa: B018
    if BACKEND == "torch":
        from torch.utils.data import DataLoader, IterableDataset, TensorDataset

        ids, labels = data()
        ids, labels = keras.ops.convert_to_tensor(ids), keras.ops.convert_to_tensor(labels)
        mine = het_tf.workers.shard(TensorDataset(ids, labels))
        assert len(mine) == ROWS // 2 and (mine[1][0] == ids[2 + rank]).all()
        with refused(ValueError, "(of a DataLoader its `dataset`)"):
            het_tf.workers.shard(DataLoader(mine))

        class Stream(IterableDataset):
            def __iter__(self):
                return iter(mine)

        model = compiled(het_tf.workers.distribute(model_of("shards")))
        model.fit(DataLoader(mine, batch_size=BATCH), verbose=0)
        with refused(ValueError, "x is a DataLoader of unknown length on rank 0"):
            model.fit(DataLoader(Stream(), batch_size=BATCH), verbose=0)
    with refused(ValueError, "x is a generator of unknown length on rank 0"):
        ops.fits(None, lambda x=None, steps_per_epoch=None: None)(iter_of(3))
    assert ops.fits(None, lambda x=None, steps_per_epoch=None: 5)(iter_of(3), steps_per_epoch=2) == 5


def iter_of(n):
    yield from range(n)


def differ(workers, place):
    """Ranks whose models or steps differ are all told, before a weight has changed."""
    del place
    ids, labels = het_tf.workers.shard(data())
    model = compiled(het_tf.workers.distribute(model_of("steps")))
    with refused(RuntimeError, "the ranks have 12, 11 batches an epoch"):
        end = ROWS // 2 - BATCH * workers.rank()
        model.fit(ids[:end], labels[:end], batch_size=BATCH, verbose=0)
    model = compiled(het_tf.workers.distribute(model_of("differ", width=4 + workers.rank())))
    with refused(RuntimeError, "model 'm' differs between rank 0 and rank 1 in its "):
        model.fit(ids, labels, batch_size=BATCH, verbose=0)


def saved(workers, place):
    """A checkpoint has the rows of both ranks, and rank 0 alone writes it."""
    model = het_tf.workers.distribute(compiled(model_of("saved", het_tf.Cache(rows=64, staleness=50))))
    ids, labels = het_tf.workers.shard(data())
    saver = het_tf.callbacks.Checkpoint(str(place / "checkpoints"))
    model.fit(ids, labels, batch_size=BATCH, verbose=0, callbacks=[saver])
    collective.barrier()
    before = het_tf.Table("saved").lookup(np.arange(IDS), stored=True)
    collective.barrier()
    het_tf.Table("saved").clear() if workers.rank() == 0 else None
    collective.barrier()
    het_tf.checkpoint.restore(place / "checkpoints", model)
    np.testing.assert_array_equal(het_tf.Table("saved").lookup(np.arange(IDS), stored=True), before)


def layers(workers, place):
    """What layers keep beside their variables is rank 0's from the first step on."""
    del place
    layers_lib.begin_with_rank_0(workers.rank())


def exact(workers, place):
    """Rows of a rank's own: their updates have one order, so they are equal bit for bit on all backends."""
    model, ids, labels = backends_worker.exact_model()
    mine = {name: np.where(one < 0, one, 2 * one + workers.rank()) for name, one in ids.items()}
    part = slice(0, 40 * backends_worker.BATCH)
    mine = {name: one[part].astype("int32") for name, one in mine.items()}
    model = het_tf.workers.distribute(model)
    model.fit(mine, labels[part], batch_size=backends_worker.BATCH, shuffle=False, verbose=0)
    het_tf.flush(all_ranks=True)
    if workers.rank() == 0:
        np.savez(place / f"{BACKEND}-ranks.npz", **backends_worker.tables(["item", "wide"]))
    collective.barrier()


def dies(workers, place):
    """Rank 1 is killed in its third step."""
    del place
    model = het_tf.workers.distribute(compiled(model_of("dies")))

    class Ends(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2 and workers.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    model.fit(*het_tf.workers.shard(data()), batch_size=BATCH, verbose=0, epochs=1000, callbacks=[Ends()])


def raises(workers, place):
    """Rank 1 has an error of its own."""
    del place
    model = het_tf.workers.distribute(compiled(model_of("raises")))

    class Raises(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2 and workers.rank() == 1:
                raise OSError("the disk of rank 1 is full")

    model.fit(*het_tf.workers.shard(data()), batch_size=BATCH, verbose=0, epochs=1000, callbacks=[Raises()])


def main(place, *cases):
    het_tf.init(accumulate="accumulate" in cases)
    warnings.simplefilter("error", het_tf.HetWarning)
    for case in cases:
        globals()[case](het_tf.workers, Path(place))
        print(f"{case}: ok", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
