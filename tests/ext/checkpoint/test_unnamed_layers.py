"""Tables of layers without a name: found by the order of the model's layers, whatever their numbers are."""

import numpy as np
import pytest
import tensorflow as tf
from rules_lib import keras, learn

import het_tf
from het_tf import checkpoint
from het_tf.python.table import layer_state, notes

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh", "eagerly")]

IDS = np.arange(40).reshape(20, 2)
LABELS = np.random.default_rng(0).random((20, 1), np.float32)


def another_process(layers=0):
    """Forgets all tables and numbers, and makes layers that the model does not have. Returns these."""
    het_tf.reset()
    keras.backend.clear_session()
    return [het_tf.keras.Embedding(4) for _ in range(layers)]


def plain(first=None, second=None):
    """Two tables of one dim; the numbers of their layers are all that tells them apart."""
    ids = keras.Input((2,), dtype="int64")
    rows = [het_tf.keras.Embedding(4, table=table)(ids) for table in (first, second)]
    x = keras.layers.Flatten()(keras.layers.Concatenate()(rows))
    return keras.Model(ids, keras.layers.Dense(1)(x))


def nested():
    ids, of_inner = (keras.Input((2,), dtype="int64") for _ in range(2))
    inner = keras.Sequential([of_inner, het_tf.keras.Embedding(4), keras.layers.Flatten()])
    x = keras.layers.Concatenate()([inner(ids), keras.layers.Flatten()(het_tf.keras.Embedding(4)(ids))])
    return keras.Model(ids, keras.layers.Dense(1)(x))


class Subclass(keras.Model):
    def __init__(self):
        super().__init__()
        self.tables = [het_tf.keras.Embedding(4, combiner="sum"), het_tf.keras.Embedding(4, combiner="sum")]
        self.top = keras.layers.Dense(1)

    def call(self, ids):
        return self.top(self.tables[0](ids) - 2 * self.tables[1](ids))


def subclass():
    model = Subclass()
    model(IDS)
    return model


def mixed():
    """A collection, a named table, a shared table of a layer without a name, and a masked one."""
    ids = keras.Input((2,), dtype="int64")
    item = het_tf.TableConfig("item", 4)
    features = {"a": het_tf.FeatureConfig(item, "sum"), "b": het_tf.FeatureConfig(item, "mean")}
    rows = het_tf.keras.EmbeddingCollection(features)({"a": ids, "b": ids})
    own = het_tf.keras.Embedding(4, combiner="sum")
    again = het_tf.keras.Embedding(own.tables[0], combiner="mean")
    masked = keras.layers.Flatten()(het_tf.keras.Embedding(4, padding_id=0)(ids))
    x = keras.layers.Concatenate()([rows["a"], rows["b"], own(ids), again(ids), masked])
    return keras.Model(ids, keras.layers.Dense(1)(x))


def trained(build, epochs=2):
    model = build()
    model.compile("adam", "mse")
    for _ in range(epochs):
        model.train_on_batch(IDS, LABELS)
    return model


def predictions(model):
    return model(IDS, training=False).numpy()


def forget(model):
    """Sets all weights of the model to 0, and all rows of its tables."""
    for layer in layer_state.layers_of(model):
        for config in layer.tables:
            table = het_tf.Table(config.name)
            ids = table.to_numpy()[0]
            table.assign(ids, np.zeros((len(ids), config.dim), np.float32))
    for weight in model.trainable_weights:
        if not isinstance(weight, het_tf.python.layer.variable.TableVariable):
            weight.assign(tf.zeros_like(weight))


def train(layer, value):
    """Gives a layer apart from the model rows of its own."""
    learn(layer, lambda: value * tf.reduce_sum(layer(IDS, training=True)))


@pytest.mark.parametrize("build", [plain, nested, subclass, mixed])
def test_rows_come_back_whatever_else_the_process_has_built(tmp_path, build):
    model = trained(build)
    wanted = predictions(model)
    checkpoint.save(tmp_path, model)
    for layers in (0, 3):
        others = another_process(layers)
        for number, one in enumerate(others):
            train(one, number + 1)
        rows = [one(IDS, training=False).numpy() for one in others]
        model = trained(build, 0)
        for strict in (False, True):
            assert checkpoint.restore(tmp_path, model, strict=strict).dense_left_out == ()
            np.testing.assert_allclose(predictions(model), wanted, rtol=1e-5)
            forget(model)
            assert not np.allclose(predictions(model), wanted, rtol=1e-5)
        np.testing.assert_equal([one(IDS, training=False).numpy() for one in others], rows)


def test_layers_apart_from_the_model_come_back_if_they_are_the_same(tmp_path):
    (other,) = another_process(1)
    train(other, 3.0)
    wanted = other(IDS, training=False).numpy()
    model = trained(plain)
    checkpoint.save(tmp_path, model)
    (other,) = another_process(1)
    model = trained(plain, 0)
    checkpoint.restore(tmp_path, model)
    np.testing.assert_array_equal(other(IDS, training=False), wanted)


@pytest.mark.parametrize("strict", [True, False])
def test_another_number_of_layers_is_refused_and_names_help(tmp_path, strict):
    def one():
        ids = keras.Input((2,), dtype="int64")
        rows = keras.layers.Flatten()(het_tf.keras.Embedding(4)(ids))
        return keras.Model(ids, keras.layers.Dense(1, name="top")(rows))

    model = trained(plain)
    wanted = het_tf.Table("embedding_1").to_numpy()[1]
    checkpoint.save(tmp_path, model)
    another_process()
    model = trained(one)
    before = predictions(model)
    differs = r"(?s)found by the order of the layers.*table='embedding'|top/kernel"
    with pytest.raises(ValueError, match=differs):
        checkpoint.restore(tmp_path, model, strict=strict)
    np.testing.assert_array_equal(predictions(model), before)
    another_process(2)
    model = trained(lambda: plain("embedding_1", "embedding"), 0)
    checkpoint.restore(tmp_path, model)
    np.testing.assert_array_equal(het_tf.Table("embedding_1").to_numpy()[1], wanted)


def test_unnamed_tables_are_not_matched_without_the_model(tmp_path):
    checkpoint.save(tmp_path, trained(plain))
    others = another_process(3)
    others_there = "layers without a name may be others there: restore with the model"
    for strict in (True, False):
        with pytest.raises(ValueError, match=others_there):
            checkpoint.restore(tmp_path, strict=strict)
    assert [het_tf.Table(one.tables[0].name).size for one in others] == [0, 0, 0]


def test_tables_that_only_one_side_has_are_refused_or_named(tmp_path):
    checkpoint.save(tmp_path, trained(lambda: plain("a", "b")))
    wanted = het_tf.Table("a").to_numpy()[1]
    another_process()
    model = trained(lambda: plain("c", "d"))
    before = predictions(model)
    none = "only the checkpoint has 'a', 'b', only the model has 'c', 'd'; build the"
    with pytest.raises(ValueError, match=none):
        checkpoint.restore(tmp_path, model, strict=False)
    np.testing.assert_array_equal(predictions(model), before)
    another_process()
    model = trained(lambda: plain("a", "new"), 0)
    with pytest.raises(ValueError, match="give strict=False to restore what both have"):
        checkpoint.restore(tmp_path, model)
    new = "(?s)'new' has no rows.*'b' of the checkpoint is not"
    with pytest.warns(notes.TablesNotSavedWarning, match=new):
        found = checkpoint.restore(tmp_path, model, strict=False)
    assert (found.only_in_checkpoint, found.only_live) == (("b",), ("new",))
    np.testing.assert_array_equal(het_tf.Table("a").to_numpy()[1], wanted)


def test_increments_go_on_under_other_numbers(tmp_path):
    """The base's "embedding_1" is another table than this process's."""
    checkpoint.save(tmp_path, trained(plain))
    others = another_process(1)
    model = trained(plain, 0)
    checkpoint.restore(tmp_path, model)
    model.fit(IDS[:4], LABELS[:4], verbose=0)
    wanted = predictions(model)
    checkpoint.save(tmp_path, model, since="latest")
    del others
    another_process(3)
    model = trained(plain, 0)
    checkpoint.restore(tmp_path, model)
    np.testing.assert_allclose(predictions(model), wanted, rtol=1e-5)
