"""het_tf.export: what is refused, and what a failure on the way leaves."""

import os

import export_lib as lib
import numpy as np
import pytest
import tensorflow as tf

import het_tf
from het_tf.serving import Follow, Native, Portable

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("error::het_tf.python.table.notes.TablesNotSavedWarning"),
]

keras = tf.keras


OF_FORMAT = [
    ({"row_dtype": "int4"}, "row_dtype is 'int4'"),
    ({"unknown": "ones"}, "unknown is 'ones'"),
    ({"min_count": -1}, "min_count is -1"),
    ({"min_count": 70000}, "min_count is 70000"),
    ({"min_count": True}, "min_count is True"),
    ({"max_age": 0}, "max_age is 0"),
    ({"max_age": True}, "max_age is True"),
    ({"max_age": float("nan")}, "max_age is nan"),
]
OF_FOLLOW = [
    ({"address": "redis://user:secret@host"}, "a password.*HET_SERVE_PS"),  # in a file that every host gets
    ({"address": "rediss://host?cert=/c&key=/k"}, "the certificate of a client.*HET_SERVE_PS"),
    ({"address": "http://host"}, "begins with none"),
    ({"max_age": 0}, "max_age"),
    ({"max_age": float("inf")}, "max_age"),
    ({"stale": "ok"}, "stale"),
    ({"max_skew": -1.0}, "max_skew"),
    ({"max_skew": True}, "max_skew"),
]
NO_FORMAT = r"format is .*; give het_tf\.serving\.Portable\(\) or Native\(\)"


REFUSED = [
    *[(lambda p, of=of, options=options: of(**options), ValueError, message)
      for of in (Portable, Native) for options, message in OF_FORMAT],
    *[(lambda p, options=options: Follow(**{"address": "redis://host", **options}), ValueError, message)
      for options, message in OF_FOLLOW],
    *[(lambda p, one=one: het_tf.export(lib.one_table(), p, one), TypeError, NO_FORMAT)
      for one in ("native", Native, None)],
    (lambda p: het_tf.export(lib.one_table(), __file__ + "/1"), OSError, "cannot be written"),
    (lambda p: Native(follow="redis://host"), TypeError, "follow is 'redis:"),
    (lambda p: het_tf.export(of_large_values(), p, Portable(row_dtype="float16")), ValueError,
     r"table 'item' has values up to 70000.*bfloat16"),
    (lambda p: followed(p, min_count=2), ValueError, "min_count and max_age"),  # a follower undoes it
    (lambda p: followed(p, max_age=60.0), ValueError, "min_count and max_age"),
    (lambda p: followed(p), RuntimeError, "the tables are in this process"),
    (lambda p: het_tf.export(het_tf.keras.Embedding(3), p), TypeError, "model is Embedding"),
    (lambda p: het_tf.export(plain(), p), ValueError, "no layers of het_tf"),
    (lambda p: het_tf.export(gone(), p), LookupError, "item"),
    *[(lambda p, given=given: het_tf.export(lib.one_table(), p, signatures=given), ValueError, message)
      for given, message in (
          ({}, "give a dict from names"),
          ([1], "give a dict from names"),
          ({"x": None}, "give the model's inputs"),
          ({"x": lambda ids: ids}, "give the model's inputs"),
          ({"": {"ids": np.array([1])}}, "non-empty strings"),
          ({"x": tf.function(lambda ids: ids)}, "without an input_signature"),
          ({"x": {"ids": 3}}, "batch dimension"),
          ({"x": {"ids": object()}}, "is not an input of a model"),
      )],
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_is_refused_makes_nothing(call, error, message, tmp_path):
    with pytest.raises(error, match=message):
        call(tmp_path / "1")
    assert not list(tmp_path.iterdir())


def plain():
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])


def followed(path, **options):
    follow = Follow("redis://127.0.0.1:1")
    het_tf.export(lib.one_table(), path, Native(follow=follow, **options), verbose=False)


def of_large_values():
    model = lib.one_table()
    het_tf.Table("item").assign([1], np.full((1, 4), 7e4))
    return model


def gone():
    """A model without its tables."""
    model = lib.one_table()
    het_tf.reset()
    return model


@pytest.mark.parametrize("content", [b"[" * 5000, b"[3]", b"\xff", b"x" * (2 << 20), None])
def test_a_damaged_record_of_an_export(content, tmp_path):
    record = tmp_path / "1/assets.extra/het_tf.json"
    record.parent.mkdir(parents=True)
    (tmp_path / "1/saved_model.pb").touch()
    os.mkfifo(record) if content is None else record.write_bytes(content)
    with pytest.raises(ValueError, match=r"het_tf\.json (is damaged|is a FIFO|has more than 1.05 MB)"):
        het_tf.serving.check(tmp_path / "1", np.zeros((1, 2), np.float32), plain())


@pytest.mark.parametrize("format", [Portable(), Native()])
def test_a_path_that_exists(format, rng, tmp_path):
    model = lib.one_table()
    lib.fill("item", [1], rng)
    path = tmp_path / "1"
    het_tf.export(model, path, format, verbose=False)
    old = lib.serve(path)
    before = old(ids=np.array([1]))["ids"]
    values = lib.fill("item", [1], rng)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        het_tf.export(model, path, format)
    np.testing.assert_array_equal(lib.serve(path)(ids=np.array([1]))["ids"], before)
    het_tf.export(model, path, format, overwrite=True, verbose=False)
    np.testing.assert_array_equal(lib.serve(path)(ids=np.array([1]))["ids"], values)
    np.testing.assert_array_equal(old(ids=np.array([1]))["ids"], before)
    assert [one.name for one in tmp_path.iterdir()] == ["1"]

    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "me.jpg").write_text("me")
    with pytest.raises(FileExistsError, match="not a SavedModel"):
        het_tf.export(model, photos, overwrite=True)
    assert (photos / "me.jpg").read_text() == "me"


def test_a_failure_on_the_way_leaves_nothing(rng, tmp_path, monkeypatch):
    model = lib.one_table()
    lib.fill("item", [1], rng)
    path = tmp_path / "deep" / "1"
    het_tf.export(model, path, verbose=False)
    before = lib.serve(path)(ids=np.array([1]))["ids"]

    def fail(*args, **kwargs):
        (tmp_path / "deep").joinpath("seen").write_text(str(sorted(os.listdir(tmp_path / "deep"))))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        het_tf.export(model, path, overwrite=True)
    assert ".tmp-1-" in (tmp_path / "deep" / "seen").read_text()
    (tmp_path / "deep" / "seen").unlink()
    assert [one.name for one in (tmp_path / "deep").iterdir()] == ["1"]
    np.testing.assert_array_equal(lib.serve(path)(ids=np.array([1]))["ids"], before)


def test_a_function_inside_of_the_model(rng, tmp_path):
    """It would keep the exported rows for later calls, or give the live ones to the export."""
    embedding = het_tf.keras.Embedding(3, name="e")

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = embedding

        @tf.function
        def inner(self, ids):
            return self.embedding(ids)

        def call(self, ids, training=None):
            return self.inner(ids)

        def input_specs(self):
            return tf.TensorSpec([None], tf.int64, "ids")

    model = Model()
    ids = tf.constant([1, 2], tf.int64)
    model(ids)
    with pytest.raises(RuntimeError, match=r"take @tf.function off"):
        het_tf.export(model, tmp_path / "1")
    # Traced with the shape of the signature, and the live table.
    model.inner.get_concrete_function(tf.TensorSpec([None], tf.int64, "ids"))
    with pytest.raises(RuntimeError, match=r"take @tf.function off"):
        het_tf.export(model, tmp_path / "1")
    lib.fill("e", [1, 2], rng)
    np.testing.assert_array_equal(model(ids).numpy(), het_tf.Table("e").lookup([1, 2]))
    assert not list(tmp_path.iterdir())
