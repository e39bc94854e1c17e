"""No model silently trains an old one's rows: own tables of layers, and warnings of old rows."""

import gc

import numpy as np
import pytest
import saving_lib
import tensorflow as tf

import het_tf
from het_tf.python.session import native
from het_tf.python.table import registry

keras = tf.keras
pytestmark = [
    pytest.mark.usefixtures("fresh", "eagerly"),
    pytest.mark.filterwarnings("error::het_tf.python.table.registry.OldRowsWarning"),
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
]

IDS = np.arange(64).reshape(-1, 1)
NOISE = np.random.default_rng(0).integers(0, 2, (64, 1)).astype(np.float32)
LOSS = keras.losses.BinaryCrossentropy(from_logits=True)


def build(dim=8, embed=None, **more):
    """A model whose table remembers what it was trained with: one id a sample."""
    ids = keras.Input((1,), dtype="int64")
    layer = embed or het_tf.keras.Embedding(dim, optimizer=het_tf.optimizers.SGD(40.0), **more)
    x = keras.layers.Dense(1, kernel_initializer="ones")(keras.layers.Flatten()(layer(ids)))
    model = keras.Model(ids, x)
    model.compile(keras.optimizers.SGD(0.0), LOSS)
    return model


def train(model):
    """Returns the loss before anything of it is learnt, which is ln 2 for a new model, and trains it."""
    before = float(LOSS(NOISE, model(IDS)))
    for _ in range(4):
        model.train_on_batch(IDS, NOISE)
    assert float(LOSS(NOISE, model(IDS))) < before / 2
    return before


def clear():
    keras.backend.clear_session()
    gc.collect()


# --- layers without a name -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("lives", [False, True])
def test_every_fold_cell_or_trial_begins_anew(lives):
    """The model before lives until the new one is there, as in a cell that is run again, or does not."""
    losses, model = [], None
    for dim in (8, 8, 8) if lives else (8, 4, 8):
        if not lives:
            del model
            gc.collect()
            assert het_tf.tables() == [], "the table goes with its layer"
        keras.backend.clear_session()
        model = build(dim)
        losses.append(train(model))
        gc.collect()
        assert het_tf.tables() == [model.layers[1].tables[0].name]
    assert losses[0] == pytest.approx(np.log(2), abs=0.1)
    assert losses[0] == losses[2] and (losses[0] == losses[1]) == lives, "each has rows of its own beginning"


def test_the_table_of_a_living_layer_is_not_touched():
    one = build()
    train(one)
    first = het_tf.Table("embedding")
    rows = first.to_numpy()[1]
    keras.backend.clear_session()
    other = build()
    assert other.layers[1].name == "embedding" and other.layers[1].tables[0].name == "embedding@2"
    train(other)
    np.testing.assert_array_equal(first.to_numpy()[1], rows)
    ids = np.arange(100, 110)
    np.testing.assert_array_equal(first.lookup(ids), het_tf.Table("embedding@2").lookup(ids))


def test_unnamed_table_is_shared_by_config():
    one = het_tf.keras.Embedding(4, optimizer=het_tf.optimizers.SGD(1.0))
    other = het_tf.keras.Embedding(one.tables[0], name="other")
    assert other.tables[0].name == one.tables[0].name and len(het_tf.tables()) == 1
    name = one.tables[0].name
    del one
    gc.collect()
    het_tf.Table(name).assign([1], np.ones((1, 4)))
    np.testing.assert_array_equal(other(np.array([1])), np.ones((1, 4)))
    del other
    gc.collect()
    assert het_tf.tables() == []


def test_memory_of_dead_models_is_freed():
    def megabytes():
        return native.call_int("HetAllocatedBytes") / 2**20

    clear()
    before = megabytes()
    for _ in range(3):
        layer = het_tf.keras.Embedding(64)
        het_tf.Table(layer.tables[0].name).assign(np.arange(50_000), np.ones((50_000, 64)))
        assert megabytes() > before + 12
        del layer
        gc.collect()
        assert megabytes() < before + 2


# --- named tables ----------------------------------------------------------------------------------


def named(**more):
    return build(name="items", **more)


@pytest.mark.parametrize("living", [False, True])
def test_rows_that_nobody_asked_for_are_told_of(living):
    model = named()
    train(model)
    if not living:
        del model
    clear()
    new = named()
    with pytest.warns(registry.OldRowsWarning, match=r"'items'.* 64 rows .*clear\(\).*reuse=True"):
        new.fit(IDS, NOISE, verbose=0)
    new.fit(IDS, NOISE, verbose=0)  # once: here it is an error


@pytest.mark.slow
def test_rows_that_somebody_asked_for_are_not(tmp_path):
    def learn(model):
        model.fit(IDS, NOISE, verbose=0)

    path = str(tmp_path / "x.weights.h5")
    model = named()
    train(model)
    model.save_weights(path)
    checkpoint = het_tf.checkpoint.save(tmp_path / "ckpts", model)
    point = tf.train.Checkpoint(model=model).write(str(tmp_path / "point"))
    for ask in (
        lambda new: new.load_weights(path),
        lambda new: het_tf.checkpoint.restore(checkpoint),
        lambda new: tf.train.Checkpoint(model=new).read(point).expect_partial(),
        lambda new: het_tf.Table("items").clear(),
        lambda new: het_tf.Table("items").assign([1], np.ones((1, 8))),
    ):
        clear()
        new = named()
        ask(new)
        learn(new)
    learn(named(reuse=True))
    het_tf.reset()
    learn(named())


# --- copies ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", [None, "items"])
def test_load_model_beside_the_model_that_was_saved(tmp_path, name):
    path = str(tmp_path / "best.keras")
    model = build(name=name)
    train(model)
    model.save(path)
    new = np.arange(1000, 1020).reshape(-1, 1)  # initial rows are those of the saved model, too
    want = [model(ids) for ids in (IDS, new)]
    model.fit(IDS, 1 - NOISE, verbose=0)
    table = model.layers[1].tables[0].name
    rows = het_tf.Table(table).to_numpy()[1]
    loaded = keras.models.load_model(path)
    for ids, before in zip((IDS, new), want, strict=True):
        np.testing.assert_array_equal(loaded(ids), before)
    loaded.fit(IDS, 1 - NOISE, verbose=0)
    np.testing.assert_array_equal(het_tf.Table(table).to_numpy()[1], rows)
    assert sorted(het_tf.tables()) == [table, f"{table}@2"]
    del loaded
    gc.collect()
    assert het_tf.tables() == [table]
    if name is None:
        del model
        gc.collect()
        assert het_tf.tables() == []
    loaded = keras.models.load_model(path)
    np.testing.assert_array_equal(loaded(IDS), want[0])
    assert len(het_tf.tables()) == (1 if name is None else 2)


def test_a_clone_trains_a_table_of_its_own():
    model = named()
    with het_tf.namespace("copy"):
        elsewhere = keras.models.clone_model(model)
    train(model)
    rows = het_tf.Table("items").to_numpy()[1]
    for clone in (keras.models.clone_model(model), elsewhere):
        clone.compile("sgd", LOSS)
        clone.fit(IDS, 1 - NOISE, verbose=0)
    np.testing.assert_array_equal(het_tf.Table("items").to_numpy()[1], rows)
    assert het_tf.tables() == ["items", "items@2"]
    assert het_tf.Table("items", namespace="copy").size == 64
    het_tf.reset("copy")


class Subclassed(keras.Model):
    """Its constructor makes its layers, for any caller."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embed = het_tf.keras.Embedding(4, "sum", name="items")

    def call(self, ids):
        return self.embed(tf.cast(ids, tf.int64))


def test_load_model_of_a_class_of_ones_own(tmp_path):
    model, table = Subclassed(), het_tf.Table("items")
    model(IDS)
    table.assign([1], np.ones((1, 4)))
    model.save(tmp_path / "x.keras")
    table.assign([1], np.zeros((1, 4)))
    loaded = keras.models.load_model(tmp_path / "x.keras", custom_objects={"Subclassed": Subclassed})
    np.testing.assert_array_equal([loaded(IDS)[1], model(IDS)[1]], [np.ones(4), np.zeros(4)])


def test_copies_share_a_table_where_their_originals_do(tmp_path):
    model = saving_lib.build("shared")
    saving_lib.train(model)
    path = str(tmp_path / "x.keras")
    model.save(path)
    want = saving_lib.predictions(model)
    saving_lib.train(model)
    copies = [keras.models.load_model(path) for _ in range(2)]
    for copy in copies:
        np.testing.assert_array_equal(saving_lib.predictions(copy), want)
    assert sorted(het_tf.tables()) == ["a/b c", "a/b c@2", "a/b c@3"]


def test_a_checkpoint_knows_no_numbers(tmp_path):
    """One of the second model of a process goes into the first one of another."""
    keep = build()
    keras.backend.clear_session()
    model = build()
    train(model)
    want = model(IDS)
    assert model.layers[1].tables[0].name == "embedding@2"
    del keep
    gc.collect()
    path = het_tf.checkpoint.save(tmp_path, model)
    del model
    clear()
    new = build()
    assert new.layers[1].tables[0].name == "embedding"
    het_tf.checkpoint.restore(path, new)
    np.testing.assert_array_equal(new(IDS), want)


# --- several workers, a server ----------------------------------------------------------------------


@pytest.mark.slow
def test_names_at_a_server_follow_the_program_alone(server):
    """Not what Python has collected: all ranks arrive at one name."""
    het_tf.init(ps=server.address)
    names = []
    for kept in (True, False, True):
        keras.backend.clear_session()
        model = build(cache=het_tf.Cache(rows=16, staleness=0))
        train(model)
        names.append(model.layers[1].tables[0].name)
        if not kept:
            del model
            gc.collect()
            assert names[-1] not in het_tf.tables(), "its cache is gone"
    assert names == ["embedding", "embedding@2", "embedding@3"]
    het_tf.reset()
    keras.backend.clear_session()
    model = build()
    with pytest.warns(registry.OldRowsWarning, match="'embedding' of the parameter server.* a name"):
        model.fit(IDS, NOISE, verbose=0)
    het_tf.reset()
    named().fit(IDS, NOISE, verbose=0)
    het_tf.reset()
    named().fit(IDS, NOISE, verbose=0)  # the namespace says it


def test_fork_or_reset_keeps_new_table():
    layer = het_tf.keras.Embedding(4)
    het_tf.reset()
    keras.backend.clear_session()
    new = het_tf.keras.Embedding(4)
    assert new.tables[0].name == layer.tables[0].name
    del layer
    gc.collect()
    assert het_tf.tables() == [new.tables[0].name]
    assert registry.find("", new.tables[0].name).layers() == [new]
