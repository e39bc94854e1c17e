"""TwoTower and SASRec: losses by formula, counts of items, both embedding sides; the exact index."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from export_lib import assert_predicts, serve
from floats_lib import MODEL, TRAINED, assert_close
from models_lib import EVENTS, assert_equal_twins, events, tensors, train, twins

import het_tf
from het_tf.zoo.data import PADDING, Description, Field
from het_tf.zoo.models import Index, SASRec, TwoTower, mixed_negatives
from het_tf.zoo.models import index as index_lib
from het_tf.zoo.models.occurrences import Occurrences
from het_tf.zoo.models.sasrec import CausalBlock

pytestmark = pytest.mark.slow

keras = tf.keras
IDS = Description("ids", (Field("user", 5), Field("item", 9)), item=("item",))
SMALL: dict[str, Any] = {"embedding_dim": 4, "hidden_units": (6,), "vector_dim": 3}


def ids_of(rng: np.random.Generator, rows: int = 16) -> dict[str, Any]:
    return {"user": tf.constant(rng.integers(0, 5, rows)), "item": tf.constant(rng.integers(0, 9, rows))}


def softmax_loss(model: Any, inputs: Any, outputs: Any) -> Any:
    return model.softmax_loss(outputs)


# --- the softmax over the batch ----------------------------------------------------------------------------


def expected_loss(user: np.ndarray, item: np.ndarray, e: np.ndarray, t: float) -> float:
    """The mean of the docstring's loss_i, sample by sample."""
    losses = []
    for i, x in enumerate(user):
        scores = np.array([x @ item[j] / t - np.log(e[j]) for j in range(len(item))])
        losses.append(np.log(np.exp(scores - scores[i]).sum()))
    return float(np.mean(losses))


@pytest.mark.parametrize("negatives", ["none", "hard", "drawn"])
def test_the_loss_is_the_formula(fresh: np.random.Generator, negatives: str) -> None:
    drawn_from = 9 if negatives == "drawn" else None
    model = TwoTower(IDS, temperature=0.5, drawn_from=drawn_from, **SMALL)
    met = np.zeros(9)
    for _ in range(3):
        inputs = ids_of(fresh)
        given = fresh.integers(0, 9, 0 if negatives == "none" else 6)
        if len(given):
            inputs["negative/item"] = tf.constant(given.reshape(3, 2))
        outputs = model(inputs, training=True)
        ids = np.concatenate([inputs["item"].numpy(), given])
        e = 16 * (met[ids] + 1) / (met.sum() + 1)
        if negatives == "hard":
            e[16:] = 1.0
        if negatives == "drawn":
            e += 6 / 9
        vectors = model.item_tower({"item": tf.constant(ids)}, training=False).numpy()
        wanted = expected_loss(outputs["user"].numpy(), vectors, e, 0.5)
        assert_close(model.softmax_loss(outputs), wanted, MODEL)
        train(model, as_examples(inputs), 1, softmax_loss)
        met += np.bincount(inputs["item"].numpy(), minlength=9)


def as_examples(inputs: dict[str, Any]) -> Any:
    """Batches for `train`: one batch of these inputs, of any lengths."""

    class Batch:
        label = np.zeros(1, np.float32)

        def inputs(self) -> dict[str, np.ndarray]:
            return {name: column.numpy() for name, column in inputs.items()}

        def batches(self, size: int) -> list[Any]:
            return [self]

        def __len__(self) -> int:
            return 1

    return Batch()


def test_weights_of_samples(fresh: np.random.Generator) -> None:
    model = TwoTower(IDS, logq=False, **SMALL)
    outputs = model(ids_of(fresh), training=True)
    alone = model.softmax_loss(outputs, tf.constant([0.0] * 15 + [2.0]))
    others = model.softmax_loss(outputs, tf.constant([1.0] * 15 + [0.0]))
    assert_close(model.softmax_loss(outputs), float(alone + 15 * others) / 16, MODEL)


@pytest.mark.usefixtures("eagerly")
def test_items_are_counted_once_each_time_they_occur(fresh: np.random.Generator) -> None:
    """Also repetitions inside of a batch; negatives and evaluation do not count."""
    model = TwoTower(IDS, name="counted", **SMALL)
    model.compile("sgd")
    inputs = {name: ids.numpy() for name, ids in ids_of(fresh, 64).items()}
    data = tf.data.Dataset.from_tensor_slices(inputs).batch(16)
    data = mixed_negatives(data.map(lambda x: (x, tf.zeros(16))), {"item": np.arange(9)}, 4)
    model.fit(data, epochs=2, verbose=0)
    loss = model.evaluate(data, verbose=0)
    wanted = 2 * np.bincount(inputs["item"], minlength=9)
    counts, total, _ = model.occurrences(tf.range(9, dtype=tf.int64), training=False)
    np.testing.assert_array_equal(counts, wanted)
    assert total == 128 and np.isfinite(loss)
    assert set(het_tf.tables()) == {"counted_user/deep", "counted_item/deep", "counted/occurrences"}


def test_the_correction_lets_popular_items_score(fresh: np.random.Generator) -> None:
    """Users choose only by popularity: with the correction scores are its log, without they are flat."""
    popularity = np.array([0.6, 0.25, 0.1, 0.05])
    users, items = fresh.integers(0, 5, 4096), fresh.choice(4, 4096, p=popularity)
    gaps = {}
    for logq in (True, False):
        tower = {"embedding_dim": 4, "hidden_units": (), "vector_dim": 3, "table_optimizer": "adagrad"}
        about = Description("popular", (Field("user", 5), Field("item", 4)), item=("item",))
        model = TwoTower(about, temperature=1.0, logq=logq, unit_length=False, **tower)
        model.compile(keras.optimizers.Adam(0.05))
        data = tf.data.Dataset.from_tensor_slices({"user": users, "item": items}).batch(64)
        model.fit(data.map(lambda x: (x, tf.zeros(64))), epochs=2, verbose=0)
        asked = {"user": tf.constant(users[:4]), "item": tf.constant(np.arange(4))}
        vectors = model(asked)
        scores = vectors["user"].numpy()[:1] @ vectors["item"].numpy().T
        gaps[logq] = float(scores[0, 0] - scores[0, 3])
    assert gaps[True] > 1.5 and gaps[False] < 0.5 * gaps[True]


def test_counts_have_no_vocabulary(fresh: np.random.Generator) -> None:
    layer = Occurrences("many")
    ids = tf.constant([2**62, -5, 2**62])
    for _ in range(3):
        with tf.GradientTape() as tape:
            counts, total, term = layer(
                ids, occurred=2, training=True
            )  # the third is looked at, and does not occur
        het_tf.apply(
            zip(tape.gradient(term, layer.trainable_variables), layer.trainable_variables, strict=True)
        )
    np.testing.assert_array_equal(counts, [2, 2, 2])
    assert (float(total), float(term)) == (4, 0)


# --- both models --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("logq", [pytest.param(False, marks=pytest.mark.long), True])
def test_two_tower_sides_train_the_same_model(fresh: np.random.Generator, logq: bool) -> None:
    examples = events(fresh, 30)
    het, other = twins(TwoTower, EVENTS, examples, logq=logq, temperature=0.5, **SMALL)
    losses = [train(model, examples, 3, softmax_loss) for model in (het, other)]
    assert_close(*losses, TRAINED)
    assert_equal_twins(het, other)


class Fixed(SASRec):
    """With the same negatives every time."""

    def call(self, inputs: Any, training: Any = None) -> Any:
        tf.random.set_seed(1)
        return super().call(inputs, training)


def test_sasrec_sides_train_the_same_model(fresh: np.random.Generator) -> None:
    examples = events(fresh, 30)
    het, other = twins(Fixed, EVENTS, examples, embedding_dim=4, heads=2, blocks=2, negatives=3)

    def loss_of(model: Any, inputs: Any, outputs: Any) -> Any:
        return model.next_item_loss(outputs)

    losses = [train(model, examples, 3, loss_of) for model in (het, other)]
    assert_close(*losses, TRAINED)
    assert_equal_twins(het, other)


def test_sasrec_scores_the_item_after_each_place(fresh: np.random.Generator) -> None:
    """The first logit of place t is that of the history's next item, at its end of the item to come."""
    model = SASRec(EVENTS, 4)
    inputs = tensors(events(fresh))
    outputs = model(inputs, training=True)
    history, item = inputs["history"].numpy(), inputs["item"].numpy()
    largest = np.abs(outputs["logits"]).max()
    for row in (1, 2, 3, 4, 5):
        n = int((history[row] != PADDING).sum())
        for t in range(n):
            cut = np.where(np.arange(4) <= t, history[row], PADDING)
            following = history[row, t + 1] if t + 1 < n else item[row]
            asked = {"history": tf.constant(cut[None]), "item": tf.constant([following])}
            score = float(model(asked, training=False)["score"][0, 0])
            assert_close(outputs["logits"][row, t, 0], score, MODEL, magnitude=largest)
    assert outputs["logits"].shape == (32, 4, 2)
    np.testing.assert_array_equal(outputs["there"], history != PADDING)


def test_a_place_does_not_see_later_ones(fresh: np.random.Generator) -> None:
    block = CausalBlock(heads=2)
    x = fresh.normal(size=(2, 5, 4)).astype(np.float32)
    there = np.arange(5) < np.array([[5], [3]])
    before = block((tf.constant(x), tf.constant(there))).numpy()
    for place in range(5):
        changed = x.copy()
        changed[:, place] += fresh.normal(size=(2, 4))
        after = block((tf.constant(changed), tf.constant(there))).numpy()
        differs = np.abs(after - before).max(axis=2) > 1e-6
        wanted = there & there[:, [place]] & (np.arange(5) >= place)
        assert (differs == wanted).all(), place
    assert (before[1, 3:] == 0).all()


def test_sasrec_loss_is_the_formula(fresh: np.random.Generator) -> None:
    model = SASRec(EVENTS, 4)
    outputs = {"logits": fresh.normal(size=(3, 4, 3)).astype("f"), "there": np.arange(4) < [[4], [0], [2]]}
    total = []
    for b, t in zip(*np.nonzero(outputs["there"]), strict=True):
        own, *others = outputs["logits"][b, t]
        total.append(np.log1p(np.exp(-own)) + np.mean(np.log1p(np.exp(others))))
    found = model.next_item_loss({name: tf.constant(one) for name, one in outputs.items()})
    assert_close(found, np.mean(total))


@pytest.mark.parametrize("cls", [TwoTower, SASRec])
def test_configuration_survives_json(fresh: np.random.Generator, cls: Any) -> None:
    extra = {**SMALL, "logq": False, "drawn_from": 9} if cls is TwoTower else {"embedding_dim": 4, "heads": 2}
    model = cls(EVENTS, seed=5, table_optimizer="adam", **extra)
    config = json.loads(json.dumps(model.get_config()))
    with het_tf.namespace("copy"):
        copy = cls.from_config(config)
    assert json.loads(json.dumps(copy.get_config())) == config
    inputs = tensors(events(fresh))
    shapes = [{name: one.shape for name, one in made(inputs).items()} for made in (model, copy)]
    assert shapes[0] == shapes[1] and shapes[0]["score"] == (32, 1)
    het_tf.reset("copy")


@pytest.mark.long
@pytest.mark.parametrize("cls", [TwoTower, SASRec])
def test_fit_evaluate_and_export(fresh: np.random.Generator, tmp_path: Path, cls: Any) -> None:
    examples = events(fresh, 64)
    examples = type(examples)(examples.categorical, examples.sequences, examples.numeric, np.ones(64, "f"))
    model = cls(EVENTS, dropout=0.1, **(SMALL if cls is TwoTower else {"embedding_dim": 4}))
    model.compile("sgd")
    history = model.fit(examples.to_tf(16), validation_data=examples.to_tf(16), epochs=2, verbose=0).history
    assert np.isfinite(history["loss"] + history["val_loss"]).all()
    inputs = tensors(examples)
    het_tf.export(model, tmp_path / "1", verbose=False)
    served = serve(tmp_path / "1")(**{name: inputs[name] for name in model.input_specs()})
    assert_predicts(served["score"], model(inputs, training=False)["score"])
    if cls is TwoTower:
        het_tf.export(model.user_tower, tmp_path / "2", verbose=False)
        users = {name: inputs[name] for name in model.user_tower.input_specs()}
        (vectors,) = serve(tmp_path / "2")(**users).values()
        assert_predicts(vectors, model(inputs)["user"])


# --- the index ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", [64, 1 << 24])
def test_the_index_is_exact(monkeypatch: pytest.MonkeyPatch, scores: int) -> None:
    """As a sort of all scores, in one block and in many."""
    monkeypatch.setattr(index_lib, "SCORES", scores)
    rng = np.random.default_rng(0)
    ids, vectors = rng.permutation(37) * 10**15, rng.integers(-3, 4, (37, 3)).astype(np.float32)
    queries = rng.integers(-3, 4, (9, 3)).astype(np.float32)
    for k in (1, 5, 37):
        values, found = Index(ids, vectors).search(queries, k)
        products = queries @ vectors.T
        order = np.argsort(-products, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(found, ids[order])
        np.testing.assert_array_equal(values, np.take_along_axis(products, order, axis=1))
    assert Index(ids, vectors).search(np.zeros((0, 3)), 2)[1].shape == (0, 2)


@pytest.mark.usefixtures("eagerly")
def test_a_model_is_its_index(fresh: np.random.Generator) -> None:
    examples = events(fresh)
    model = TwoTower(EVENTS, **SMALL)
    index = model.index(examples, batch_size=2)
    np.testing.assert_array_equal(index.ids, np.unique(examples.categorical["item"]))
    first = {int(item): row for row, item in reversed(list(enumerate(examples.categorical["item"])))}
    outputs = model(tensors(examples))
    for item, vector in zip(index.ids, index.vectors, strict=True):
        assert_close(vector, outputs["item"].numpy()[first[int(item)]], MODEL)
    sas = SASRec(EVENTS, 4)
    outputs = sas(tensors(examples))
    values, ids = sas.index(np.arange(9)).search(outputs["user"], 9)
    own = values[ids == examples.categorical["item"][:, None]]
    assert_close(own, outputs["score"].numpy()[:, 0], MODEL)
    assert len(TwoTower(IDS, **SMALL).index([3, 1])) == 2


def test_faiss_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index([30, 10], [[1.0, 0.0], [0.0, 2.0]])
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "faiss", None)
        with pytest.raises(ImportError, match="pip install faiss-cpu"):
            index.to_faiss()
    pytest.importorskip("faiss", reason="faiss-cpu is not installed; it is optional")
    values, ids = index.to_faiss().search(np.array([[1.0, 1.0]], np.float32), 2)
    assert ids.tolist() == [[10, 30]] and values.tolist() == [[2.0, 1.0]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Index([1, 2], [[1.0], [2.0]]).search([[1.0]], 3), "k is 3; .*an integer from 1 to 2"),
        (lambda: Index([1, 2], [[1.0], [2.0]]).search([[1.0]], 0), "k is 0"),
        (lambda: Index([1, 2], [[1.0], [2.0]]).search([[1.0, 2.0]], 1), r"give \[Q, 1\]"),
        (lambda: Index([1, 1], [[1.0], [2.0]]), "has items twice"),
        (lambda: Index([1.0], [[1.0]]), "ids are float64"),
        (lambda: Index([1], [[np.nan]]), "NaN or Inf"),
        (lambda: Index([1], [[1.0], [2.0]]), r"give \[N\] and \[N, d\]"),
        (lambda: TwoTower(IDS).index([]), "there are no items"),
        (lambda: TwoTower(EVENTS).index([1, 2]), r"items lack the fields \['kinds'\]"),
        (lambda: TwoTower(IDS, temperature=0.0), r"temperature is 0\.0"),
        (lambda: TwoTower(IDS, vector_dim=0), "vector_dim is 0"),
        (lambda: TwoTower(IDS, drawn_from=0), "drawn_from is 0"),
        (lambda: TwoTower(Description("d", (Field("user", 5),))), "has no fields of the item"),
        (lambda: TwoTower(Description("d", (Field("i", 5),), item=("i",))), "has no fields of the user"),
        (lambda: SASRec(IDS), "'ids' has no history"),
        (lambda: SASRec(EVENTS, 5, heads=2), "embedding_dim is 5 and heads is 2"),
        (lambda: SASRec(EVENTS, negatives=0), "negatives is 0"),
        (lambda: mixed_negatives(None, {"item": np.arange(0)}, 4), "give each field one row an item"),
        (lambda: mixed_negatives(None, {"item": np.arange(3)}, 0), "count is 0"),
        (
            lambda: SASRec(
                Description("h", (Field("i", None),), (), (Field("p", None, length=2, shares="i"),))
            ),
            "'p' are 64-bit hashes",
        ),
    ],
)
def test_bad_arguments(fresh: np.random.Generator, make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_negatives_have_all_fields_of_the_item(fresh: np.random.Generator) -> None:
    inputs = {**tensors(events(fresh)), "negative/item": tf.constant([1, 2])}
    with pytest.raises(ValueError, match=r"negatives lack \['negative/kinds'\]"):
        TwoTower(EVENTS, **SMALL)(inputs)


# --- lists that are longer than those of the description ---------------------------------------------------


OTHERS = [pytest.param(cls, marks=pytest.mark.long) for cls in (het_tf.models.DIN, TwoTower)]


@pytest.mark.parametrize("cls", [het_tf.models.DeepFM, SASRec, *OTHERS])
def test_of_a_longer_list_the_last_ids_count(fresh: np.random.Generator, tmp_path: Path, cls: Any) -> None:
    """Would catch: an average over ids that training never sees together, and a request that is refused."""
    model = cls(EVENTS, **(SMALL if cls is TwoTower else {"embedding_dim": 4}))
    inputs = {name: one[:4] for name, one in tensors(events(fresh)).items()}
    longer = [[1, 2, 3, 4, 5, 6, PADDING], [3, 1, 2, 4, PADDING, PADDING, PADDING], [5] + [PADDING] * 6]
    longer.append([PADDING] * 7)
    last = [[3, 4, 5, 6], [3, 1, 2, 4], [5, PADDING, PADDING, PADDING], [PADDING] * 4]
    expected = model({**inputs, "history": tf.constant(last, tf.int64)}, training=False)
    het_tf.export(model, tmp_path / "1", verbose=False)
    asked = {**inputs, "history": tf.constant(longer, tf.int64)}
    found = model(asked, training=False)
    served = serve(tmp_path / "1")(**{name: asked[name] for name in model.input_specs()})
    if cls in (SASRec, TwoTower):
        found, expected, served = found["score"], expected["score"], {"": served["score"]}
    np.testing.assert_array_equal(found, expected)
    assert_predicts(next(iter(served.values())), expected)
    short = [row[:2] for row in last[2:]]
    two = {name: one[2:] for name, one in inputs.items()}
    found = model({**two, "history": tf.constant(short, tf.int64)}, training=False)
    whole = model({**two, "history": tf.constant(last[2:], tf.int64)}, training=False)
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(whole), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("eagerly")
def test_an_index_takes_what_training_takes(fresh: np.random.Generator) -> None:
    """Would catch: items that come in several batches and are taken twice, or with another item's fields."""
    items, kinds = fresh.integers(0, 9, 64), np.arange(9) % 4
    given = {"user": fresh.integers(0, 5, 64), "item": items, "kind": kinds[items], "clicked": np.ones(64)}
    text = {**given, "item": [f"i{item}" for item in items]}
    for columns in (given, text):
        about = het_tf.data.describe(columns)
        about = dataclasses.replace(about, item=("item", "kind"))
        stream = het_tf.data.tabular(columns, about)
        model = TwoTower(about, **SMALL)
        ids = np.unique(np.asarray(columns["item"], object))
        wanted = {"item": ids, "kind": np.array([kinds[int(str(one)[-1])] for one in ids])}
        expected = model.index(wanted)
        for data in (stream, stream.read(), stream.to_tf(10), stream.to_tf(10).map(lambda x, y: x)):
            found = model.index(data)
            np.testing.assert_array_equal(found.ids, expected.ids)
            assert_close(found.vectors, expected.vectors, MODEL)
        with pytest.raises(ValueError, match=r"items is a dataset without an end; give it before repeat\(\)"):
            model.index(stream.to_tf(10).repeat())
        with pytest.raises(ValueError, match=r"items lack the fields \['kind'\]; .*the data that training"):
            model.index(stream.to_tf(10).map(lambda x, y: {"item": x["item"]}))
