"""One table on three backends of Keras: equal rows by equal gradients, and each opens what another has saved.

Runs where PyTorch and JAX are; HET_TEST_TENSORFLOW names a Python with TensorFlow (`make test-backends`).
"""

import itertools
import os
import subprocess
import sys
from functools import partial

import keras
import numpy as np
import pytest
import ranks
from backends_lib import BACKEND

import het_tf

PYTHONS = {"torch": sys.executable, "jax": sys.executable}
if other := os.environ.get("HET_TEST_TENSORFLOW"):
    PYTHONS["tensorflow"] = other
OTHERS = ("torch", "jax")
NO_TENSORFLOW = "HET_TEST_TENSORFLOW names no Python"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BACKEND != "torch", reason="of all backends: once, with PyTorch"),
]
STEPS, BATCH, IDS = 100, 32, 200


def data(features, width):
    rng = np.random.default_rng(7)
    ids = {
        name: rng.integers(-1 if "history" in name else 0, IDS, (STEPS * BATCH, *shape)).astype("int32")
        for name, shape in features.items()
    }
    return ids, rng.normal(size=(STEPS * BATCH, width)).astype("float32")


def inputs_of(features):
    return {name: keras.Input(shape, dtype="int32", name=name) for name, shape in features.items()}


def halved_squares(y, predicted):
    """Its gradient by a row is one subtraction, times powers of two: no backend rounds it otherwise."""
    return 0.5 * keras.ops.sum(keras.ops.square(y - predicted), -1)


def exact_model():
    item = het_tf.TableConfig("item", 8, optimizer="adam", l2=1e-3, max_norm=2.0)
    wide = het_tf.TableConfig("wide", 1, optimizer="ftrl", l2=1e-4)
    shapes = {"item": (), "history": (2,), "user": (3,)}
    history = het_tf.FeatureConfig(item, combiner="mean", padding_id=-1)
    features = {"item": het_tf.FeatureConfig(item), "history": history, "user": het_tf.FeatureConfig(wide)}
    options = {"cache": het_tf.Cache(staleness=0), "name": "embed", "reuse": True}
    inputs = inputs_of(shapes)
    rows = het_tf.keras.EmbeddingCollection(features, **options)(inputs)
    out = keras.layers.Concatenate()([rows["item"], rows["history"], keras.layers.Flatten()(rows["user"])])
    model = keras.Model(inputs, out)
    model.compile("sgd", halved_squares)
    return model, *data(shapes, 19)


def tables(names, namespace=None):
    """Ids, rows with slots, and clocks of tables, by the order of ids."""
    found = {}
    for name in names:
        scan = het_tf.Table(name, namespace).scan()
        order = np.argsort(scan["ids"])
        found |= {f"{name}/{part}": scan[part][order] for part in ("ids", "rows", "clocks")}
    return found


def train(folder: str, server: str) -> dict:
    """A model whose rows' gradients are equal on all backends; returns its tables."""

    def fit(model, ids, labels):
        model.fit(ids, labels, batch_size=BATCH, shuffle=False, verbose=0)
        return model

    model = fit(*exact_model())
    found = {"exact": tables(["item", "wide"])}
    model.save_weights(f"{folder}/{BACKEND}.weights.h5")
    model.save(f"{folder}/{BACKEND}.keras")
    het_tf.checkpoint.save(f"{folder}/{BACKEND}-checkpoints", model, step=1)
    het_tf.reset()
    if server:
        het_tf.init(ps=server, namespace=BACKEND)
        fit(*exact_model())
        stats = het_tf.Table("item").stats()["cache"]
        assert stats["reads"] > 0 and stats["ticks"] > 0
        het_tf.flush()
        found["server"] = tables(["item", "wide"])
    return found


def open_it(folder: str, other: str, server: str) -> dict:
    """The tables that another backend has left in a folder and at the server, by each way to open them."""
    names = ["item", "wide"]
    model, *_ = exact_model()
    model.load_weights(f"{folder}/{other}.weights.h5")
    found = {"weights": tables(names)}
    het_tf.Table("item").clear()
    het_tf.checkpoint.restore(f"{folder}/{other}-checkpoints", model)
    found["checkpoint"] = tables(names)
    with het_tf.namespace("copy"):
        # A file of PyTorch names Keras' optimizer for PyTorch.
        keras.models.load_model(f"{folder}/{other}.keras", compile=False)
        found["keras"] = tables(names, "copy")
    for namespace in ("", "copy"):
        het_tf.reset(namespace)
    if server:
        het_tf.init(ps=server, namespace=other)
        exact_model()
        found["server"] = tables(names)
    return found


def served_model():
    """A model with a dense part and dropout, whose rows and weights begin otherwise in every process."""
    inputs = {"item": keras.Input((2,), dtype="int64" if BACKEND != "jax" else "int32", name="item")}
    rows = het_tf.keras.Embedding(4, "sum", name="rows", optimizer=het_tf.optimizers.SGD(0.5))(inputs["item"])
    hidden = keras.layers.Dropout(0.5, name="drop")(keras.layers.Dense(3, "tanh", name="hidden")(rows))
    return keras.Model(inputs, keras.layers.Dense(1, name="top")(hidden))


def export(folder: str, server: str) -> None:
    """TensorFlow exports a model for each other backend, to be followed."""
    for other in ("torch", "jax"):
        het_tf.init(ps=server, namespace=f"served-{other}")
        how = het_tf.serving.Native(follow=het_tf.serving.Follow(server))
        het_tf.export(served_model(), f"{folder}/served-{other}", how, verbose=False)
        het_tf.reset()


def publish(server: str) -> list:
    """Trains that model, and publishes its versions; returns ids, and answers for them."""
    het_tf.init(ps=server, namespace=f"served-{BACKEND}")
    model = served_model()
    model.compile(keras.optimizers.SGD(0.1), "mse")
    ids, labels = data({"item": (2,)}, 1)
    model.fit(ids, labels, epochs=1, verbose=0, callbacks=[het_tf.callbacks.Publish(every=1e-3)])
    model.fit(ids, labels, epochs=1, verbose=0)
    version = het_tf.publish(model, trained_through="the second epoch")
    assert version.number > 2 and version.trained_through == "the second epoch"
    some = ids["item"][:50]
    return [some.tolist(), model.predict({"item": some}, verbose=0)]


def serve(folder: str, ids: dict) -> dict:
    """TensorFlow answers by the followed models, each for its ids."""
    import tensorflow as tf

    assert het_tf.serving  # which registers the ops
    found = {}
    for other, asked in ids.items():
        served = tf.saved_model.load(f"{folder}/served-{other}").signatures["serving_default"]
        (answers,) = served(item=tf.constant(asked, tf.int64)).values()
        found[other] = answers.numpy()
    return found


@pytest.fixture
def run(tmp_path_factory):
    return partial(run_in, tmp_path_factory)


def run_in(tmp_path_factory, backend, function, **arguments):
    """What a function returns in a process of a backend."""
    place = tmp_path_factory.mktemp(backend)
    options = {"launcher": "python", "python": PYTHONS[backend], "KERAS_BACKEND": backend}
    return ranks.run(place, partial(function, **arguments), ranks=1, **options)[0]


@pytest.fixture(scope="module")
def server():
    """Address of a server with the het module; "" if there is none on this machine."""
    from het_tf.ext.ps.python.redis_server import LocalServer

    if ranks.missing(horovod=False):
        yield ""
        return
    with LocalServer.start(unix=True) as running:
        yield running.address


@pytest.fixture(scope="module")
def trained(tmp_path_factory, server):
    """A folder in which every backend has trained, and the tables of each."""
    folder = str(tmp_path_factory.mktemp("trained"))
    found = {one: run_in(tmp_path_factory, one, train, folder=folder, server=server) for one in PYTHONS}
    return folder, found


@pytest.mark.parametrize("where", ["exact", "server"])
def test_rows_slots_and_clocks_are_equal_bit_for_bit(trained, server, where):
    """At the server with staleness 0 as of one process."""
    if where != "exact" and not server:
        pytest.skip("no redis-server")
    first = trained[1]["torch"]["exact"]
    assert len(first["item/ids"]) == 200 and first["item/clocks"].max() > 20
    for backend in PYTHONS:
        np.testing.assert_equal(trained[1][backend][where], first)


@pytest.mark.parametrize("pair", itertools.permutations(["tensorflow", *OTHERS], 2), ids="-opens-".join)
def test_each_opens_what_another_has_saved(trained, server, run, pair):
    if not set(pair) <= set(PYTHONS):
        pytest.skip(NO_TENSORFLOW)
    opener, saver = pair
    found = run(opener, open_it, folder=trained[0], other=saver, server=server)
    assert set(found) == {"weights", "checkpoint", "keras", *(["server"] if server else [])}
    for one in found.values():
        np.testing.assert_equal(one, trained[1][saver]["exact"])


@pytest.mark.skipif("tensorflow" not in PYTHONS, reason=NO_TENSORFLOW)
@ranks.SERVER
def test_tensorflow_serves_what_others_train_and_publish(tmp_path, server, run):
    """TensorFlow exports the model once; rows and dense weights follow those of the other backend."""
    run("tensorflow", export, folder=str(tmp_path), server=server)
    published = {one: run(one, publish, server=server) for one in OTHERS}
    for backend in OTHERS:  # the follower needs no TensorFlow either
        words = ["-m", "het_tf", "serve", "follow", tmp_path / f"served-{backend}", "--once"]
        variables = ranks.environment(KERAS_BACKEND=backend)
        subprocess.run([PYTHONS[backend], *words], env=variables, check=True, timeout=600)
    ids = {backend: ids for backend, (ids, _) in published.items()}
    answers = run("tensorflow", serve, folder=str(tmp_path), ids=ids)
    for backend, (_, expected) in published.items():
        assert np.ptp(expected) > 0.01
        np.testing.assert_allclose(answers[backend], expected, atol=1e-5)
