"""Planned lookups of a DataLoader or an iterator: rows are those of lookups that nobody planned."""

import gc
import os
import threading
from functools import partial
from pathlib import Path

import keras
import numpy as np
import pytest
from backends_lib import BACKEND, DIM, IDS, elsewhere, on_tensorflow, on_torch, rows
from tools_lib import python

import het_tf

SIZE, STEPS = 4, 6
pytestmark = pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, IDS, (SIZE * STEPS, *shape)).astype("int32")


def parts(x):
    """The batches of an array, or of each array of a dict."""
    if isinstance(x, dict):
        return [dict(zip(x, each, strict=True)) for each in zip(*map(parts, x.values()), strict=True)]
    return [x[at : at + SIZE] for at in range(0, len(x), SIZE)]


LABELS = np.ones((SIZE * STEPS, 1), "float32")


def stream(x):
    """Batches (x, labels) as the backend's users have them."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.data.Dataset.from_tensor_slices((x, LABELS)).batch(SIZE)
    return (pair for pair in zip(parts(x), parts(LABELS), strict=True))


def embed(combiner=None, **arguments):
    return het_tf.keras.Embedding(DIM, combiner, name="t", optimizer="sgd", **arguments)


def head(x, inputs):
    model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(keras.layers.Flatten()(x)))
    model.compile("sgd", "mse")
    return model


def functional():
    inputs = keras.Input((2,), dtype="int32")
    return head(embed()(inputs), inputs), ids(2), [ids(2)]


def sequential():
    layers = [keras.layers.BatchNormalization(), keras.layers.Dropout(0.5, seed=1), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((2,), dtype="int32"), embed("sum"), *layers])
    model.compile("sgd", "mse")
    return model, ids(2), [ids(2)]


def computed():
    """Two calls of one layer: of ids that the model computes, and of padded ones with a mask."""
    inputs = {"a": keras.Input((2,), dtype="int32"), "b": keras.Input((3,), dtype="int32")}
    layer = embed(padding_id=0)
    x = layer(keras.ops.mod(inputs["a"] * 5, IDS))
    y = layer(inputs["b"], mask=keras.ops.less(inputs["b"], 6))
    a, b = ids(2), ids(3, seed=1)
    found = [a * 5 % IDS, np.where(b < 6, b, 0)]
    return head(keras.layers.Concatenate(axis=1)([x, y]), inputs), {"a": a, "b": b}, found


def collection():
    table = het_tf.TableConfig("t", DIM, optimizer="sgd")
    features = {
        "a": het_tf.FeatureConfig(table, combiner="mean", padding_id=0),
        "b": het_tf.FeatureConfig(table, combiner="sum"),
    }
    inputs = {"b": keras.Input((3,), dtype="int32"), "a": keras.Input((2,), dtype="int32")}
    found = het_tf.keras.EmbeddingCollection(features)(inputs)
    x = {"a": ids(2) + 1, "b": ids(3) + 1}
    return head(keras.layers.Concatenate()([found["a"], found["b"]]), inputs), x, [*x.values()]


def vocabulary():
    words = keras.Input((2,), dtype="string")
    numbers = keras.layers.StringLookup(vocabulary=["red", "blue"], mask_token="")(words)
    x = np.array([["red", ""], ["blue", "red"], ["?", ""]] * (SIZE * STEPS // 3), object)
    found = [{"": 0, "?": 1, "red": 2, "blue": 3}[word] for word in x.ravel()]
    pooled = keras.layers.GlobalAveragePooling1D()(embed(padding_id=0)(numbers))
    return head(pooled, words), x, [np.array(found)]


MAKES = [functional, sequential, computed, collection, pytest.param(vocabulary, marks=on_tensorflow)]


@pytest.mark.parametrize("make", MAKES)
def test_rows_are_those_without_a_plan(make, tmp_path):
    """Would catch: ids of a layer's input in place of those that the model makes of it; in a profile, too."""
    found = []
    for ahead in (False, True):
        model, x, looked_up = make()
        batches = stream(x)
        batches = het_tf.lookahead(batches, model, window=3) if ahead else batches
        found.append([model.fit(batches, verbose=0).history["loss"], rows()])
        assert het_tf.Table("t").stats()["planned"] == STEPS * (2 if make is computed else 1) * ahead
        het_tf.reset()
        keras.utils.clear_session(free_memory=False)
        keras.utils.set_random_seed(0)
    assert np.ptp(found[0][1]) > 0
    np.testing.assert_equal(*found)
    model, x, looked_up = make()
    (table,) = het_tf.planner.profile(stream(x), model, out=tmp_path).tables
    all_ids = np.concatenate([one.ravel() for one in looked_up])
    if make in (computed, vocabulary):  # with padding
        all_ids = all_ids[all_ids != 0]
    assert (table.name, table.dim, table.uses) == ("t", DIM, len(all_ids))
    assert table.rows == len(np.unique(all_ids))
    with pytest.raises(ValueError, match="give a"):
        het_tf.planner.profile(3, model, out=tmp_path)


def test_a_layer_and_its_ids():
    layer = embed()
    inputs = keras.Input((2,), dtype="int32")
    model = head(layer(inputs), inputs)
    model.fit(het_tf.lookahead(stream(ids(2)), layer, inputs=lambda x, y: x), verbose=0)
    assert het_tf.Table("t").stats()["planned"] == STEPS


@on_tensorflow
def test_inputs_selects_the_inputs_of_a_model():
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices((ids(2), ids(3, seed=1))).batch(SIZE)
    model = computed()[0]
    assert len(list(het_tf.lookahead(data, model, inputs=lambda x, y: {"a": x, "b": y}))) == STEPS
    with pytest.raises(ValueError, match=r"layer .*cannot be called on the inputs .*give inputs=, a func"):
        het_tf.lookahead(data, model)


def by_a_weight():
    inputs, layer = keras.Input((2,), dtype="int32"), embed()
    x = keras.layers.Dense(2)(layer(inputs))
    return head(layer(keras.ops.cast(keras.ops.sum(x, -1), "int32")), inputs)


def nested():
    inputs = keras.Input((2,), dtype="int32")
    inner = keras.Sequential([keras.Input((2,), dtype="int32"), embed()], name="tower")
    return head(inner(inputs), inputs)


class Subclass(keras.Model):
    def __init__(self):
        super().__init__()
        self.rows = embed()

    def call(self, x):
        return self.rows(x * 2 + 1)


class Lazy(keras.Model):
    def build(self, shape):
        self.rows = embed()

    def call(self, x):
        return self.rows(x)


UNKNOWN = {
    by_a_weight: "calls layer 't' on ids that depend on 't'",
    nested: "calls layer 't' inside of 'tower'",
    Subclass: "calls layer 't' in code that Keras does not record",
    Lazy: "shows no layer of het_tf before its first call",
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_ids_that_only_the_step_knows_are_refused(kind, tmp_path):
    """Would catch: plans of other ids than the step's."""
    model, message = kind(), f"{UNKNOWN[kind]}.*give (that|its) layer in place of the model, and inputs="
    for ahead in (het_tf.lookahead, partial(het_tf.planner.profile, out=tmp_path)):
        with pytest.raises(ValueError, match=message):
            list(ahead(stream(ids(2)), model))
    model(ids(2))
    table = getattr(model, "rows", None) or embed()
    assert len(list(het_tf.lookahead(stream(ids(2)), table, inputs=lambda x, y: x))) == STEPS


@on_tensorflow
def test_ids_of_a_sample_must_be_known_to_tell_samples_apart(tmp_path):
    """Would catch: a profile that takes each id of a flat list for a sample."""
    x = keras.Input((3,), dtype="int32")
    rows = embed()(keras.ops.reshape(x, [-1]))
    model = keras.Model(x, keras.layers.Dense(1)(keras.ops.reshape(rows, [-1, 3 * DIM])), name="flat")
    model.compile("sgd", "mse")
    data = stream(ids(3))
    model.fit(het_tf.lookahead(data, model), verbose=0)
    assert het_tf.Table("t").stats()["planned"] == STEPS
    for one in (data, data.unbatch().batch(SIZE, drop_remainder=True)):
        with pytest.raises(ValueError, match=r"model flat.* gives layer t ids whose first axis is not"):
            het_tf.planner.profile(one, model, out=tmp_path)


@elsewhere  # of iterators
@pytest.mark.parametrize("make", [functional, sequential])
def test_names_that_a_release_of_keras_lacks(make, monkeypatch):
    """The calls of a functional model are in attributes of Keras that are not public."""
    model, x, _ = make()
    if make is sequential:
        monkeypatch.setattr(model, "_functional", None)
    else:
        monkeypatch.delattr(model, "_nodes_by_depth")
    with pytest.raises(ValueError, match=r"in a way that Keras 3\..* does not tell.*and inputs="):
        het_tf.lookahead(stream(x), model)


def test_arguments_that_are_refused():
    layer = embed()
    for window in (0, -1, 1.5, True, None):
        with pytest.raises((ValueError, TypeError), match=r"window is .*; give the batches to plan"):
            het_tf.lookahead(stream(ids(2)), layer, window=window)
    with pytest.raises(ValueError, match="without lookups of het_tf"):
        het_tf.lookahead(stream(ids(2)), keras.layers.Dense(2))
    with pytest.raises(TypeError, match="dataset is a list; give a"):
        het_tf.lookahead([], layer)
    if BACKEND != "tensorflow":
        ahead = het_tf.lookahead(iter([np.ones(2, "float32")]), layer)
        with pytest.raises(ValueError, match="ids are float32; they must be integers"):
            next(ahead)


@elsewhere  # of iterators
def test_an_iterator_that_is_left_and_one_that_fails():
    layer = embed()

    def failing():
        yield from parts(ids(2))
        raise OSError("the file is gone")

    ahead = het_tf.lookahead(failing(), layer, window=2)
    found = [next(ahead) for _ in range(STEPS - 2)]
    np.testing.assert_array_equal(np.concatenate(found), ids(2)[: SIZE * (STEPS - 2)])
    with pytest.raises(OSError, match="the file is gone"):
        next(ahead)

    def slow(x):
        threading.Event().wait(0.2)  # so that others wait behind it when the iterator is left
        return x

    left = het_tf.lookahead(failing(), layer, window=4, inputs=slow)
    next(left)
    del left, ahead
    gc.collect()
    assert not [one for one in threading.enumerate() if one.name.startswith("het_lookahead")]


@pytest.mark.slow
@elsewhere  # tests/ext/sizing/test_het_plan_profile.py
def test_het_plan_forecasts(tmp_path):
    """The commands count what a function of the user's gives."""
    (tmp_path / "clicks.py").write_text(
        "import test_lookahead as of\n\n"
        "def samples():\n    model, x, _ = of.collection()\n    return of.stream(x), model\n"
    )
    here = Path(__file__)
    paths = [str(one) for one in (here.parents[3], here.parents[2] / "lib", here.parent, tmp_path)]
    environment = {"KERAS_BACKEND": BACKEND, "PYTHONPATH": os.pathsep.join(paths)}

    def het(*words):
        return python("-m", "het_tf", "plan", *words, cwd=tmp_path, **environment).stdout

    assert "24 samples" in het("profile", "--data", "clicks:samples", "--out", "stats")
    assert "a step" in het("show", "stats", "--workers", "2", "--batch", "4")


def loader(workers=0):
    import torch

    data = torch.utils.data.TensorDataset(torch.from_numpy(ids(2)), torch.from_numpy(LABELS))
    return torch.utils.data.DataLoader(data, SIZE, shuffle=True, num_workers=workers)


@on_torch
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_loader_is_a_loader_in_the_same_order(workers):
    import torch

    found = []
    for ahead in (False, True):
        keras.utils.set_random_seed(7)
        inputs = keras.Input((2,), dtype="int32")
        model = head(keras.layers.Dropout(0.5)(embed()(inputs)), inputs)
        batches = loader(workers)
        if ahead:
            batches = het_tf.lookahead(batches, model, window=2)
        assert isinstance(batches, torch.utils.data.DataLoader)
        assert (len(batches), batches.batch_size, len(batches.dataset)) == (STEPS, SIZE, SIZE * STEPS)
        torch.manual_seed(3)
        model.fit(batches, epochs=2, verbose=0)
        found.append(rows())
        assert het_tf.Table("t").stats()["planned"] == (2 * STEPS if ahead else 0)
        het_tf.reset()
        keras.utils.clear_session(free_memory=False)
    np.testing.assert_array_equal(*found)


@on_torch
def test_a_module_of_plain_torch():
    import torch

    import het_tf.torch

    bag = het_tf.torch.EmbeddingBag(DIM, name="t", optimizer="sgd")
    optimizer = torch.optim.SGD(bag.parameters(), lr=1.0)
    for x, y in het_tf.lookahead(loader(), bag, window=2):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(bag(x).sum(1, keepdim=True), y).backward()
        optimizer.step()
    assert het_tf.Table("t").stats()["planned"] == STEPS
