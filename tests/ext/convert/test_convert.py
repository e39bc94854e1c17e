"""het_tf.convert: equal rows, predictions and steps afterwards; what is told; masks and vocabularies."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from floats_lib import TRAINED, assert_close
from rules_lib import learn

import het_tf

keras = tf.keras
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh", "eagerly")]
quiet = pytest.mark.filterwarnings("ignore::het_tf.ConversionWarning")

IDS = 12
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "nesterov": lambda: keras.optimizers.SGD(0.05, momentum=0.8, nesterov=True),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.01, rho=0.8, epsilon=1e-3),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1, epsilon=1e-3),
    "adam": lambda: keras.optimizers.Adam(0.01, beta_1=0.8, epsilon=1e-3),
    "adam_without_momentum": lambda: keras.optimizers.Adam(0.01, beta_1=0.0, epsilon=1e-3),
    "ftrl": lambda: keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.001, beta=0.1),
    "schedule": lambda: keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)),
}


def predictions(model, x):
    return np.asarray(model(tf.nest.map_structure(tf.convert_to_tensor, x), training=False))


def equal(old, new, x):
    np.testing.assert_array_equal(predictions(old, x), predictions(new, x))


def clicks(optimizer):
    """A model of ids and numbers; each batch of `batches` has all ids, so that lazy is not another rule."""
    ids = keras.Input((), dtype="int64", name="item")
    numbers = keras.Input((2,), name="numbers")
    rows = keras.layers.Embedding(IDS, 4, name="item_rows")(ids)
    x = keras.layers.Dense(5, activation="tanh")(keras.layers.Concatenate()([rows, numbers]))
    model = keras.Model({"item": ids, "numbers": numbers}, keras.layers.Dense(1)(x))
    model.compile(optimizer, "mse")
    return model


def batches(rng, number):
    for _ in range(number):
        ids = rng.permutation(IDS)
        numbers = rng.normal(size=(len(ids), 2)).astype("float32")
        yield {"item": ids, "numbers": numbers}, rng.normal(size=(len(ids), 1)).astype("float32")


@quiet
@pytest.mark.parametrize(
    "name", [name if name == "adam" else pytest.param(name, marks=pytest.mark.long) for name in OPTIMIZERS]
)
def test_training_goes_on_as_if_nothing_had_happened(fresh, name):
    old = clicks(OPTIMIZERS[name]())
    for x, y in batches(fresh, 4):
        old.train_on_batch(x, y)
    new = het_tf.convert(old, verbose=False)
    table = het_tf.Table("item_rows")
    ids, rows = table.to_numpy()
    np.testing.assert_array_equal(ids, np.arange(IDS))
    np.testing.assert_array_equal(rows, old.get_layer("item_rows").get_weights()[0])
    equal(old, new, x)
    assert int(np.asarray(new.optimizer.iterations)) == 4
    for x, y in batches(fresh, 4):
        old.train_on_batch(x, y)
        new.train_on_batch(x, y)
    assert_close(table.to_numpy()[1], old.get_layer("item_rows").get_weights()[0], TRAINED)
    assert_close(predictions(old, x), predictions(new, x), TRAINED)


def test_what_is_lazy_is_told(fresh):
    with pytest.warns(het_tf.ConversionWarning, match="Adam is lazy"):
        het_tf.convert(clicks("adam"), verbose=False)


@pytest.mark.parametrize(
    ("compiled", "rate", "advised"),
    [
        (lambda: "adam", "0.001", "Adam(0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-07)"),
        (
            lambda: keras.optimizers.AdamW(0.002),
            "0.002",
            "Adam(0.02, beta_1=0.9, beta_2=0.999, epsilon=1e-07)",
        ),
        (lambda: keras.optimizers.RMSprop(3e-4), "0.0003", "RMSprop(0.003, rho=0.9, epsilon=1e-07)"),
        (
            lambda: keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(1e-3, 9, 0.5)),
            "0.001",
            "Adam(0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-07)",
        ),
        (lambda: keras.optimizers.Adam(0.01), None, None),
        (lambda: keras.optimizers.Adagrad(0.001), None, None),
        (lambda: "sgd", None, None),
    ],
)
def test_a_rate_that_is_too_small_for_rows_is_told_with_the_right_one(fresh, compiled, rate, advised):
    old = clicks(compiled())
    x, y = next(batches(fresh, 1))
    old.train_on_batch(x, y)

    def convert(**options):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            het_tf.convert(old, verbose=False, **options)
        return [str(one.message) for one in found if "too small" in str(one.message)]

    told = convert()
    if advised is None:
        assert told == []
        return
    (words,) = told
    assert f"follow its learning rate, {rate}," in words
    assert f"optimizer=het_tf.optimizers.{advised}, which keeps the slots" in words
    slots = het_tf.Table("item_rows").scan()["rows"]
    for name in het_tf.tables():
        het_tf.Table(name).drop()
    assert convert(optimizer=eval(f"het_tf.optimizers.{advised}")) == []
    np.testing.assert_array_equal(het_tf.Table("item_rows").scan()["rows"], slots)


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (lambda: keras.optimizers.Adam(amsgrad=True), "no Adam with amsgrad: they have RowWiseAdagrad"),
        (lambda: keras.optimizers.RMSprop(centered=True), "no RMSprop with centered"),
        (lambda: keras.optimizers.Ftrl(learning_rate_power=-0.4), "no Ftrl with learning_rate_power=-0.4"),
        (lambda: keras.optimizers.Nadam(), "no formula of Nadam"),
        (lambda: keras.optimizers.SGD(clipnorm=1.0), "clipnorm of the compiled optimizer does not reach"),
        (lambda: keras.optimizers.AdamW(), "weight_decay of the compiled optimizer does not reach tables"),
    ],
)
def test_what_does_not_reach_tables_is_told(fresh, optimizer, words):
    model = clicks(optimizer())
    with pytest.warns(het_tf.ConversionWarning, match=words):
        new = het_tf.convert(model, verbose=False)
    equal(model, new, next(batches(fresh, 1))[0])


def test_another_optimizer_begins_with_slots_of_its_own(fresh):
    old = clicks(OPTIMIZERS["adagrad"]())
    x, y = next(batches(fresh, 1))
    old.train_on_batch(x, y)
    with pytest.warns(het_tf.ConversionWarning, match="slots of item_rows start anew"):
        new = het_tf.convert(old, optimizer=het_tf.optimizers.RowWiseAdagrad(0.02), verbose=False)
    equal(old, new, x)
    assert het_tf.Table("item_rows").spec["optimizer"]["name"] == "row_wise_adagrad"


@pytest.mark.long
def test_the_old_model_stays(fresh):
    old = clicks("sgd")
    x, y = next(batches(fresh, 1))
    before = [weight.copy() for weight in old.get_weights()]
    new = het_tf.convert(old, verbose=False)
    new.fit(x, y, verbose=0)
    for one, other in zip(before, old.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    old.fit(x, y, verbose=0)


def test_losses_that_are_functions_and_metrics_come_along(fresh):
    def loss(y, p):
        return tf.reduce_mean(tf.square(y - p))

    old = clicks("sgd")
    old.compile(keras.optimizers.SGD(0.1), loss, metrics=["mae", keras.metrics.MeanSquaredError(name="mse")])
    new = het_tf.convert(old, verbose=False)
    x, y = next(batches(fresh, 1))
    results = new.evaluate(x, y, verbose=0, return_dict=True)
    assert {"loss", "mse"} <= set(results) and len(results) == 3
    expected = old.evaluate(x, y, verbose=0, return_dict=True)
    assert_close([results[name] for name in expected], list(expected.values()))


@quiet
@pytest.mark.long
def test_a_loss_scale_and_its_optimizer_come_along(fresh):
    old = clicks(keras.mixed_precision.LossScaleOptimizer(OPTIMIZERS["adam"](), initial_scale=64.0))
    for x, y in batches(fresh, 3):
        old.train_on_batch(x, y)
    new = het_tf.convert(old, verbose=False)
    for x, y in batches(fresh, 2):
        old.train_on_batch(x, y)
        new.train_on_batch(x, y)
    assert_close(predictions(old, x), predictions(new, x), TRAINED)


def test_a_model_that_is_not_compiled(fresh, capsys):
    ids = keras.Input((3,), dtype="int32")
    old = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Embedding(9, 2, name="e")(ids)), name="m")
    new = het_tf.convert(old, {"e": het_tf.TableConfig("words", 2, "adam")})
    equal(old, new, fresh.integers(0, 9, (5, 3)))
    printed = capsys.readouterr().out
    assert "m: 1 keras.layers.Embedding is a table" in printed
    assert "e: table 'words', 9 rows of 2, ids 0 to 8; Adam(0.001" in printed


# --- models of every kind -----------------------------------------------------------------------------------


def test_sequential_whose_ids_were_floats(fresh):
    old = keras.Sequential([keras.layers.Embedding(9, 2), keras.layers.Flatten(), keras.layers.Dense(1)])
    ids = fresh.integers(0, 9, (5, 3))
    predictions(old, ids)
    new = het_tf.convert(old, verbose=False)
    assert isinstance(new, keras.Sequential)
    assert tf.as_dtype(new.inputs[0].dtype) == tf.int64
    equal(old, new, ids)


def test_nested_layer_called_twice(fresh):
    tower = keras.Sequential(
        [keras.Input((3,)), keras.layers.Embedding(9, 2, name="e"), keras.layers.GlobalAveragePooling1D()],
        name="tower",
    )
    a, b = keras.Input((3,), name="a"), keras.Input((3,), dtype="int32", name="b")
    direct = keras.layers.Embedding(9, 2, name="e")
    old = keras.Model(
        [a, b],
        keras.layers.Concatenate()([tower(a), tower(b), keras.layers.Flatten()(direct(b))]),
    )
    new = het_tf.convert(old, verbose=False)
    x = [fresh.integers(0, 9, (5, 3)), fresh.integers(0, 9, (5, 3))]
    equal(old, new, x)
    assert sorted(het_tf.tables()) == ["e", "tower_e"]


def test_a_shared_layer_is_one_table(fresh):
    a, b = keras.Input((), dtype="int64"), keras.Input((4,), dtype="int64")
    shared = keras.layers.Embedding(9, 2, name="e")
    rows = [shared(a), keras.layers.GlobalMaxPooling1D()(shared(b))]
    old = keras.Model([a, b], keras.layers.Dot(1)(rows))
    new = het_tf.convert(old, verbose=False)
    equal(old, new, [fresh.integers(0, 9, 6), fresh.integers(0, 9, (6, 4))])
    assert het_tf.tables() == ["e"]


def test_frozen_layers_stay_frozen(fresh):
    old = clicks("sgd")
    old.get_layer("item_rows").trainable = False
    new = het_tf.convert(old, verbose=False)
    x, y = next(batches(fresh, 1))
    before = het_tf.Table("item_rows").to_numpy()[1]
    new.train_on_batch(x, y)
    np.testing.assert_array_equal(het_tf.Table("item_rows").to_numpy()[1], before)


def test_half_precision_gives_the_same(fresh):
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    old = clicks("sgd")
    new = het_tf.convert(old, verbose=False)
    equal(old, new, next(batches(fresh, 1))[0])


def test_only_some_layers(fresh):
    a, b = keras.Input((), dtype="int64", name="a"), keras.Input((), dtype="int64", name="b")
    rows = [keras.layers.Embedding(9, 2, name="x")(a), keras.layers.Embedding(9, 2, name="y")(b)]
    old = keras.Model([a, b], keras.layers.Dot(1)(rows))
    new = het_tf.convert(old, layers=["y"], cache=het_tf.Cache(rows=5), verbose=False)
    equal(old, new, [np.arange(9), np.arange(9)])
    assert het_tf.tables() == ["y"] and type(new.get_layer("x")) is keras.layers.Embedding
    assert new.get_layer("y").get_config()["cache"]["rows"] == 5


# --- masks and vocabularies ---------------------------------------------------------------------------------


def words(mask_token="", buckets=1, mask_zero=True):
    """Text whose layers heed masks (LSTM) and do not (Conv1D)."""
    lookup = keras.layers.StringLookup(
        vocabulary=["a", "b", "c"], mask_token=mask_token, num_oov_indices=buckets, name="lookup"
    )
    text = keras.Input((4,), dtype="string", name="text")
    size = len(lookup.get_vocabulary())
    rows = keras.layers.Embedding(size, 3, mask_zero=mask_zero, name="words")(lookup(text))
    seen = keras.layers.Flatten()(keras.layers.Conv1D(2, 2)(rows))
    return keras.Model(
        text, keras.layers.Dense(1)(keras.layers.Concatenate()([keras.layers.LSTM(2)(rows), seen]))
    )


def text(rng, tokens):
    return tf.constant(rng.choice(tokens, (12, 4)).astype(object))


@pytest.mark.filterwarnings("ignore:Layer 'conv1d")
@pytest.mark.parametrize("open_vocabulary", [pytest.param(False, marks=pytest.mark.long), True])
def test_masks_and_tokens_mean_what_they_meant(fresh, tmp_path, open_vocabulary):
    old = words()
    new = het_tf.convert(old, open_vocabulary=open_vocabulary, verbose=False)
    known = text(fresh, ["a", "b", "c", "", "[UNK]"])
    equal(old, new, known)
    new.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(predictions(old, known), predictions(loaded, known))
    others = text(fresh, ["a", "d"])
    same = np.array_equal(predictions(old, others), predictions(new, others))
    assert same is not open_vocabulary


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Layer 'conv1d")
def test_an_open_vocabulary_learns_new_tokens(fresh):
    new = het_tf.convert(words(), open_vocabulary=True, verbose=False)
    table = het_tf.Table("words")
    assert table.size == 5  # "", [UNK], a, b, c
    new.compile("sgd", "mse")
    new.fit(tf.constant([["d", "e", "d", ""]] * 4), np.ones(4), verbose=0)
    assert table.size == 7


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Layer 'conv1d")
def test_rows_of_several_buckets_are_left_out(fresh):
    old = words(buckets=3)
    new = het_tf.convert(old, open_vocabulary=True, verbose=False)
    assert het_tf.Table("words").size == 4
    equal(old, new, text(fresh, ["a", "b", "c", ""]))


def test_integers_are_ids_themselves(fresh):
    lookup = keras.layers.IntegerLookup(vocabulary=[700, 2**40, 9], mask_token=0, num_oov_indices=1)
    ids = keras.Input((), dtype="int64")
    old = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Embedding(5, 2, name="e")(lookup(ids))))
    new = het_tf.convert(old, open_vocabulary=True, verbose=False)
    equal(old, new, np.array([700, 2**40, 9, 0, -1]))
    np.testing.assert_array_equal(het_tf.Table("e").to_numpy()[0], [-1, 0, 9, 700, 2**40])


def test_what_adapt_has_learnt_stays(fresh):
    lookup = keras.layers.StringLookup(name="lookup")
    lookup.adapt(tf.constant(["x", "y", "x"]))
    token = keras.Input((), dtype="string")
    old = keras.Model(token, keras.layers.Embedding(3, 2, name="e")(lookup(token)))
    new = het_tf.convert(old, verbose=False)
    equal(old, new, tf.constant(["x", "y", "z"]))


def test_repeated_ids_differ_from_keras_3():
    """docs/migrate/keras.md says so: should Keras change, the page is to follow."""
    variable = keras.Variable(np.zeros((2, 1), "float32"))
    optimizer = keras.optimizers.Adagrad(1.0, initial_accumulator_value=0.0)
    optimizer.build([variable])
    gradient = tf.IndexedSlices(tf.constant([[1.0], [1.0]]), tf.constant([0, 0]), tf.constant([2, 1]))
    optimizer.apply([gradient], [variable])
    layer = het_tf.keras.Embedding(1, name="t", optimizer=het_tf.optimizers.Adagrad(1.0, 0.0))
    learn(layer, lambda: tf.reduce_sum(layer(tf.constant([0, 0], tf.int64))))
    accumulator = het_tf.Table("t").scan()["rows"][0, 1]
    assert accumulator == (1 + 1) ** 2
    assert np.asarray(optimizer._accumulators[0])[0, 0] == 1**2 + 1**2


def test_xla_is_switched_off(fresh):
    old = clicks("sgd")
    old.compile("sgd", "mse", jit_compile=True)
    with pytest.warns(het_tf.ConversionWarning, match="jit_compile is False now"):
        new = het_tf.convert(old, verbose=False)
    new.train_on_batch(*next(batches(fresh, 1)))


def test_an_hdf5_file_of_keras_2(fresh):
    place = Path(__file__).parent / "keras2"
    expected = np.load(place / "expected.npz")
    new = het_tf.convert(keras.models.load_model(place / "model.h5", compile=False), verbose=False)
    np.testing.assert_array_equal(het_tf.Table("item").to_numpy()[1], expected["rows"])
    assert_close(predictions(new, np.array([[3, 0]])), expected["answers"])


@pytest.mark.long
def test_what_is_saved_and_exported_predicts_the_same(fresh, tmp_path):
    old = clicks("sgd")
    new = het_tf.convert(old, verbose=False)
    x, _ = next(batches(fresh, 1))
    het_tf.export(new, tmp_path / "export", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "export")).signatures["serving_default"]
    (answer,) = served(**{name: tf.constant(value) for name, value in x.items()}).values()
    assert_close(answer, predictions(old, x))
    het_tf.checkpoint.save(tmp_path / "saved", new)
    before = predictions(new, x)
    het_tf.Table("item_rows").clear()
    het_tf.checkpoint.restore(tmp_path / "saved", new)
    np.testing.assert_array_equal(predictions(new, x), before)


def test_tables_that_are_there_are_copied():
    ids = keras.Input((3,), dtype="int64")
    both = keras.layers.Embedding(9, 4, name="e")(ids) + het_tf.keras.Embedding(4, name="t")(ids)
    old = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(both)))
    old.compile("sgd", "mse")
    x = np.arange(9).reshape(3, 3)
    old.fit(x, np.ones((3, 1)), verbose=0)
    new = het_tf.convert(old)
    assert_close(new.predict(x, verbose=0), old.predict(x, verbose=0))
    assert het_tf.Table("t@2").size == het_tf.Table("t").size == 9
