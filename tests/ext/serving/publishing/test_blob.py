"""Dense weights as a blob: every type comes back, standard readers read it, and damage is refused."""

from __future__ import annotations

import hashlib
import json
import struct

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load

import het_tf
from het_tf.ext.serving.python.publishing import blob as blobs
from het_tf.ext.serving.python.publishing import weights

ARRAYS = [
    ("b/kernel", np.arange(15, dtype=np.float32).reshape(3, 5)),
    ("a/half", np.array([1.5, -2], np.float16)),
    ("a/brain", np.array([[1.5], [3]], ml_dtypes.bfloat16)),
    ("scalar", np.array(-7, np.int64)),
    ("empty", np.zeros((0, 4), np.float64)),
    ("mask", np.array([True, False, True])),
    ("bytes", np.arange(65, dtype=np.uint8)),
    ("no dimension, no gap", np.array(3, np.int8)),
]


def test_every_type_comes_back_aligned_and_in_order():
    """Would catch offsets from the header's end rather than the file's, and a sorted header."""
    content = blobs.pack(ARRAYS)
    found = blobs.Blob(content)
    assert list(found.tensors) == [name for name, _ in ARRAYS]
    for name, array in ARRAYS:
        back = found.array(name)
        assert back.dtype == array.dtype and back.shape == array.shape and not back.flags.writeable
        np.testing.assert_array_equal(back, array)
        begin = found.tensors[name].begin
        assert begin % 64 == 0 and content[begin : begin + array.nbytes] == array.tobytes()


def test_standard_readers_read_it():
    """Would catch holes between tensors, which the format forbids."""
    there = load(blobs.pack([one for one in ARRAYS if one[0] != "a/brain"]))
    for name, array in ARRAYS:
        if name != "a/brain":
            np.testing.assert_array_equal(there[name], array)


def test_signature_is_of_names_shapes_dtypes_and_order():
    whole = blobs.Blob(blobs.pack(ARRAYS)).signature
    assert whole == blobs.signature_of(ARRAYS)
    assert whole == blobs.signature_of([(name, array + array) for name, array in ARRAYS])
    first, *rest = ARRAYS
    for others in (
        [*rest, first],
        [("c/kernel", first[1]), *rest],
        [(first[0], first[1].T), *rest],
        [(first[0], first[1].astype(np.float64)), *rest],
    ):
        assert blobs.signature_of(others) != whole
    # An export records it for its followers: the text must not change.
    expected = hashlib.sha256(b'[["w",[2,3],"float32"],["s",[],"bfloat16"]]').hexdigest()
    assert blobs.signature([("w", (2, 3), "float32"), ("s", (), "bfloat16")]) == expected


def test_arrays_that_a_blob_cannot_hold_are_refused():
    with pytest.raises(TypeError, match="'c' is complex64; a blob holds float64"):
        blobs.pack([("c", np.zeros(1, np.complex64))])
    with pytest.raises(ValueError, match="two arrays have the name 'w'"):
        blobs.pack([("w", np.zeros(1)), ("w", np.zeros(1))])
    with pytest.raises(ValueError, match="begins names of gaps"):
        blobs.pack([("__padding__/1", np.zeros(1))])


def packed(header, tail=b"", spaces=0):
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    text += b" " * (-(8 + len(text)) % 64 + spaces)
    return struct.pack("<Q", len(text)) + text + tail


META = {"__metadata__": blobs.FORMAT}


def entry(shape, begin, end, dtype="U8"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"1234", "it has 4 bytes"),
        (struct.pack("<Q", 2**63) + b"{}", "its header has 9223372036854775808 bytes"),
        (packed(META, spaces=1), "no multiple of 64"),
        (packed("{"), "its header is no JSON"),
        (packed("[" * 40 + "]" * 40), "nested deeper"),
        (packed([]), "no JSON object"),
        (packed({}), "its metadata are None"),
        (packed({"__metadata__": {"format": "pt"}}), r"metadata are \{'format': 'pt'\}"),
        (packed({**META, "w": {"dtype": "U8", "shape": [1]}}, b"1"), "other fields"),
        (packed({**META, "w": entry([1], 0, 1, "F8_E4M3")}, b"1"), "dtype 'F8_E4M3', which is unknown"),
        (packed({**META, "w": entry([1], 0, 1, ["U8"])}, b"1"), "which is unknown"),
        (packed({**META, "w": entry([-1], 0, 1)}, b"1"), "no list of at most 32 sizes"),
        (packed({**META, "w": entry([True], 0, 1)}, b"1"), "no list of at most 32 sizes"),
        (packed({**META, "w": entry([1] * 33, 0, 1)}, b"1"), "no list of at most 32 sizes"),
        (packed({**META, "w": entry([1], 1, 2)}, b"12"), "does not begin where"),
        (packed({**META, "w": entry([1], 0, 1), "v": entry([1], 0, 1)}, b"1"), "'v' does not begin where"),
        (packed({**META, "w": entry([1], 0, 1), "v": entry([1], 1, 2)}, b"12"), "'v' begins at byte"),
        (packed({**META, "w": entry([2], 0, 1)}, b"12"), "does not fit"),
        (packed({**META, "w": entry([2**40, 2**40], 0, 2**80)}, b"12"), "does not fit"),
        (packed({**META, "w": entry([1], 0, 1)}, b"12"), "its tensors end at byte"),
        (packed({**META, "w": entry([4], 0, 4)}, b"123"), "does not fit"),
    ],
)
def test_damage_is_refused(content, reason):
    with pytest.raises(blobs.DamagedError, match=reason):
        blobs.Blob(content)


def test_every_cut_of_a_blob_is_refused():
    content = blobs.pack(ARRAYS)
    for end in range(0, len(content), 7):
        with pytest.raises(blobs.DamagedError):
            blobs.Blob(content[:end])


# --- weights of a model ------------------------------------------------------------------------------------


def model(name="m", units=3):
    ids = tf.keras.Input((), dtype="int64", name="ids")
    rows = het_tf.keras.Embedding(4, name="item")(ids)
    rows = tf.keras.layers.BatchNormalization(name="norm")(rows)
    out = tf.keras.layers.Dense(units, name="out", dtype="float32")(rows)
    return tf.keras.Model(ids, out, name=name)


def test_weights_of_a_model_come_back(fresh):
    """Would catch tables' anchors, the optimizer or metrics in the blob."""
    made = model()
    made.compile("adam", "mse", metrics=["mae"])
    made.fit(np.arange(8), np.ones((8, 3)), verbose=0)
    arrays = weights.read(made)
    names = [name.rpartition("/")[2] for name, _ in arrays]
    assert sorted(names) == ["beta", "bias", "gamma", "kernel", "moving_mean", "moving_variance"]
    content = blobs.pack(arrays)
    for _, variable in weights.variables_of(made):
        variable.assign(tf.zeros(variable.shape))
    assert not any(array.any() for name, array in weights.read(made))
    weights.assign(made, blobs.Blob(content))
    assert blobs.pack(weights.read(made)) == content
    assert any(array.any() for _, array in arrays), "read gives copies"


def test_another_model_is_refused(fresh):
    content = blobs.Blob(blobs.pack(weights.read(model())))
    het_tf.reset()
    other = model(units=2)
    with pytest.raises(ValueError, match=r"only in the blob: \('out/kernel', \(4, 3\), 'float32'\)"):
        weights.assign(other, content)
    with pytest.raises(TypeError, match="model is list"):
        weights.read([])
    with pytest.raises(ValueError, match="has no weights yet"):
        weights.read(tf.keras.Sequential([tf.keras.layers.Dense(1)]))
