"""Layers that keep something beside their variables, or derive it when they load; and models with one."""

import keras
import numpy as np
from backends_lib import array

import het_tf

RNG = np.random.default_rng(3)
NUMBERS = (RNG.normal(size=(64, 3)) * [1, 2, 3] + [0, 2, -5]).astype("float32")
WORDS = RNG.choice(["ant", "bee", "cat", "dog", "eel"], (64, 1))
IDS = RNG.integers(0, 20, (64, 1)).astype("int32")
LABELS = RNG.integers(0, 2, (64, 1)).astype("float32")


@keras.saving.register_keras_serializable("tests")
class Ranked(keras.layers.Layer):
    """Derives the order of its weights when it loads, and saves no variable but an array of its own."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="zeros", name="scale")
        self.order, self.shift = None, 0.0

    def learn(self, x):
        self.scale.assign(x.std(0))
        self.shift = float(x.mean())
        self.order = np.argsort(x.std(0))[::-1].copy()

    def save_own_variables(self, store):
        super().save_own_variables(store)
        store["shift"] = np.float64(self.shift)

    def load_own_variables(self, store):
        self.scale.assign(store["0"])
        self.shift = float(np.asarray(store["shift"]))
        self.order = np.argsort(keras.ops.convert_to_numpy(self.scale))[::-1].copy()

    def call(self, x):
        order = range(3) if self.order is None else self.order.tolist()
        x = keras.ops.stack([x[:, int(one)] for one in order], -1)
        return (x - self.shift) / (1 + self.scale)


@keras.saving.register_keras_serializable("tests")
class Listed(keras.layers.Layer):
    """Keeps numbers in a file of its own."""

    limits = (0.0, 0.0, 0.0)

    def save_assets(self, folder):
        with open(f"{folder}/limits.txt", "w") as out:
            out.write(" ".join(map(repr, self.limits)))

    def load_assets(self, folder):
        with open(f"{folder}/limits.txt") as file:
            self.limits = tuple(map(float, file.read().split()))

    def call(self, x):
        return keras.ops.cast(x > keras.ops.convert_to_tensor(self.limits, "float32"), "float32")


def adapt(layer, data):
    layer.adapt(data)


def untouched(layer, data):
    del layer, data


def limit(layer, data):
    layer.limits = tuple(float(one) for one in data.mean(0))


# Name -> the layer, data for it, and how it learns from data.
LAYERS = {
    "normalization": lambda: (keras.layers.Normalization(), NUMBERS, adapt),
    "discretization": lambda: (
        keras.layers.Discretization(num_bins=4, output_mode="multi_hot"), NUMBERS, adapt
    ),
    "batch": lambda: (keras.layers.BatchNormalization(momentum=0.5), NUMBERS, untouched),
    "spectral": lambda: (keras.layers.SpectralNormalization(keras.layers.Dense(3)), NUMBERS, untouched),
    "own": lambda: (Ranked(), NUMBERS, Ranked.learn),
    "file": lambda: (Listed(), NUMBERS, limit),
    "strings": lambda: (keras.layers.StringLookup(), WORDS, adapt),
    "integers": lambda: (keras.layers.IntegerLookup(), IDS, adapt),
    "idf": lambda: (
        keras.layers.StringLookup(output_mode="tf_idf", max_tokens=6, pad_to_max_tokens=True), WORDS, adapt
    ),
    "text": lambda: (keras.layers.TextVectorization(output_sequence_length=2), WORDS, adapt),
    "hashing": lambda: (keras.layers.Hashing(5, output_mode="multi_hot"), WORDS, untouched),
}  # fmt: skip
ONLY_TENSORFLOW = ("discretization", "strings", "integers", "idf", "text", "hashing")


def build(name, adapted):
    """A model with the layer and a table, inputs for it, and the layer."""
    layer, data, learn = LAYERS[name]()
    if adapted and learn is adapt:
        adapt(layer, data)
    kind = {"f": "float32", "i": "int32", "U": "string"}[data.dtype.kind]
    inputs = {
        "item": keras.Input((1,), dtype="int32", name="item"),
        "x": keras.Input(data.shape[1:], dtype=kind, name="x"),
    }
    rows = keras.layers.Flatten()(het_tf.keras.Embedding(4, name=f"rows_{name}")(inputs["item"]))
    both = keras.layers.Concatenate()([rows, keras.ops.cast(layer(inputs["x"]), "float32")])
    model = keras.Model(inputs, keras.layers.Dense(1, name="top")(both))
    if adapted and learn is not adapt:
        learn(layer, data)
    model.compile(keras.optimizers.SGD(1e-3), "mse", run_eagerly=True)
    return model, inputs_of(data), layer


def inputs_of(data):
    return {"item": keras.ops.convert_to_tensor(IDS), "x": keras.ops.convert_to_tensor(data)}


def predict(model, x):
    return array(model(x, training=False))


def trained(name):
    model, x, layer = build(name, True)
    model.train_on_batch(x, LABELS)
    return model, x, layer, predict(model, x)
