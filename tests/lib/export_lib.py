"""Models, inputs and readers that the tests of exports share."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from floats_lib import assert_close

import het_tf

keras = tf.keras

PADDING = -1
Batch = dict[str, np.ndarray]


def toy_batch(rng: np.random.Generator, rows: int, ids: int = 9) -> Batch:
    """Returns inputs with `ids` distinct 64-bit hashes, small ids, and sequences of every length."""
    s = rng.integers(10, 16, (rows, 3))
    s[np.arange(3) >= rng.integers(0, 4, rows)[:, None]] = PADDING
    return {
        "a": rng.integers(0, 5, rows),
        "h": np.random.default_rng(1).integers(-(2**63), 2**63, ids)[rng.integers(0, ids, rows)],
        "a_x_h": rng.integers(20, 27, rows),
        "s": s,
        "numeric": rng.normal(3.0, 2.0, (rows, 2)).astype(np.float32),
    }


def toy_label(batch: Batch) -> np.ndarray:
    return (batch["a"] % 2).astype(np.float32)


def tensors(batch: Batch) -> dict[str, Any]:
    return {name: tf.constant(column) for name, column in batch.items()}


def trained(rng: np.random.Generator, name: str = "toy", optimizer: Any = None, cache: Any = None) -> Any:
    """A wide and deep model after some steps: tables NAME/deep of 4 floats and NAME/wide of one."""
    inputs = {one: keras.Input((), dtype="int64", name=one) for one in ("a", "h", "a_x_h")}
    inputs["s"] = keras.Input((None,), dtype="int64", name="s")
    inputs["numeric"] = keras.Input((2,), name="numeric")
    deep = het_tf.FeatureConfig(het_tf.TableConfig(f"{name}/deep", 4, optimizer))
    wide = het_tf.FeatureConfig(het_tf.TableConfig(f"{name}/wide", 1, optimizer))
    features = {"deep": deep, "wide": wide, "s": het_tf.FeatureConfig(deep.table, "mean", PADDING)}
    single, crossed = [inputs["a"], inputs["h"]], [inputs["a"], inputs["h"], inputs["a_x_h"]]
    ids = {"deep": keras.ops.stack(single, 1), "wide": keras.ops.stack(crossed, 1), "s": inputs["s"]}
    rows = het_tf.keras.EmbeddingCollection(features, cache=cache)(ids)
    x = keras.layers.Concatenate()([keras.layers.Flatten()(rows["deep"]), rows["s"], inputs["numeric"]])
    for width in (8, 3):
        x = keras.layers.Dense(width, "relu")(x)
    logit = keras.layers.Add(name="output_0")([keras.ops.sum(rows["wide"], axis=1), keras.layers.Dense(1)(x)])
    model = keras.Model(inputs, logit, name=name)
    model.compile(keras.optimizers.SGD(0.1), keras.losses.BinaryCrossentropy(from_logits=True))
    train(model, rng)
    return model


def train(model: Any, rng: np.random.Generator) -> None:
    """Some steps of the model of `trained`."""
    batch = toy_batch(rng, 64)
    model.fit(batch, toy_label(batch), batch_size=16, verbose=0, shuffle=False)


def embedding_model(features: Any, inputs: Any) -> Any:
    """Inputs -> embeddings, as they are: the model's outputs are what the layer gives."""
    return keras.Model(inputs, het_tf.keras.EmbeddingCollection(features, name="tables")(inputs), name="m")


def fill(name: str, ids: Any, rng: np.random.Generator) -> np.ndarray:
    """Gives the rows of ids random values."""
    table = het_tf.Table(name)
    values = rng.normal(size=(len(ids), table.dim)).astype(np.float32)
    table.assign(ids, values)
    return values


def serve(path: Any, signature: str = "serving_default") -> Any:
    """The signature as a function of tensors by name to arrays by name; keeps the SavedModel alive."""
    loaded = tf.saved_model.load(str(path))
    function = loaded.signatures[signature]

    def call(**inputs: Any) -> dict[str, np.ndarray]:
        assert loaded is not None
        outputs = function(**{name: tf.convert_to_tensor(one) for name, one in inputs.items()})
        return {name: output.numpy() for name, output in outputs.items()}

    call.function = function
    return call


def assert_predicts(got: Any, wanted: Any) -> None:
    """Predictions are the live model's; graphs round in orders of their own."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    assert_close(got, wanted)


def ops_of(path: Any) -> set[str]:
    """Returns all ops in a SavedModel, also inside its functions, by reading its file."""
    from tensorflow.core.protobuf import saved_model_pb2

    model = saved_model_pb2.SavedModel()
    model.ParseFromString((Path(path) / "saved_model.pb").read_bytes())
    graph = model.meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return {node.op for node in nodes}


def run_alone(program: str, *arguments: str) -> str:
    """Runs a Python program in a process of its own, outside of the source tree, and returns what it says."""
    env = {"PATH": "/usr/bin:/bin", "TF_CPP_MIN_LOG_LEVEL": "3", "HOME": "/nonexistent",
           "PYTHONPATH": str(Path(__file__).parent)}  # fmt: skip
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def one_table(dim: int = 4, **options: Any) -> Any:
    """A model of the input "ids" and the table "item"."""
    ids = keras.Input((), dtype="int64", name="ids")
    feature = het_tf.FeatureConfig(het_tf.TableConfig("item", dim, **options))
    return embedding_model({"ids": feature}, {"ids": ids})
