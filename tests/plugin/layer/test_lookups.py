"""The lookups of a functional model: `lookahead`, `profile` and `shard_placed` find them."""

import numpy as np
import pytest
import tensorflow as tf

import het_tf

keras = tf.keras
layers = keras.layers
pytestmark = pytest.mark.usefixtures("fresh")

USERS = np.random.default_rng(0).integers(0, 50, 12)
ITEMS = np.random.default_rng(1).integers(0, 9, 12)
HISTORY = np.random.default_rng(2).integers(1, 9, (12, 3))
WORDS = np.array([["red", ""], ["blue", "red"], ["?", ""]] * 4, object)


def embed(name, **more):
    return het_tf.keras.Embedding(4, name=name, **more)


def both():
    return {name: keras.Input((), dtype="int64", name=name) for name in ("user", "item")}


def functional():
    x = both()
    return keras.Model(x, layers.Dense(1)(layers.Add()([embed("u")(x["user"]), embed("i")(x["item"])])))


def nested():
    x, inner = both(), functional()
    inside = inner({"user": x["user"] * 2, "item": x["item"]})
    return keras.Model(x, layers.Add()([inside, layers.Dense(1)(embed("out")(x["user"]))]))


def shared():
    x, one = both(), embed("t")
    return keras.Model(x, layers.Dense(1)(layers.Concatenate()([one(x["user"]), one(x["item"])])))


def sequential():
    return keras.Sequential(
        [
            keras.Input((3,), dtype="int64"),
            embed("t"),
            layers.Flatten(),
            layers.BatchNormalization(),
            layers.Dropout(0.5, seed=1),
            layers.Dense(1, activity_regularizer="l2"),
        ]
    )


def vocabulary():
    words = keras.Input((2,), dtype="string")
    numbers = layers.StringLookup(vocabulary=["red", "blue"], mask_token="")(words)
    pooled = layers.GlobalAveragePooling1D()(embed("t", padding_id=0)(numbers))
    return keras.Model(words, layers.Dense(1)(pooled))


def masked():
    history, keep = keras.Input((3,), dtype="int64"), keras.Input((3,), dtype="bool")
    return keras.Model([history, keep], layers.Dense(1)(layers.Flatten()(embed("t")(history, mask=keep))))


class Subclass(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = embed("t")
        self.dense = layers.Dense(1)

    def ids(self, x):
        return x["user"] * 2 + 1

    def call(self, x):
        return self.dense(self.embed(self.ids(x)))


class Lazy(keras.Model):
    def build(self, shape):
        self.embed = embed("t")
        self.dense = layers.Dense(1)

    def call(self, x):
        return self.dense(self.embed(x["user"]))


NAMED = ({"user": USERS, "item": ITEMS},)
LOOKUPS = {
    "functional": (functional, NAMED, {"u": USERS, "i": ITEMS}),
    "a layer called twice": (shared, NAMED, {"t": np.concatenate([USERS, ITEMS])}),
    "sequential": (sequential, (HISTORY,), {"t": HISTORY}),
    "a vocabulary": (vocabulary, (WORDS,), {"t": np.array([[2, 0], [3, 2], [1, 0]] * 4)}),
    "a mask": (masked, ((HISTORY, HISTORY % 2 == 0),), {"t": HISTORY[HISTORY % 2 == 0]}),
}


def batches(x):
    return tf.data.Dataset.from_tensor_slices((*x, np.ones((12, 1), np.float32))).batch(4)


@pytest.mark.parametrize("kind", LOOKUPS)
def test_plan_and_profile_find_the_lookups_of_a_model(kind, tmp_path, eagerly):
    """Would catch: ids of a layer's input in place of those that the model makes of it."""
    make, x, expected = LOOKUPS[kind]
    data, found = batches(x), []
    for planned in (False, True):
        het_tf.reset()
        keras.utils.set_random_seed(3)
        model = make()
        if planned:
            data = het_tf.lookahead(data, model)
        model.compile("sgd", "mse")
        history = model.fit(data, epochs=2, verbose=0).history
        tables = [het_tf.Table(name) for name in expected]
        lookups = 12 if kind == "a layer called twice" else 6
        assert [one.stats()["planned"] for one in tables] == [lookups * planned] * len(tables)
        found.append((history["loss"], [one.to_numpy() for one in tables]))
    assert found[0][0] == found[1][0]
    for (ids, rows), (same_ids, same_rows) in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_array_equal(ids, same_ids)
        np.testing.assert_array_equal(rows, same_rows)

    het_tf.reset()
    stats = het_tf.planner.profile(batches(x), make(), out=tmp_path)
    uses = {
        name: int((ids != 0).sum()) if kind == "a vocabulary" else ids.size for name, ids in expected.items()
    }
    assert {table.name: table.uses for table in stats.tables} == uses
    assert {table.name: table.rows for table in stats.tables} == {
        name: len(set(ids.ravel().tolist()) - ({0} if kind == "a vocabulary" else set()))
        for name, ids in expected.items()
    }
    assert stats.samples == 12


def test_inputs_selects_the_inputs_of_a_model():
    data = tf.data.Dataset.from_tensor_slices((USERS, ITEMS)).batch(4)
    model = functional()
    assert len(list(het_tf.lookahead(data, model, inputs=lambda x, y: {"user": x, "item": y}))) == 3
    with pytest.raises(ValueError, match=r"layer .*cannot be called on the inputs .*give inputs=, a func"):
        het_tf.lookahead(data, model)


def by_a_weight():
    x = both()
    shift = layers.Embedding(50, 1)(x["user"])
    ids = x["item"] + keras.ops.cast(keras.ops.squeeze(shift, -1), "int64")
    return keras.Model(x, layers.Dense(1)(embed("t")(ids)))


UNKNOWN = {
    Subclass: "calls layer 't' in code that Keras does not record",
    Lazy: "shows no layer of het_tf before its first call",
    nested: "calls layer 'u' inside of 'functional",
    by_a_weight: "calls layer 't' on ids that depend on 'embedding",
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_ids_that_only_the_step_knows_are_refused(kind, tmp_path):
    """Would catch: plans of other ids than the step's."""
    model, data = kind(), batches(NAMED)
    message = f"{UNKNOWN[kind]}.*give (that|its) layer in place of the model, and inputs="
    with pytest.raises(ValueError, match=message):
        het_tf.lookahead(data, model)
    with pytest.raises(ValueError, match=message):
        het_tf.planner.profile(data, model, out=tmp_path)
    model.compile("sgd", "mse")
    model.fit(data, verbose=0)
    table = model.embed if kind in (Subclass, Lazy) else embed("other")
    assert len(list(het_tf.lookahead(data, table, inputs=lambda x, y: x["user"]))) == 3


def flat():
    x = keras.Input((3,), dtype="int64")
    rows = embed("t")(keras.ops.reshape(x, [-1]))
    return keras.Model(x, layers.Dense(1)(keras.ops.reshape(rows, [-1, 12])), name="flat")


def test_ids_of_a_sample_must_be_known_to_tell_samples_apart(tmp_path):
    """Would catch: a profile that takes each id of a flat list for a sample."""
    data, message = (
        batches((HISTORY,)),
        "model flat.* gives layer t ids whose first axis is not that of the batch",
    )
    model = flat()
    model.compile("sgd", "mse")
    model.fit(het_tf.lookahead(data, model), verbose=0)
    assert het_tf.Table("t").stats()["planned"] == 3
    for one in (data, data.unbatch().batch(4, drop_remainder=True)):
        with pytest.raises(ValueError, match=message):
            het_tf.planner.profile(one, model, out=tmp_path)
