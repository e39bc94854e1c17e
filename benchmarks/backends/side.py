"""One side of benchmarks/backends/run.py, in a process with one core; prints one JSON object.

KERAS_BACKEND=torch python side.py step SYSTEM ROWS STEPS
KERAS_BACKEND=torch python side.py auc DATA.npz EPOCHS
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

SAMPLES, FEATURES, DIM, BATCHES, ROUNDS = 128, 26, 16, 64, 5
BATCH = 256


def batches(rows: int) -> np.ndarray:
    """Returns int64 [BATCHES, SAMPLES, FEATURES] of ids below `rows`, some of them frequent."""
    return np.random.default_rng(1).zipf(1.1, (BATCHES, SAMPLES, FEATURES)) % rows


def gradient() -> np.ndarray:
    """Returns what every step has as the gradient of its rows."""
    return np.random.default_rng(2).normal(size=(SAMPLES, FEATURES, DIM)).astype("float32")


# --- a step: rows of the ids, their gradient, the update --------------------------------------------


def of_tensorflow(optimizer: Any) -> Callable[[np.ndarray], Any]:
    """An op of the plugin, in a tf.function."""
    import tensorflow as tf

    import het_tf

    layer = het_tf.keras.Embedding(DIM, name="t", optimizer=optimizer())
    given = tf.constant(gradient())
    layer(tf.zeros([1], tf.int64))

    @tf.function
    def step(ids: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids, training=True) * given)
        variables = layer.trainable_variables
        het_tf.apply(zip(tape.gradient(loss, variables), variables, strict=True))

    return lambda ids: step(tf.constant(ids))


def of_torch(optimizer: Any) -> Callable[[np.ndarray], Any]:
    """`het_tf.torch.EmbeddingCollection`, and an optimizer of torch.optim."""
    import torch

    import het_tf
    import het_tf.torch

    table = het_tf.TableConfig("t", DIM, optimizer=optimizer())
    module = het_tf.torch.EmbeddingCollection({"id": het_tf.FeatureConfig(table)})
    return torch_step(lambda ids: module({"id": ids})["id"], torch.optim.SGD(module.parameters(), lr=1.0))


def of_embedding_bag(rows: int) -> Callable[[np.ndarray], Any]:
    """`torch.nn.EmbeddingBag` with sparse gradients and SparseAdam."""
    import torch

    bag = torch.nn.EmbeddingBag(rows, DIM, mode="sum", sparse=True)
    optimizer = torch.optim.SparseAdam(bag.parameters(), lr=0.001)
    return torch_step(lambda ids: bag(ids.reshape(-1, 1)).reshape(SAMPLES, FEATURES, DIM), optimizer)


def of_torchrec(rows: int) -> Callable[[np.ndarray], Any]:
    """TorchRec's collection on FBGEMM, whose backward updates rows; it has no Adam on CPUs."""
    import torch
    from torchrec.modules.embedding_configs import EmbeddingBagConfig
    from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
    from torchrec.optim import RowWiseAdagrad
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

    table = EmbeddingBagConfig(name="t", embedding_dim=DIM, num_embeddings=rows, feature_names=["id"])
    collection = FusedEmbeddingBagCollection(
        [table], optimizer_type=RowWiseAdagrad, optimizer_kwargs={"lr": 0.02}, device=torch.device("cpu")
    )
    given = torch.from_numpy(gradient()).reshape(-1, DIM)
    lengths = torch.ones(len(given), dtype=torch.int32)

    def step(ids: np.ndarray) -> None:
        values = torch.from_numpy(ids).reshape(-1)
        found = collection(KeyedJaggedTensor(keys=["id"], values=values, lengths=lengths))["id"]
        (found * given).sum().backward()

    return step


def torch_step(rows_of: Callable[[Any], Any], optimizer: Any) -> Callable[[np.ndarray], Any]:
    """A step that a user of PyTorch writes."""
    import torch

    given = torch.from_numpy(gradient())

    def step(ids: np.ndarray) -> None:
        optimizer.zero_grad()
        (rows_of(torch.from_numpy(ids)) * given).sum().backward()
        optimizer.step()

    return step


def of_jax(optimizer: Any) -> Callable[[np.ndarray], Any]:
    """The Keras layer inside of jax.jit."""
    import jax
    import jax.numpy as jnp
    import keras

    import het_tf

    layer = het_tf.keras.Embedding(DIM, name="t", optimizer=optimizer())
    layer(np.zeros(1, "int32"))
    given = jnp.asarray(gradient())
    outer = keras.optimizers.SGD(1.0)
    outer.build(layer.trainable_variables)

    def loss_of(trainable: Any, fixed: Any, ids: Any) -> Any:
        rows, _ = layer.stateless_call(trainable, fixed, ids, training=True)
        return (rows * given).sum()

    @jax.jit
    def jitted(trainable: Any, fixed: Any, of_optimizer: Any, ids: Any) -> Any:
        gradients = jax.grad(loss_of)(trainable, fixed, ids)
        return outer.stateless_apply(of_optimizer, gradients, trainable)

    state = [one.value for one in layer.trainable_variables], [one.value for one in outer.variables]
    fixed = [one.value for one in layer.non_trainable_variables]

    def step(ids: np.ndarray) -> None:
        nonlocal state
        state = jitted(state[0], fixed, state[1], jnp.asarray(ids.astype(np.int32)))
        jax.effects_barrier()

    return step


def fill(rows: int) -> None:
    """Gives the table all its rows."""
    import het_tf

    for begin in range(0, rows, 1 << 18):
        ids = np.arange(begin, min(begin + (1 << 18), rows))
        het_tf.Table("t").assign(ids, np.zeros((len(ids), DIM), np.float32))


def measure_step(system: str, rows: int, steps: int) -> dict[str, Any]:
    """Returns the median time of a step in milliseconds."""
    name, update = system.split("/")
    if name in ("embedding_bag", "torchrec"):
        import torch

        torch.set_num_threads(1)
        step = {"embedding_bag": of_embedding_bag, "torchrec": of_torchrec}[name](rows)
    else:
        import het_tf

        make = {"adam": lambda: het_tf.optimizers.Adam(0.001), "default": lambda: None}[update]
        step = {"tensorflow": of_tensorflow, "torch": of_torch, "jax": of_jax}[name](make)
        fill(rows)
    of_batch = batches(rows)
    for ids in of_batch:
        step(ids)
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for number in range(steps):
            step(of_batch[number % BATCHES])
        times.append((time.perf_counter() - begin) / steps)
    return {"system": name, "update": update, "rows": rows, "ms": 1000 * statistics.median(times)}


# --- a model ------------------------------------------------------------------------------------------


def wide_and_deep(sizes: dict[str, int], numeric: int) -> Any:
    """Wide & Deep as its users write it, with dense weights that are equal on every backend."""
    import keras

    import het_tf

    inputs = {name: keras.Input((), dtype="int32", name=name) for name in sizes}
    deep, wide = (
        het_tf.keras.EmbeddingCollection(
            {name: het_tf.FeatureConfig(het_tf.TableConfig(f"{part}_{name}", dim)) for name in sizes}
        )(inputs)
        for part, dim in (("deep", DIM), ("wide", 1))
    )
    parts = list(deep.values())
    if numeric:
        inputs["numeric"] = keras.Input((numeric,), name="numeric")
        parts.append(inputs["numeric"])
    x = keras.layers.Concatenate()(parts)
    for units in (64, 32):
        x = keras.layers.Dense(units, "relu")(x)
    logit = keras.layers.Add()([keras.layers.Dense(1)(x), *wide.values()])
    model = keras.Model(inputs, keras.layers.Activation("sigmoid")(logit))
    rng = np.random.default_rng(3)
    for layer in model.layers:
        if isinstance(layer, keras.layers.Dense):
            kernel, bias = layer.get_weights()
            limit = np.sqrt(6 / sum(kernel.shape))
            layer.set_weights([rng.uniform(-limit, limit, kernel.shape), bias])
    return model


def measure_auc(data: str, epochs: int) -> dict[str, Any]:
    """Returns the AUC of the test rows after `epochs` passes."""
    import keras

    with np.load(data) as arrays:
        parts: dict[str, dict[str, np.ndarray]] = {"train": {}, "test": {}}
        for name in arrays:
            part, column = name.split("/")
            parts[part][column] = arrays[name]
    labels = {part: columns.pop("label") for part, columns in parts.items()}
    fields = [name for name in parts["train"] if name != "numeric"]
    numeric = parts["train"].get("numeric", np.zeros((0, 0))).shape[1]
    model = wide_and_deep(dict.fromkeys(fields, 0), numeric)
    model.compile(keras.optimizers.Adam(0.001), "binary_crossentropy")
    model.fit(parts["train"], labels["train"], BATCH, epochs, verbose=0, shuffle=False)
    scores = np.asarray(model.predict(parts["test"], 4096, verbose=0))[:, 0]
    return {"backend": keras.backend.backend(), "auc": auc(labels["test"], scores)}


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Returns the area under the ROC curve: the share of ordered pairs, ties count half."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    ones = labels > 0.5
    positive, negative = int(ones.sum()), int((~ones).sum())
    return float((ranks[ones].sum() - positive * (positive + 1) / 2) / (positive * negative))


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "step":
        print(json.dumps(measure_step(rest[0], int(rest[1]), int(rest[2]))))
    else:
        print(json.dumps(measure_auc(rest[0], int(rest[1]))))
