"""Runs cases on two ranks in order: `het run --nproc 2 ranks_worker.py DIRECTORY CASE...`, or horovodrun.

A case is a name, or a name and its arguments with colons between them. Each rank prints "CASE: ok" when it is
through; the first error ends the job. Every case finds an empty server.
"""

from __future__ import annotations

import gc
import math
import sys
import warnings
from pathlib import Path

import checkpoint_worker
import exact_worker
import horovod_worker
import layers_lib
import numpy as np
import saving_lib
import tensorflow as tf
from rules_lib import learn
from safetensors.numpy import load

import het_tf
from het_tf.ext.checkpoint.python.model import dense
from het_tf.ext.ps.python import address
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.partitions import positions
from het_tf.ext.serving.python.publishing import dense_store
from het_tf.ext.serving.python.publishing.versions import Versions
from het_tf.ext.streams.python.agreement import Stream
from het_tf.ext.workers.python.mesh_tensors import TensorMesh
from het_tf.python.session import collective, settings
from het_tf.python.table import registry


def keras_files(workers, place):
    """het_tf.callbacks.Checkpoint writes files of Keras that have what both ranks have trained."""
    # push: a rank holds back what it has trained; pull 0: in the end rank 0 reads what there is.
    model = het_tf.workers.distribute(
        saving_lib.make_model(
            "sgd", cache=het_tf.Cache(rows=64, staleness=het_tf.Bounds(0, 50), wire="float32")
        )
    )
    ids, labels = saving_lib.data(seed=workers.rank)
    saves = [
        het_tf.callbacks.Checkpoint(str(place / "x.weights.h5"), save_weights_only=True),
        het_tf.callbacks.Checkpoint(str(place / "x.keras")),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", het_tf.python.table.notes.TablesNotSavedWarning)
        model.fit(
            ids, labels, batch_size=16, epochs=2, verbose=0, shuffle=False,
            callbacks=saves,
        )  # fmt: skip
    het_tf.flush(all_ranks=True)
    found = {**saving_lib.everything(), "predictions": saving_lib.predictions(model)}
    if workers.rank == 0:
        np.savez(place / "keras_files.npz", **found)


def export(workers, place):
    """Rank 0 writes an export that has the rows of both ranks, and its error is one of both."""
    table = het_tf.TableConfig("item", 4)
    ids = tf.keras.Input((), dtype="int64", name="ids")
    layer = het_tf.keras.EmbeddingCollection(
        {"ids": het_tf.FeatureConfig(table)}, cache=het_tf.Cache(staleness=math.inf)
    )
    model = tf.keras.Model({"ids": ids}, layer({"ids": ids}))
    mine = {"ids": tf.constant([10 * workers.rank, 1], tf.int64)}  # which its cache holds back
    learn(layer, lambda: layer(mine, training=True)["ids"], reduce=True)
    path = place / "export"
    result = het_tf.export(model, path, verbose=False)
    assert (result is not None) == (workers.rank == 0)
    assert (path / "saved_model.pb").exists()  # whichever rank returns
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    asked = tf.constant([0, 1, 10, 99], tf.int64)
    stored = het_tf.Table("item").lookup(asked.numpy(), stored=True)
    np.testing.assert_array_equal(serve(ids=asked)["ids"].numpy(), stored)
    assert het_tf.Table("item").size == 3
    elsewhere = path if workers.rank == 0 else place / "elsewhere"
    # Only rank 0 has something in the way, and the other one does not wait for it.
    horovod_worker.refused((FileExistsError, RuntimeError), "exists", lambda: het_tf.export(model, elsewhere))


def publish(workers, place):
    """Versions while both ranks train, and one with what both held back; rank 0 alone writes."""
    model = het_tf.workers.distribute(
        saving_lib.make_model("sgd", cache=het_tf.Cache(rows=64, staleness=math.inf))
    )
    ids, labels = saving_lib.data(seed=workers.rank)
    publisher = het_tf.callbacks.Publish(every=0.01, keep=1000)
    model.fit(ids, labels, batch_size=2, epochs=2, verbose=0, callbacks=[publisher])
    with Client(address.parse(settings.parameter_server())) as client:
        versions = Versions(client, "").last()
        assert len(versions) > 2 and versions[-1].cut == positions(client, "")
        collective.barrier()
        learn(model, lambda: model(ids[:4], training=True), reduce=True)
        collective.barrier()
        before = positions(client, "")
        collective.barrier()
        version = het_tf.publish(model)
        assert (version is not None) == (workers.rank == 0)
        collective.barrier()
        there = Versions(client, "").last(1)[0]
        assert there.number == versions[-1].number + 1 and there.cut == positions(client, "") != before
        content = load(dense_store.fetch(client, there))
        for name, array in dense.values(dense.weights_of(model)).items():
            np.testing.assert_array_equal(content[name], array)


class BuildsItself(horovod_worker.Subclassed):
    """Makes its weights in a `build` of its own, which Keras calls while it traces the first step."""

    def build(self, input_shape):
        self.out.build((None, 7))
        self.built = True


def begin(workers, place):
    """Weights that the first step makes: all ranks take it with rank 0's, in `fit` and without it."""
    tf.keras.utils.set_random_seed(workers.rank)
    ids, x, y = (one[:64] for one in exact_worker.part(2, workers.rank))
    for name in ("begin", "begin_batch"):
        model = het_tf.workers.distribute(BuildsItself(name))
        model.compile("sgd", "mse")
        if name == "begin":
            model.fit([ids, x], y, batch_size=16, verbose=0)
        else:
            model.train_on_batch([ids, x], y)
        horovod_worker.same(workers, name, horovod_worker.weights_of(model))


def bits(horovod, place):
    """Horovod's means have the bits of those of het_tf's connections."""
    del place
    rng = np.random.default_rng(horovod.rank)
    shapes = [(3, 5), (), (0, 4), (70_000,)]
    gradients = [tf.constant(rng.normal(size=shape), tf.float32) for shape in shapes]
    gradients.append(tf.constant(rng.normal(size=7), tf.float64))
    indices = tf.constant(rng.integers(0, 9, 4 + horovod.rank))
    rows = tf.constant(rng.normal(size=(4 + horovod.rank, 2)), tf.float32)
    gradients.append(tf.IndexedSlices(rows, indices, tf.constant([9, 2], tf.int64)))
    ours = tf.function(lambda these: TensorMesh.mean(horovod, these, "bits"))(gradients)
    theirs = tf.function(lambda these: horovod.mean(these, "bits"))(gradients)
    for one, other in zip(tf.nest.flatten(ours, True), tf.nest.flatten(theirs, True), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_array_equal(one, other)


def leave_nothing(workers):
    """No tables, here and at the server."""
    het_tf.flush(all_ranks=True)
    keys = registry.keys()
    if workers.rank == 0:
        collective.barrier()  # the others know of no table
        for namespace, name in keys:
            het_tf.Table(name, namespace).drop()
    for namespace in {"", *registry.namespaces()}:
        het_tf.reset(namespace)
    if workers.rank != 0:
        collective.barrier()
    tf.keras.backend.clear_session()
    # Streams that were placed: a case has ranks that disagree on them.
    Stream._passes.clear()
    Stream._notes = None
    collective.barrier()


CASES = {
    "begin": begin,
    "layers": lambda workers, place: layers_lib.begin_with_rank_0(workers.rank),
    "bits": bits,
    "ways": lambda workers, place: horovod_worker.train_in_every_way(workers),
    "more_ways": lambda workers, place: horovod_worker.train_in_every_way(workers, more=True),
    "metrics": horovod_worker.metrics,
    "loops": horovod_worker.loops,
    "orders": lambda workers, place: horovod_worker.orders(workers),
    "exact": lambda workers, place: exact_worker.exact(workers, place / "exact"),
    "more_exact": lambda workers, place: exact_worker.exact(workers, place / "exact", more=True),
    "save": checkpoint_worker.save,
    "fail": checkpoint_worker.fail,
    "load": checkpoint_worker.load,
    "keras_files": keras_files,
    "export": export,
    "publish": publish,
    "end": lambda workers, place: horovod_worker.end_together(workers),
    "die": horovod_worker.die,
}


def main() -> None:
    het_tf.init()
    workers = settings.workers()
    gc.freeze()  # clear_session looks at all that is left, after each case
    for words in sys.argv[2:]:
        name, *arguments = words.split(":", 1)
        CASES[name](workers, Path(sys.argv[1]), *arguments)
        print(f"{words}: ok", flush=True)
        leave_nothing(workers)
    print(f"rank {workers.rank} is done")


if __name__ == "__main__":
    main()
