"""Layers of DLRM, xDeepFM, AutoInt, DIN, MMoE and PLE by formula; all models' two embedding sides."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from export_lib import assert_predicts, serve
from floats_lib import MODEL, TRAINED, assert_close
from models_lib import EVENTS, assert_equal_twins, events, tensors, train, twins

import het_tf
from het_tf.zoo.data import Description, Field
from het_tf.zoo.models import DIN, DLRM, PLE, AutoInt, DCNv2, DeepFM, MMoE, WideDeep, XDeepFM
from het_tf.zoo.models.autoint import FieldAttention
from het_tf.zoo.models.din import TargetAttention
from het_tf.zoo.models.dlrm import PairwiseDots
from het_tf.zoo.models.multi_task import Experts
from het_tf.zoo.models.xdeepfm import CompressedInteraction

pytestmark = pytest.mark.slow

keras = tf.keras
LONG = pytest.mark.long
ONE_LABEL = Description("events", EVENTS.categorical, (), EVENTS.sequences, EVENTS.numeric)
SMALL: dict[Any, dict[str, Any]] = {
    WideDeep: {},
    DeepFM: {},
    DCNv2: {"cross_rank": 2, "structure": "stacked"},
    DLRM: {"bottom_units": (6,)},
    XDeepFM: {"cin_units": (5, 3)},
    AutoInt: {"attention_dim": 3, "attention_layers": 2},
    DIN: {"attention_units": (5,)},
    MMoE: {"experts": 3, "tower_units": (4,)},
    PLE: {"levels": 2, "tower_units": (4,), "task_experts": 1},
}


def description_of(cls: Any) -> Description:
    return EVENTS if cls in (MMoE, PLE) else ONE_LABEL


def examples_of(cls: Any, rng: np.random.Generator, rows: int = 30) -> Any:
    made = events(rng, rows)
    if cls in (MMoE, PLE):
        return made
    return type(made)(made.categorical, made.sequences, made.numeric, np.ascontiguousarray(made.label[:, 0]))


# --- layers against their formulas -------------------------------------------------------------------------


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_pairwise_dots(rng: np.random.Generator) -> None:
    v = rng.normal(size=(6, 4, 3)).astype(np.float32)
    wanted = np.stack([(v[:, i] * v[:, j]).sum(1) for i, j in itertools.combinations(range(4), 2)], axis=1)
    assert_close(PairwiseDots()(v), wanted)


def test_compressed_interaction(rng: np.random.Generator) -> None:
    x = rng.normal(size=(5, 4, 3)).astype(np.float32)
    layer = CompressedInteraction((3, 2))
    result = layer(x).numpy()
    last, wanted = x, []
    for matrix, (before, units) in zip(layer.matrices, ((4, 3), (3, 2)), strict=True):
        weights = matrix.numpy().reshape(before, 4, units)
        after = np.zeros((5, units, 3))
        for h, i, j in itertools.product(range(units), range(before), range(4)):
            after[:, h] += weights[i, j, h] * last[:, i] * x[:, j]
        wanted.append(after.sum(2))
        last = after
    assert_close(result, np.concatenate(wanted, 1), MODEL)


def test_field_attention(rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 4, 5)).astype(np.float32)
    layer = FieldAttention(heads=2, dim=3)
    result = layer(x).numpy()
    query, key, value, rest = np.split(layer.matrices.numpy(), 4, axis=1)
    for sample, m in itertools.product(range(2), range(4)):
        mixed = []
        for head in (slice(0, 3), slice(3, 6)):
            scores = [x[sample, m] @ query[:, head] @ (x[sample, k] @ key[:, head]) for k in range(4)]
            weights = softmax(np.array(scores))
            mixed.append(sum(weights[k] * (x[sample, k] @ value[:, head]) for k in range(4)))
        wanted = np.maximum(np.concatenate(mixed) + x[sample, m] @ rest, 0.0)
        assert_close(result[sample, m], wanted, MODEL, magnitude=np.abs(x).max())


def test_target_attention(rng: np.random.Generator) -> None:
    target, history = rng.normal(size=(3, 4)), rng.normal(size=(3, 5, 4))
    there = np.arange(5) < np.array([0, 2, 5])[:, None]
    layer = TargetAttention((6,))
    result = layer([tf.constant(target, tf.float32), tf.constant(history, tf.float32), there]).numpy()
    (hidden,) = layer.hidden
    wanted = np.zeros((3, 4))
    for b, j in zip(*np.nonzero(there), strict=True):
        h, t = history[b, j], target[b]
        unit = np.concatenate([h, t, h - t, h * t]) @ hidden.kernel.numpy() + hidden.bias.numpy()
        weight = (1 / (1 + np.exp(-unit))) @ layer.weight.kernel.numpy() + layer.weight.bias.numpy()
        wanted[b] += weight[0] * h
    assert_close(result, wanted, MODEL)
    assert (result[0] == 0).all(), "an empty history says nothing"


def test_experts(rng: np.random.Generator) -> None:
    x = rng.normal(size=(4, 5)).astype(np.float32)
    layer = Experts(3, (6, 2))
    result = layer(x).numpy()
    assert result.shape == (4, 3, 2)
    for expert in range(3):
        wanted = x
        for kernel, bias in layer.stack:
            wanted = np.maximum(wanted @ kernel.numpy()[expert] + bias.numpy()[expert], 0.0)
        assert_close(result[:, expert], wanted, MODEL)


def test_ple_keeps_experts_of_other_tasks_out(fresh: np.random.Generator) -> None:
    """Task 1 does not see the experts of task 2 of its own level, and sees those of the level before it."""
    examples = events(fresh)
    for levels, reaches in ((1, False), (2, True)):
        model = PLE(EVENTS, 4, (6,), levels=levels)
        before = model(tensors(examples)).numpy()
        for kernel, _ in model.experts[0][1].stack:
            kernel.assign(kernel + 1.0)
        after = model(tensors(examples)).numpy()
        assert (np.abs(after - before).max(axis=0) > 1e-4).tolist() == [reaches, True]


# --- the models ---------------------------------------------------------------------------------------------


# The others' layers are compared with their formulas above; DIN, PLE and WideDeep have all kinds of tables.
@pytest.mark.parametrize(
    "cls", [cls if cls in (DIN, PLE, WideDeep) else pytest.param(cls, marks=[LONG]) for cls in SMALL]
)
def test_both_sides_train_the_same_model(fresh: np.random.Generator, cls: Any) -> None:
    examples = examples_of(cls, fresh)
    het, other = twins(cls, description_of(cls), examples, embedding_dim=4, hidden_units=(6,), **SMALL[cls])
    logits = het(tensors(examples), training=False)
    assert logits.shape == (30, 2 if cls in (MMoE, PLE) else 1) and logits.dtype == tf.float32
    assert_close(logits, other(tensors(examples), training=False), MODEL)
    assert_close(train(het, examples), train(other, examples), TRAINED)
    assert_equal_twins(het, other)


@pytest.mark.parametrize("cls", list(SMALL))
def test_configuration_survives_json(fresh: np.random.Generator, cls: Any) -> None:
    model = cls(description_of(cls), 4, (6,), dropout=0.1, table_optimizer="adam", seed=5, **SMALL[cls])
    config = json.loads(json.dumps(model.get_config()))
    with het_tf.namespace("copy"):
        copy = cls.from_config(config)
    assert copy.description == description_of(cls)
    assert copy.table_optimizer == model.table_optimizer
    assert json.loads(json.dumps(copy.get_config())) == config
    inputs = tensors(examples_of(cls, fresh))
    assert copy(inputs).shape == model(inputs).shape
    assert [w.shape for w in copy.weights] == [w.shape for w in model.weights]
    het_tf.reset("copy")


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("cls", [DIN, *(pytest.param(cls, marks=[LONG]) for cls in SMALL if cls is not DIN)])
def test_fit_and_export(fresh: np.random.Generator, tmp_path: Path, cls: Any) -> None:
    examples = examples_of(cls, fresh, 64)
    model = cls(description_of(cls), 4, (6,), dropout=0.1, **SMALL[cls])
    model.adapt(examples)
    model.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))
    model.fit(examples.to_tf(16), epochs=2, verbose=0)
    het_tf.export(model, tmp_path / "1", verbose=False)
    (served,) = serve(tmp_path / "1")(**tensors(examples)).values()
    assert_predicts(served, model(tensors(examples), training=False))


@pytest.mark.parametrize("cls", [DLRM, AutoInt, XDeepFM])
def test_models_without_numeric_columns(fresh: np.random.Generator, cls: Any) -> None:
    model = cls(Description("two", (Field("user", 5), Field("item", 9))), 4, (6,), **SMALL[cls])
    inputs = {name: ids for name, ids in tensors(events(fresh)).items() if name in ("user", "item")}
    assert model(inputs).shape == (32, 1)


@pytest.mark.parametrize("fields", [1, pytest.param(2, marks=[LONG])])
def test_dlrm_without_numeric_columns_learns_what_one_field_says(
    fresh: np.random.Generator, fields: int
) -> None:
    """Defect: one field has no products, and those of two small rows are about 0: the answer is constant."""
    ids = {name: fresh.integers(0, 8, 64) for name in ("user", "item")[:fields]}
    rows = het_tf.optimizers.RowWiseAdagrad(0.05, initial_accumulator=0.0)
    model = DLRM(Description("few", tuple(Field(name, 8) for name in ids)), 4, (6,), table_optimizer=rows)
    model.compile(keras.optimizers.Adam(0.01), keras.losses.BinaryCrossentropy(from_logits=True))
    history = model.fit(ids, ids["user"] % 2, batch_size=16, epochs=20, verbose=0).history["loss"]
    assert history[-1] < 0.2


def test_autoint_without_a_perceptron(fresh: np.random.Generator) -> None:
    model = AutoInt(ONE_LABEL, 4, (), **SMALL[AutoInt])
    assert model(tensors(events(fresh))).shape == (32, 1)
    assert int(model.output_layer.kernel.shape[0]) == (4 + 2) * 2 * 3


def test_the_history_reads_the_rows_of_its_target(fresh: np.random.Generator) -> None:
    model = DIN(ONE_LABEL, 4)
    rows = model.rows(tensors(events(fresh)))
    history = events(np.random.default_rng(0)).sequences["history"]
    assert rows["deep"].shape == (32, 3, 4) and rows["deep/history"].shape == (32, 4, 4)
    inputs = tensors(events(np.random.default_rng(0)))
    inputs["item"] = tf.constant(np.maximum(history[:, 0], 0))
    again = model.rows(inputs)
    there = history[:, 0] >= 0
    np.testing.assert_array_equal(again["deep"].numpy()[there, 1], again["deep/history"].numpy()[there, 0])
    assert (again["deep/history"].numpy()[history < 0] == 0).all()
    assert [table.name for table in model.rows.collection.tables] == ["din/deep"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DIN(Description("plain", (Field("a", 5),))), "'plain' has no history; give it a sequence"),
        (lambda: DLRM(ONE_LABEL, bottom_units=(0,)), r"bottom_units is \(0,\)"),
        (lambda: XDeepFM(ONE_LABEL, cin_units=()), r"cin_units is \(\)"),
        (lambda: AutoInt(ONE_LABEL, attention_layers=0), "attention_layers is 0"),
        (lambda: AutoInt(ONE_LABEL, attention_heads=0), "attention_heads is 0"),
        (lambda: DIN(ONE_LABEL, attention_units=(4, 0)), r"attention_units is \(4, 0\)"),
        (lambda: MMoE(EVENTS, experts=0), "experts is 0"),
        (lambda: MMoE(EVENTS, hidden_units=()), r"hidden_units is \(\)"),
        (lambda: PLE(EVENTS, tower_units=(0,)), r"tower_units is \(0,\)"),
        (lambda: PLE(EVENTS, levels=0), "levels is 0"),
        (lambda: PLE(EVENTS, shared_experts=0), "shared_experts is 0"),
        (lambda: Description("d", (Field("a", 5),), labels=()), r"labels is \(\)"),
        (lambda: Description("d", (Field("a", 5),), item=("b",)), r"item names \['b'\]"),
        (lambda: Description("d", (Field("a", 5), Field("b", 4, shares="a"))), "field 'b' shares 'a'"),
        (lambda: Description("d", (Field("a", 5, shares="z"),)), "field 'a' shares 'z'"),
        (lambda: ONE_LABEL.side(item=True), "has no fields of the item"),
    ],
)
def test_bad_arguments(fresh: np.random.Generator, make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
