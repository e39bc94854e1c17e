"""Exports compute what an eager call does, to the last bit, whatever layers come behind the rows."""

from __future__ import annotations

import export_lib as lib
import numpy as np
import pytest
import tensorflow as tf

import het_tf

pytestmark = [
    pytest.mark.tf215,
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("error::het_tf.TablesNotSavedWarning"),
]

keras = tf.keras
layers = keras.layers

NAMES = """celu elu exponential gelu hard_sigmoid hard_silu hard_tanh leaky_relu linear log_sigmoid
    log_softmax mish relu relu6 selu sigmoid silu soft_shrink softmax softplus softsign sparse_plus
    squareplus swish tanh tanh_shrink"""
ACTIVATIONS = {name: getattr(keras.activations, name, None) for name in NAMES.split()}
ACTIVATIONS = {name: function for name, function in ACTIVATIONS.items() if function is not None}
DIM, LENGTH = 8, 5


def compare(model, directory, *, format="portable", signatures=None, batches=(1, 33, 300)) -> None:
    """Gives all weights values, exports, and compares all outputs at several batch sizes."""
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if len(weight.shape) == 0:
            continue  # stands for the table
        values = rng.normal(size=weight.shape).astype(np.float32)
        weight.assign(np.abs(values) + 0.1 if "variance" in weight.name else values)
    het_tf.table("item").assign(np.arange(50), rng.normal(size=(50, DIM)))
    het_tf.export(model, directory / "1", format=format, signatures=signatures, verbose=False)
    serve = lib.serve(directory / "1")
    for batch in batches:
        ids = rng.integers(0, 60, (batch, LENGTH))
        wanted = model(tf.constant(ids), training=False)
        got = serve(ids=ids)
        assert set(got) == set(wanted)
        differing = [name for name, one in got.items() if not np.array_equal(one, wanted[name].numpy())]
        assert not differing, f"batch {batch}"


def functional(heads) -> keras.Model:
    """[B, LENGTH] ids -> {name: heads[name]([B, LENGTH, DIM])}."""
    ids = keras.Input((LENGTH,), dtype="int64", name="ids")
    rows = het_tf.keras.Embedding(DIM, name="item")(ids)
    return keras.Model(ids, {name: head(rows) for name, head in heads.items()})


def chain(*steps):
    def run(x):
        for step in steps:
            x = step(x)
        return x

    return run


def flat():
    return layers.Reshape((LENGTH * DIM,))


def with_residual(activation):
    return lambda x: layers.Activation(activation)(layers.Add()([layers.Dense(DIM)(x), x]))


def joined(activation):
    return lambda x: layers.Concatenate()([layers.Dense(n, activation=activation)(x) for n in (3, 5)])


AROUND = {
    "dense": lambda f: chain(flat(), layers.Dense(6, activation=f)),
    "perceptron": lambda f: chain(flat(), layers.Dense(16, activation=f), layers.Dense(2, activation=f)),
    "no bias": lambda f: chain(flat(), layers.Dense(6, activation=f, use_bias=False)),
    "conv1d": lambda f: layers.Conv1D(6, 3, activation=f),
    "batch norm": lambda f: chain(layers.Dense(6), layers.BatchNormalization(), layers.Activation(f)),
    "layer norm": lambda f: chain(layers.Dense(6), layers.LayerNormalization(), layers.Activation(f)),
    "residual": with_residual,
    "joined": joined,
}


@pytest.mark.parametrize("around", AROUND)
def test_every_activation(around, tmp_path):
    compare(functional({name: AROUND[around](f) for name, f in ACTIVATIONS.items()}), tmp_path)


@keras.utils.register_keras_serializable(package="exact")
class Crosses(layers.Layer):
    """What click-through models compute by hand, and graphs like to rewrite."""

    def build(self, shape):
        self.w = self.add_weight(shape=(DIM, DIM), name="w")
        self.b = self.add_weight(shape=(DIM,), name="b")

    def call(self, x0):
        x = x0 * (tf.matmul(x0, self.w) + self.b) + x0
        x = x0 * (tf.matmul(x, self.w) + self.b) + x
        pairs = 0.5 * (tf.square(tf.reduce_sum(x, 1)) - tf.reduce_sum(tf.square(x), 1))
        scaled = x / tf.sqrt(tf.reduce_sum(x * x, -1, keepdims=True) + 1e-6) * 1.7 / 2.3
        rest = [x * x0 + x * self.b, x / 3.0, (x0 + 1.1) + self.b, tf.pow(x0, 3.0), tf.pow(tf.abs(x0), -0.5)]
        rest += [tf.math.log(1.0 + tf.exp(-tf.abs(x0))), x * tf.sigmoid(x), scaled, x * 3.3 * self.b]
        rest += [tf.concat([tf.sin(part) for part in tf.split(x0, [3, 5], -1)], -1)]
        return tf.concat([pairs, *(tf.reduce_sum(one, 1) for one in rest)], 1)


def test_layers(tmp_path):
    heads = {
        "softmax": chain(layers.Dense(6), layers.Softmax()),
        "leaky": chain(layers.Dense(6), layers.LeakyReLU()),
        "prelu": chain(layers.Dense(6), layers.PReLU()),
        "norms": chain(layers.BatchNormalization(), layers.BatchNormalization(), layers.LayerNormalization()),
        "rescaling": chain(layers.Rescaling(1 / 3, 0.1), layers.Rescaling(1 / 7, 0.3), layers.Dense(3)),
        "crosses": Crosses(),
        "attention": lambda x: layers.Attention()([x, x]),
        "heads": lambda x: layers.MultiHeadAttention(2, 4)(x, x),
        "gate": lambda x: layers.Multiply()([x, layers.Dense(DIM, activation="tanh")(x)]),
        "dot": chain(lambda x: layers.Dot(2)([layers.Dense(3, activation="tanh")(x), layers.Dense(3)(x)])),
        "pooled": chain(layers.Conv1D(6, 3, activation="gelu"), layers.GlobalAveragePooling1D()),
        "recurrent": layers.Bidirectional(layers.LSTM(4)),
    }
    compare(functional(heads), tmp_path)


class Subclassed(keras.Model):
    """Its activations are in the bodies of a cond and of a while loop."""

    def __init__(self):
        super().__init__()
        self.rows = het_tf.keras.Embedding(DIM, name="item")
        self.one, self.two = layers.Dense(DIM, activation="sigmoid"), layers.Dense(DIM, activation="tanh")
        self.last = layers.Dense(1, activation="sigmoid")

    def call(self, ids, training=None):
        x = tf.reduce_mean(self.rows(ids), 1)
        one, two = self.one(x), self.two(x)
        first, second = (tf.identity(layer.kernel) for layer in (self.one, self.two))

        def branch():
            return tf.sigmoid(tf.matmul(x, first) + one) + one + (two + x) / 3.0

        def step(n, y):
            return n + 1, tf.nn.silu(tf.matmul(y, second) + two) / 3.0 + y + x

        chosen = tf.cond(tf.reduce_sum(x) > -1e9, branch, lambda: two)
        _, looped = tf.while_loop(lambda n, _: n < 3, step, (0, x))
        return {"click": self.last(chosen), "chosen": chosen, "looped": looped}


@pytest.mark.parametrize("own", [False, True], ids=["batch", "tf.function"])
def test_bodies_of_cond_and_while(own, tmp_path):
    model = Subclassed()
    model(tf.zeros([1, LENGTH], tf.int64))
    spec = tf.TensorSpec([None, LENGTH], tf.int64, name="ids")
    function = tf.function(lambda ids: model(ids, training=False), input_signature=[spec])
    compare(model, tmp_path, signatures={"serving_default": function if own else spec})


@keras.utils.register_keras_serializable(package="exact")
class Function(layers.Layer):
    """Computes in a tf.function of its own, which is optimized in an eager call as well."""

    def build(self, shape):
        self.dense = layers.Dense(6, activation="sigmoid")
        self.dense.build(shape)
        self.function = tf.function(lambda x: self.dense(x))

    def call(self, x):
        if not tf.executing_eagerly():  # the export's trace is no other one's
            return tf.function(lambda x: self.dense(x))(x)
        return self.function(x)


def test_a_function_of_the_models_own(tmp_path):
    compare(functional({"y": chain(flat(), Function(), layers.Dense(2, activation="tanh"))}), tmp_path)


@pytest.mark.parametrize("format", ["portable", "native"])
def test_a_trained_click_model_in_a_process_of_its_own(format, tmp_path):
    item = keras.Input((), dtype="int64", name="item")
    rows = het_tf.keras.Embedding(DIM, name="items")(item)
    model = keras.Model({"item": item}, layers.Dense(1, activation="sigmoid")(rows))
    model.compile("adam", "binary_crossentropy")
    ids = np.random.default_rng(0).integers(0, 100, 512)
    model.fit({"item": ids}, (ids % 2).astype(np.float32), batch_size=64, verbose=0)
    het_tf.export(model, tmp_path / "1", format=format, verbose=False)
    (check,) = het_tf.serve_check(tmp_path / "1", {"item": ids}, model, verbose=False)
    assert check.difference == 0


def test_relu_has_no_barrier(tmp_path):
    model = functional({"y": chain(flat(), layers.Dense(8, activation="relu"), layers.Dense(1))})
    het_tf.export(model, tmp_path / "1", unknown="zeros", verbose=False)
    assert "PlaceholderWithDefault" not in lib.ops_of(tmp_path / "1")
