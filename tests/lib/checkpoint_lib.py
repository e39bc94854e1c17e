"""Shared by the tests of checkpoints: models that train on small integers, and comparisons of tables."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from rules_lib import learn

import het_tf
from het_tf.ext.checkpoint.python import manifest, writing
from het_tf.ext.checkpoint.python.model import dense

keras = tf.keras


def layer(name: str = "item", dim: int = 4, of: str = "RowWiseAdagrad", **options: Any) -> Any:
    optimizer = getattr(het_tf.optimizers, of)(0.5 if of == "SGD" else 0.1)
    options = {"optimizer": optimizer, "cache": het_tf.Cache(staleness=0), **options}
    return het_tf.keras.Embedding(dim, table=name, name=name.replace("/", "-"), **options)


def step(layer: Any, ids: Any, seed: int) -> None:
    """One step with gradients that are small integers."""
    rng = np.random.default_rng(seed)
    gradient = rng.integers(-2, 3, (len(ids), layer.tables[0].dim)).astype(np.float32)
    learn(layer, lambda: tf.reduce_sum(layer(np.asarray(ids), training=True) * gradient))


def train(layer: Any, begin: int = 0, end: int = 10, ids: int = 200, batch: int = 60) -> None:
    """Steps `begin` to `end`; step i is the same in every run."""
    for number in range(begin, end):
        step(layer, np.random.default_rng(1000 + number).integers(-ids, ids, batch), number)


def remove_after_first_file(monkeypatch: Any, table: str, ids: Any) -> None:
    """Removes ids when the next save has written one of its files, of which it writes one at a time."""
    lock, save_rows, left = threading.Lock(), writing.save_rows, [ids]

    def save_and_remove(*arguments: Any) -> dict[str, Any]:
        with lock:
            entry = save_rows(*arguments)
            if left:
                het_tf.Table(table).remove(left.pop())
            return entry

    monkeypatch.setattr(writing, "save_rows", save_and_remove)


def tables(namespace: str = "") -> dict[str, dict[str, np.ndarray]]:
    """Everything of all tables: values, slots, clocks, counts, when last used."""
    with het_tf.namespace(namespace):
        het_tf.flush()
        return {name: het_tf.Table(name).scan() for name in sorted(het_tf.python.table.table.tables())}


def same(found: dict[str, Any], expected: dict[str, Any], columns: tuple[str, ...] = ()) -> None:
    """Asserts that tables are equal bit for bit, in all columns or in some."""
    assert sorted(found) == sorted(expected)
    for name, table in expected.items():
        for column in columns or table:
            np.testing.assert_array_equal(found[name][column], table[column], err_msg=f"{name}: {column}")


def model(of: str = "RowWiseAdagrad", whole: bool = False, rate: Any = 0.1) -> Any:
    """A model of rows and dense weights; `whole`: its numbers stay integers for some steps."""
    keras.utils.set_random_seed(7)
    ids, x = keras.Input((2,), dtype="int64"), keras.Input((3,))
    options = {"name": "item", "cache": het_tf.Cache(staleness=0)}
    if whole:
        options |= {"optimizer": het_tf.optimizers.SGD(1.0), "initializer": "zeros"}
    else:
        options |= {"optimizer": getattr(het_tf.optimizers, of)(rate)}
    rows = het_tf.keras.Embedding(4, combiner="sum", **options)(ids)
    if whole:
        out = keras.layers.Dense(1, kernel_initializer="zeros")(x)
        made = keras.Model([ids, x], out + keras.ops.sum(rows, axis=-1, keepdims=True))
        made.compile(keras.optimizers.SGD(1.0), integers)
    else:
        out = keras.layers.Concatenate()([keras.layers.Dense(5, "tanh")(x), rows])
        made = keras.Model([ids, x], keras.layers.Dense(1)(out))
        made.compile(keras.optimizers.Adam(0.02), "mse")
    return made


def integers(y_true: Any, y_pred: Any) -> Any:
    """A loss whose gradients are small integers that depend on the rows: a row of another step shows."""
    del y_true
    return tf.stop_gradient(tf.math.floormod(tf.floor(y_pred), 5.0) - 2.0) * y_pred


def fit(model: Any, begin: int, end: int) -> None:
    """Steps `begin` to `end`; step i is the same in every run."""
    for number in range(begin, end):
        rng = np.random.default_rng(number)
        ids = rng.integers(0, 50, (4, 2))
        x = rng.integers(-1, 2, (4, 3)).astype(np.float32)
        model.train_on_batch([ids, x], (ids.sum(-1, keepdims=True) % 3 == 0).astype(np.float32))


def weights(model: Any) -> list[np.ndarray]:
    """Dense weights and the state of the optimizer."""
    return [tf.convert_to_tensor(one.variable).numpy() for one in dense.variables_of(model)]


def files(directory: Path) -> dict[str, bytes]:
    """All files below a directory."""
    there = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in there}


SPEC = {
    "name": "item", "dim": 4, "seed": 0, "l2": 0.0, "max_norm": 0.0,
    "optimizer": {"name": "adagrad", "params": {"eps": 1e-7}},
    "initializer": {"name": "uniform", "a": -0.05, "b": 0.05},
}  # fmt: skip


def document(**changes: Any) -> dict[str, Any]:
    """A manifest of one table and one file."""
    table = {
        "name": "item", "spec": SPEC, "limits": {}, "applies": 3, "rows": 2, "removed": 0, "complete": True,
        "clock_floor": 0, "slots": [["accumulator", 4]], "positions": ["18446744073709551615:0"],
    }  # fmt: skip
    file = {
        "name": "rows-00000-of-00001.safetensors", "bytes": 640, "partitions": [0],
        "header_xxh3": "00000000", "tensors": {"item/keys": {"rows": 2, "xxh3": "00000000"}},
    }  # fmt: skip
    return {
        "format": manifest.FORMAT, "version": manifest.VERSION, "id": "a" * 32, "created": 1.5, "step": 7,
        "namespace": "n",
        "base": None, "store": {"partitions": 1, "hash_seed": "0"}, "tables": [table], "files": [file],
        "dense": None, **changes,
    }  # fmt: skip
