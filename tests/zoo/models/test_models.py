"""The click-through models: their formulas, their ids, what they refuse. test_ranking_models.py has more."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from export_lib import TOY, serve
from floats_lib import MODEL, assert_close

import het_tf
from het_tf.zoo.data import PADDING, Description, Examples, Field
from het_tf.zoo.models import DIN, DCNv2, DeepFM, TwoTower, WideDeep
from het_tf.zoo.models.blocks import Cross, FactorizationMachine
from het_tf.zoo.models.embedding_side import IdSpace

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("eagerly")]

keras = tf.keras
DIM = 4
SIZED = Description("sized", (Field("a", 5), Field("h", 9)), TOY.crosses, TOY.sequences, TOY.numeric)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def toy_examples(rng: np.random.Generator, rows: int = 64) -> Examples:
    a = rng.integers(0, 5, rows)
    h = rng.integers(-(2**63), 2**63, 9)[rng.integers(0, 9, rows)]
    s = rng.integers(0, 6, (rows, 3))
    s[np.arange(3) >= rng.integers(0, 4, rows)[:, None]] = PADDING
    s[0] = PADDING
    label = (a % 2).astype(np.float32)
    numeric = rng.normal(3.0, 2.0, (rows, 2)).astype(np.float32)
    categorical = {"a": a, "h": h, "a_x_h": rng.integers(0, 7, rows)}
    return Examples(categorical, {"s": s}, numeric, label)


def tensors(examples: Examples) -> dict[str, tf.Tensor]:
    return {name: tf.constant(column) for name, column in examples.inputs().items()}


def compiled(model: Any, rate: float = 0.1) -> Any:
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(rate), loss=loss)
    return model


def weights(model: Any) -> list[np.ndarray]:
    """Kernel and bias of each hidden layer and of the output layer."""
    layers = [*(layer for layer in model.hidden if isinstance(layer, keras.layers.Dense)), model.output_layer]
    return [weight.numpy() for layer in layers for weight in (layer.kernel, layer.bias)]


def perceptron(x: np.ndarray, layers: list[np.ndarray]) -> np.ndarray:
    for kernel, bias in zip(layers[::2], layers[1::2], strict=True):
        x = np.maximum(x @ kernel + bias, 0.0)
    return x


class Rows:
    """Rows of a model's tables, read one by one as the formulas name them; not the way the models do it."""

    def __init__(self, model: Any, part: str, description: Description, examples: Examples) -> None:
        self.table = het_tf.Table(f"{model.name}/{part}")
        self.examples = examples
        self.offset, total = {}, 0
        for field in self.fields(description, part):
            of_name = np.int64(model.rows.row_ids(part, field.name, 0)) if field.size is None else None
            self.offset[field.name] = total if of_name is None else of_name
            total += field.size or 0

    @staticmethod
    def fields(description: Description, part: str) -> tuple[Field, ...]:
        return description.wide if part == "wide" else description.categorical + description.sequences

    def one(self, name: str) -> np.ndarray:
        return self.table.lookup(self.examples.categorical[name] + self.offset[name])

    def mean(self, name: str) -> np.ndarray:
        result = []
        for ids in self.examples.sequences[name]:
            real = [i + self.offset[name] for i in ids if i != PADDING]
            result.append(self.table.lookup(real).mean(0) if real else np.zeros(self.table.dim))
        return np.array(result)

    def vectors(self) -> list[np.ndarray]:
        return [self.one("a"), self.one("h"), self.mean("s")]


def trained(cls: Any, rng: np.random.Generator, **kwargs: Any) -> tuple[Any, Examples, np.ndarray]:
    """A model after some steps (so that no weight is 0), examples, and its standardised numbers of them."""
    examples = toy_examples(rng)
    linear = het_tf.optimizers.SGD(0.5)
    model = cls(TOY, embedding_dim=DIM, hidden_units=(8, 3), linear_optimizer=linear, **kwargs)
    model.adapt(examples)
    compiled(model).fit(examples.to_tf(16), epochs=3, verbose=0, shuffle=False)
    numeric = examples.numeric.astype(np.float64)
    return model, examples, (numeric - numeric.mean(0)) / numeric.std(0)


# --- blocks -----------------------------------------------------------------------------------------------


def test_factorization_machine_is_the_sum_over_pairs(rng: np.random.Generator) -> None:
    v = rng.normal(size=(6, 5, 3)).astype(np.float32)
    expected = sum((v[:, i] * v[:, j]).sum(1) for i, j in itertools.combinations(range(5), 2))
    assert_close(FactorizationMachine()(v).numpy()[:, 0], expected)


@pytest.mark.parametrize("rank", [None, 2])
def test_cross_layer(rng: np.random.Generator, rank: int | None) -> None:
    first, last = (rng.normal(size=(6, 5)).astype(np.float32) for _ in range(2))
    layer = Cross(rank)
    layer([first, last])
    bias = rng.normal(size=5).astype(np.float32)
    layer.bias.assign(bias)
    matrix = layer.matrix.numpy() if rank is None else layer.down.numpy() @ layer.up.numpy()
    assert np.linalg.matrix_rank(matrix) == (5 if rank is None else rank)
    expected = first * (last @ matrix + bias) + last
    assert_close(layer([first, last]).numpy(), expected)
    assert Cross.from_config(layer.get_config()).rank == rank


def test_id_space_keeps_fields_apart() -> None:
    space = IdSpace(SIZED.fields)
    ids = np.concatenate([space(field, np.arange(field.size)) for field in SIZED.fields])
    assert sorted(ids) == list(range(space.size)) and space.size == 5 + 9 + 7 + 6


FIELDS = Description(
    "fields",
    categorical=(Field("user", None), Field("item", None), Field("kind", 3)),
    sequences=(Field("history", None, length=2, shares="item"),),
)


def test_fields_of_any_id_have_rows_of_their_own(fresh: np.random.Generator, tmp_path: Path) -> None:
    """User 5 and item 5 had one row, and learnt each other's gradients. A history has the rows of its items;
    `row_ids` says where all are, and an export reads the same ones."""
    inputs = {"user": [5], "item": [5], "kind": [2], "history": [[5, PADDING]]}
    inputs = {name: tf.constant(ids, tf.int64) for name, ids in inputs.items()}
    model = DeepFM(FIELDS, embedding_dim=DIM, hidden_units=(3,), name="fields", seed=1)
    user, item, _, history = model.rows(inputs)["deep"].numpy()[0]
    assert (user != item).all() and (item == history).all()
    compiled(model).fit(tf.data.Dataset.from_tensors((inputs, [[1.0]])), epochs=2, verbose=0)
    table = het_tf.Table("fields/deep")
    assert table.size == 3, "one for user, kind, and item with its history"
    rows = {name: int(model.rows.row_ids("deep", name, ids[0])) for name, ids in list(inputs.items())[:3]}
    np.testing.assert_array_equal(model.rows.row_ids("deep", "history", [[5]]), [[rows["item"]]])
    assert set(table.to_numpy()[0].tolist()) == set(rows.values()) and rows["kind"] == 2
    with pytest.raises(KeyError, match="part 'deep' with field 'film'"):
        model.rows.row_ids("deep", "film", 5)

    het_tf.export(model, tmp_path / "1", verbose=False)
    served = serve(tmp_path / "1")(**inputs)
    expected = model(inputs, training=False)
    np.testing.assert_allclose(next(iter(served.values())), expected, rtol=1e-5)


def test_rows_of_a_file_go_to_one_field(fresh: np.random.Generator, tmp_path: Path) -> None:
    """`load_rows` took the ids of a file for those of the table, which are those of no field."""
    model = DeepFM(FIELDS, embedding_dim=2, name="fields")
    np.savez(tmp_path / "x.npz", ids=[5, -7], values=np.eye(2))
    het_tf.checkpoint.load_rows(
        "fields/deep", tmp_path / "x.npz", row_ids=lambda ids: model.rows.row_ids("deep", "user", ids)
    )
    assert het_tf.Table("fields/deep").size == 2
    found = model.rows(
        {
            name: tf.constant([[5, 5]]) if name == "history" else tf.constant([5])
            for name in ("user", "item", "kind", "history")
        }
    )["deep"].numpy()[0]
    assert found[0].tolist() == [1, 0] and abs(found[1:]).max() < 0.1


TEXTS = Description(
    "texts",
    categorical=(
        Field("user", None, dtype="string"),
        Field("item", None, dtype="string"),
        Field("kind", None),
    ),
    sequences=(Field("history", None, length=2, shares="item", dtype="string"),),
    numeric=("x",),
    item=("item",),
)


def texts(rows: int = 64) -> Examples:
    number = np.arange(rows)
    users, items = (np.array([f"{n % size}" for n in number], object) for size in (5, 7))
    history = np.stack([np.roll(items, 1), np.full(rows, "")], axis=1).astype(object)
    x = np.where(number % 3, number, np.nan).astype(np.float32)[:, None]
    ids = {"user": users, "item": items, "kind": number % 2}
    return Examples(ids, {"history": history}, x, (number % 2).astype(np.float32))


@pytest.mark.parametrize("cls", [DIN, TwoTower])
def test_strings_are_ids(fresh: np.random.Generator, cls: Any, tmp_path: Path) -> None:
    """They were "Cast string to int64 is not supported". A number that is missing counts as the mean."""
    examples = texts()
    model = cls(TEXTS, embedding_dim=DIM, hidden_units=(4,), name="texts")
    dataset = examples.to_tf(16)
    model.adapt(dataset)
    if cls is TwoTower:
        model.compile("adam")
    else:
        compiled(model)
    assert np.isfinite(model.fit(dataset, epochs=2, verbose=0).history["loss"]).all()
    assert np.isfinite(model.fit(tensors(examples), examples.label, verbose=0).history["loss"]).all()
    model.evaluate(dataset, verbose=0)
    if cls is TwoTower:
        scores, ids = model.index(examples).search(model.user_tower(tensors(examples)), 3)
        assert set(ids.ravel()) <= set("0123456") and scores.shape == (64, 3)
        with pytest.raises(ValueError, match="ids are strings, but FAISS takes integers"):
            model.index(examples).to_faiss()
        return
    table = het_tf.Table("texts/deep")
    assert table.size == 5 + 7 + 2, "a row for each user, item and kind; padding has none"
    places = model.rows.row_ids("deep", "item", ["3", "4"])
    np.testing.assert_array_equal(places, model.rows.row_ids("deep", "history", ["3", "4"]))
    assert set(places.tolist()) <= set(table.to_numpy()[0].tolist())
    het_tf.export(model, tmp_path / "1", verbose=False)
    served = serve(tmp_path / "1")(**examples.inputs())
    expected = model(tensors(examples), training=False)
    np.testing.assert_allclose(next(iter(served.values())), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"user": [1, 2]}, "feature 'user': ids are int.*, but the model was made for string"),
        ({"kind": ["a", "b"]}, "feature 'kind': ids are string, but the model was made for int64"),
        ({"kind": [1.0, np.nan]}, "feature 'kind': ids are float.*must be integers"),
        ({"kind": [-(2**63), 1]}, r"(?s)feature.*kind.*1.*ids are -2\^63, which is what NaN becomes"),
    ],
)
def test_ids_of_another_type(
    fresh: np.random.Generator, inputs: dict[str, Any], message: str, mode: str
) -> None:
    """A NaN that was made an integer trained the row of -2^63, silently."""
    model = DeepFM(TEXTS, embedding_dim=DIM, hidden_units=(4,), name="texts")
    good = tensors(texts(2))
    bad = {**good, **{name: tf.constant(ids) for name, ids in inputs.items()}}
    if message.startswith("(?s)"):
        bad["kind"] = tf.constant(inputs["kind"], tf.int64)
    tf.config.run_functions_eagerly(False)
    call = tf.function(model) if mode == "graph" else model
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        call(bad)


def test_a_column_without_numbers_has_no_scale(fresh: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=r"numeric columns \['x'\] have no number in 3 rows"):
        DeepFM(TEXTS).adapt(np.full((3, 1), np.nan))
    with pytest.raises(ValueError, match=r"numeric columns \['x'\] have infinite numbers; correct them"):
        DeepFM(TEXTS).adapt(np.float32([[1], [np.inf], [2]]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"categorical": (Field("a", None), Field("a", 3))}, "two fields are called 'a'"),
        ({"sequences": (Field("a", None, length=2),)}, "two fields are called 'a'"),
        ({"numeric": ("x", "y", "x")}, "two numeric columns are called 'x'"),
        ({"categorical": (Field("numeric", 2),), "numeric": ("x",)}, "no field 'numeric' beside numeric"),
    ],
)
def test_names_come_once(fields: dict[str, Any], message: str) -> None:
    """The second of two fields took the input, and the rows, of the first."""
    with pytest.raises(ValueError, match=message):
        Description("twice", **{"categorical": (Field("a", None),), **fields})


# --- models against their formulas ------------------------------------------------------------------------


def test_wide_deep_formula(fresh: np.random.Generator) -> None:
    model, examples, numeric = trained(WideDeep, fresh)
    wide = Rows(model, "wide", TOY, examples)
    deep = np.concatenate([*Rows(model, "deep", TOY, examples).vectors(), numeric], axis=1)
    *hidden, kernel, bias = weights(model)
    expected = wide.one("a") + wide.one("h") + wide.one("a_x_h") + perceptron(deep, hidden) @ kernel + bias
    assert np.abs(wide.one("a_x_h")).min() > 1e-3
    assert_close(model(tensors(examples), training=False), expected, MODEL)


def test_deepfm_formula(fresh: np.random.Generator) -> None:
    model, examples, numeric = trained(DeepFM, fresh)
    first = sum(Rows(model, "linear", TOY, examples).vectors())
    first = first + numeric @ model.numeric_linear.kernel.numpy()
    vectors = Rows(model, "deep", TOY, examples).vectors()
    vectors += [numeric[:, [m]] * model.numeric_vectors.vectors.numpy()[m] for m in range(2)]
    second = sum((v * w).sum(1, keepdims=True) for v, w in itertools.combinations(vectors, 2))
    *hidden, kernel, bias = weights(model)
    expected = first + second + perceptron(np.concatenate(vectors, 1), hidden) @ kernel + bias
    assert_close(model(tensors(examples), training=False), expected, MODEL)


@pytest.mark.parametrize(("structure", "rank"), [("parallel", None), ("stacked", 2)])
def test_dcn_formula(fresh: np.random.Generator, structure: str, rank: int | None) -> None:
    model, examples, numeric = trained(DCNv2, fresh, structure=structure, cross_rank=rank, cross_layers=2)
    x0 = np.concatenate([*Rows(model, "deep", TOY, examples).vectors(), numeric], axis=1)
    x = x0
    for cross in model.crosses:
        matrix = cross.matrix.numpy() if rank is None else cross.down.numpy() @ cross.up.numpy()
        x = x0 * (x @ matrix + cross.bias.numpy()) + x
    *hidden, kernel, bias = weights(model)
    last = perceptron(x, hidden) if structure == "stacked" else np.concatenate([x, perceptron(x0, hidden)], 1)
    assert_close(model(tensors(examples), training=False), last @ kernel + bias, MODEL)


# --- the embedding sides ----------------------------------------------------------------------------------


def test_padding_and_unused_fields_learn_nothing(fresh: np.random.Generator) -> None:
    model, examples, _ = trained(DeepFM, fresh)
    ids, _ = het_tf.Table("deepfm/deep", model.rows.collection.namespace).to_numpy()
    sequence = {int(i) + 5 for i in examples.sequences["s"].ravel() if i != PADDING}
    hashes = set(model.rows.row_ids("deep", "h", examples.categorical["h"]).tolist())
    assert set(ids.tolist()) == {*range(5), *sequence, *hashes}


def test_table_optimizers_are_the_ones_given(fresh: np.random.Generator) -> None:
    cache = het_tf.Cache(rows=50, staleness=7, checks="notified")
    wide_deep = WideDeep(TOY, embedding_dim=DIM, table_optimizer="adagrad", cache=cache)
    deep, wide = wide_deep.rows.collection.tables
    assert (deep.name, deep.dim, type(deep.optimizer).__name__) == ("wide_deep/deep", DIM, "Adagrad")
    assert (wide.name, wide.dim, type(wide.optimizer).__name__) == ("wide_deep/wide", 1, "Ftrl")
    assert wide_deep.rows.collection.get_config()["cache"] == cache.get_config()
    deepfm = DeepFM(TOY, table_optimizer=het_tf.optimizers.Adam(0.01))
    assert {type(table.optimizer) for table in deepfm.rows.collection.tables} == {het_tf.optimizers.Adam}


# --- numbers, training -------------------------------------------------------------------------------------


def test_adapt_standardises_by_the_examples_given(fresh: np.random.Generator) -> None:
    examples = toy_examples(fresh, 1000)
    model = WideDeep(TOY)
    assert_close(model.numeric(tensors(examples)), examples.numeric)
    model = WideDeep(TOY)
    model.adapt(examples)
    numeric = model.numeric(tensors(examples)).numpy()
    np.testing.assert_allclose([numeric.mean(0), numeric.std(0)], [[0, 0], [1, 1]], atol=1e-4)
    WideDeep(Description("no numbers", (Field("a", 5),))).adapt(examples)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"embedding_dim": 0}, "embedding_dim is 0"),
        ({"hidden_units": (8, 0)}, "hidden_units is"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"table_optimizer": "lion"}, "lion"),
        ({"cross_layers": -1}, "cross_layers is -1"),
        ({"cross_rank": 0}, "rank is 0"),
        ({"structure": "serial"}, "structure is 'serial'"),
        ({"cache": 100}, "cache is 100; give a het_tf.Cache"),
    ],
)
def test_bad_arguments(fresh: np.random.Generator, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DCNv2(TOY, **arguments)


@pytest.mark.parametrize(("cls", "policy"), [(WideDeep, "mixed_bfloat16"), (DeepFM, "mixed_float16")])
def test_mixed_precision(fresh: np.random.Generator, cls: Any, policy: str) -> None:
    keras.mixed_precision.set_global_policy(policy)
    examples = toy_examples(fresh)
    model = compiled(cls(TOY, DIM, (8,)))
    model.adapt(examples)
    history = model.fit(examples.to_tf(16), epochs=2, verbose=0, shuffle=False).history
    assert np.isfinite(history["loss"]).all()
    assert model(tensors(examples)).dtype == tf.float32
