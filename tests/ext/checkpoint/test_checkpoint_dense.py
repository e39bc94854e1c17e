"""dense.safetensors: dense weights and the optimizer's state, by name, type and order."""

import hashlib
import json

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load

import het_tf
from het_tf import checkpoint
from het_tf.ext.checkpoint.python import manifest, tensors
from het_tf.ext.checkpoint.python.model import dense
from het_tf.python.table import notes

keras = tf.keras
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh", "eagerly")]


def make(units=3, optimizer="adam", names=(None, None)):
    ids = keras.Input((2,), dtype="int64")
    x = het_tf.keras.Embedding(4, combiner="sum", name="item")(ids)
    x = keras.layers.BatchNormalization()(keras.layers.Dense(units, name=names[0])(x))
    x = keras.layers.Dense(units, name=names[1])(keras.layers.Dropout(0.3)(x))
    model = keras.Model(ids, keras.layers.Dense(1)(x))
    if optimizer:
        model.compile(optimizer, "mse", metrics=["mae"])
    return model


def train(model):
    rng = np.random.default_rng(0)
    for _ in range(3):
        model.train_on_batch(rng.integers(0, 30, (8, 2)), rng.random((8, 1), np.float32))


def values(model, part=None):
    variables = [one.variable for one in dense.variables_of(model) if part in (None, one.part)]
    return [tf.convert_to_tensor(one).numpy() for one in variables]


def restore(place, entry, model, strict=True):
    path = place / entry["name"]
    manifest.verify(path, entry)
    pairs, left_out = dense.match(path, dense.read_header(path), model, strict)
    dense.assign(path, pairs)
    return left_out


same = np.testing.assert_equal  # of lists of arrays


@pytest.mark.parametrize("optimizer", ["adam", "ftrl"])
def test_rebuilt_model_restores_weights_and_optimizer(tmp_path, optimizer):
    model = make(optimizer=optimizer)
    train(model)
    saved = values(model)
    assert any(np.any(one) for one in saved)
    entry = dense.write(tmp_path, dense.variables_of(model))
    train(model)
    again = make(optimizer=optimizer)  # Keras counts its names up
    assert all(np.any(a != b) for a, b in zip(saved[:1], values(again)[:1], strict=True))
    restore(tmp_path, entry, again)
    same(values(again), saved)
    restore(tmp_path, entry, model)
    same(values(model), saved)
    plain = make(optimizer=None)  # one that is not compiled takes the weights
    restore(tmp_path, entry, plain)
    same(values(plain), values(model, "model"))
    names = [one.name for one in dense.read_header(tmp_path / dense.FILE)]
    assert "model/dense/kernel" in names and any(one.startswith("optimizer/") for one in names)
    assert not any("anchor" in one for one in names if one.startswith("model/")), "an anchor is always 0"
    assert not any("mae" in one or "loss" in one for one in names), "metrics begin anew"


def test_the_file_is_plain_safetensors(tmp_path):
    """Would catch holes between tensors, which the format forbids, and tensors that TensorFlow must copy."""
    model = make()
    train(model)
    entry = dense.write(tmp_path, dense.variables_of(model))
    content = (tmp_path / dense.FILE).read_bytes()
    assert len(content) == entry["bytes"]
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    order = json.dumps([one.name for one in dense.variables_of(model)])
    assert header.pop("__metadata__") == {"format": "het_tf dense 1", "order": order, "layers": "[]"}
    there = load(content)
    for name, value in dense.values(dense.variables_of(model)).items():
        assert there[name].dtype == value.dtype
        np.testing.assert_array_equal(there[name], value)
        assert (8 + length + header[name]["data_offsets"][0]) % tensors.ALIGNMENT == 0
    assert not any(one.any() for name, one in there.items() if name.endswith("\0"))


@pytest.mark.parametrize("dtype", tensors.NAMES)
def test_every_type_that_fits_comes_back_bit_for_bit(tmp_path, dtype):
    kind = tf.as_dtype(dtype).as_numpy_dtype
    bits = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, (3, 5))
    arrays = [bits, bits.reshape(15), np.zeros((0, 4)), bits[0, 0], np.asfortranarray(bits)]
    live = [
        dense.Entry(f"model/{number}", dtype, np.shape(one), tf.Variable(np.asarray(one).astype(kind)))
        for number, one in enumerate(arrays)
    ]
    path = tmp_path / dense.write(tmp_path, live)["name"]
    found = dense.read_header(path)
    assert [one.spec for one in found] == [one.spec for one in live]
    assert sorted(tensors.specs_of(path.read_bytes())) == sorted(one.spec for one in live)
    before = dense.values(live)
    for one in live:
        one.variable.assign(np.zeros(one.shape, kind))
    dense.assign(path, list(zip(found, live, strict=True)))
    for name, value in dense.values(live).items():
        np.testing.assert_array_equal(value, before[name])


def test_a_type_that_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(tensors, "NAMES", ("float16", "bfloat16"))
    message = r"variable 'model/dense/kernel' .* is float32, which a file .* cannot hold; .*bfloat16"
    with pytest.raises(TypeError, match=message):
        dense.variables_of(make())


def test_the_signature_is_of_names_shapes_and_types():
    specs = [("w", (2, 3), "float32"), ("s", (), "bfloat16")]
    whole = tensors.signature(specs)
    assert whole == tensors.signature(reversed(specs))
    for other in (("v", (2, 3), "float32"), ("w", (3, 2), "float32"), ("w", (2, 3), "float64")):
        assert tensors.signature([other, specs[1]]) != whole
    # An export records it for its followers: the text must not change.
    assert whole == hashlib.sha256(b'[["s",[],"bfloat16"],["w",[2,3],"float32"]]').hexdigest()


def test_layers_of_one_name_are_told_apart(tmp_path):
    class Twice(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.one, self.two = keras.layers.Dense(2, name="same"), keras.layers.Dense(2, name="same")

        def call(self, x):
            return self.two(self.one(x))

    model = keras.Sequential([keras.Input((2,)), Twice()])
    model.compile("sgd", "mse")
    names = [one.name for one in dense.variables_of(model)]
    assert len(set(names)) == len(names) > 4
    saved = values(model)
    entry = dense.write(tmp_path, dense.variables_of(model))
    model.set_weights([one + 1 for one in model.get_weights()])
    restore(tmp_path, entry, model)
    same(values(model), saved)


def test_names_go_before_order(tmp_path):
    """Layers of one shape whose names say that they stand the other way round."""
    model = make(names=("hidden_7", "hidden_8"), units=4)
    entry = dense.write(tmp_path, dense.variables_of(model))
    keras.backend.clear_session()  # names are counted from the beginning
    turned = make(names=("hidden_8", "hidden_7"), units=4)
    restore(tmp_path, entry, turned)
    same(turned.get_layer("hidden_7").get_weights(), model.get_layer("hidden_7").get_weights())


def test_another_model_is_refused_with_what_differs_and_unchanged(tmp_path):
    model = make()
    train(model)
    entry = dense.write(tmp_path, dense.variables_of(model))
    other = make(optimizer="sgd")
    before = values(other)
    with pytest.raises(ValueError, match=r"(?s)that was saved.*:\s+only the checkpoint has optimizer/"):
        restore(tmp_path, entry, other)
    same(values(other), before)
    restore(tmp_path, entry, other, strict=False)
    same(values(other, "model"), values(model, "model"))
    both = r"(?s)only the checkpoint has model/dense_1/.*only the model has model/extra/"
    with pytest.raises(ValueError, match=both):
        restore(tmp_path, entry, make(names=(None, "extra")))


def test_a_wider_layer_gets_what_fits_and_the_rest_is_listed(tmp_path):
    model = make()
    train(model)
    checkpoint.save(tmp_path, model)
    rows, saved = het_tf.Table("item").to_numpy()[1], values(model)
    het_tf.reset()
    keras.backend.clear_session()
    wider = make(units=5)
    before = {one.name: tf.convert_to_tensor(one.variable).numpy() for one in dense.variables_of(wider)}
    differs = r"[\s\S]*kernel: float32 \[4, 3\][\s\S]*float32 \[4, 5\]"
    with pytest.raises(ValueError, match=r"or give strict=False to restore those that fit" + differs):
        checkpoint.restore(tmp_path, wider)
    with pytest.warns(notes.TablesNotSavedWarning, match=differs):
        found = checkpoint.restore(tmp_path, wider, strict=False)
    np.testing.assert_array_equal(het_tf.Table("item").to_numpy()[1], rows)
    left_out = {line.partition(":")[0] for line in found.dense_left_out}
    for one, was in zip(dense.variables_of(wider), saved, strict=True):
        fits = one.shape == was.shape
        assert (one.name in left_out) != fits
        np.testing.assert_array_equal(tf.convert_to_tensor(one.variable), was if fits else before[one.name])
    assert 0 < len(left_out) < len(saved)
    train(wider)


def test_layers_with_other_numbers_are_not_mistaken(tmp_path):
    """A process that has built a Dense before calls the model's first one "dense_1", as the second was."""
    model = make()
    train(model)
    entry = dense.write(tmp_path, dense.variables_of(model))
    het_tf.reset()
    other = make(optimizer="sgd")  # its numbers go on
    left_out = restore(tmp_path, entry, other, strict=False)  # the same layers: by their order
    same(values(other, "model"), values(model, "model"))
    assert len(left_out) == len(values(model, "optimizer")) + len(values(other, "optimizer"))
    ids = keras.Input((2,), dtype="int64")
    x = het_tf.keras.Embedding(4, combiner="sum", name="item", reuse=True)(ids)
    for units in (3, 3, 3, 1):
        x = keras.layers.Dense(units)(x)
    more = keras.Model(ids, x)
    before = values(more)
    numbered = r"layers 'dense'.* numbered from \d+, but those in .*clear_session\(\)"
    with pytest.raises(ValueError, match=numbered):
        restore(tmp_path, entry, more, strict=False)
    same(values(more), before)


def test_what_has_no_weights_is_refused():
    with pytest.raises(TypeError, match="give a Keras model"):
        dense.variables_of("model")
    with pytest.raises(RuntimeError, match="no weights yet; call it on a batch"):
        dense.variables_of(keras.Sequential([keras.layers.Dense(1)]))
