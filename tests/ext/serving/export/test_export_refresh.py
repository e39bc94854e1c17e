"""het publish portable: portable exports get the rows and dense weights of live files."""

from __future__ import annotations

import json
import subprocess
import sys

import export_lib
import numpy as np
import redis_lib
import tensorflow as tf
from cli_lib import het
from followed_lib import IDS, Followed, make_model

import het_tf

keras = tf.keras

pytestmark = redis_lib.MARKS


def portable(*words, status=0):
    return het("publish", "portable", *words, status=status)


def numbers(folder):
    return sorted(int(one.name) for one in folder.iterdir())


def outputs(path, **inputs):
    """Of a process that has TensorFlow alone."""
    code = (
        "import json, sys, tensorflow as tf; given = json.loads(sys.argv[2]);"
        "call = tf.saved_model.load(sys.argv[1]).signatures['serving_default'];"
        "out = call(**{name: tf.constant(x, tf.int64) for name, x in given.items()});"
        "assert not any(name.startswith('het_tf') for name in sys.modules);"
        "print(json.dumps({name: x.numpy().tolist() for name, x in out.items()}))"
    )
    arguments = [sys.executable, "-c", code, str(path), json.dumps(inputs)]
    text = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    return {name: np.array(x) for name, x in json.loads(text.splitlines()[-1]).items()}


def test_exports_have_the_present_rows_and_dense_weights(server, tmp_path):
    """Would catch rows, sizes of the index or weights that are constants of the graph."""
    followed = Followed(server, tmp_path)
    base, out = tmp_path / "base", tmp_path / "out"
    het_tf.export(followed.model, base)
    more = np.arange(3000)
    for round, value in enumerate((2.0, 3.0), start=1):
        followed.train(value)
        het_tf.Table("item").assign(more, np.full((len(more), 3), value))
        het_tf.publish(followed.model)
        het("serve", "follow", followed.path, "--once", status=0)
        said = portable(base, "--from", followed.path, "--to", out, "--keep", 2).out
        assert f"version {round}, 3,000 rows" in said
    portable(base, "--from", followed.path, "--to", out, "--keep", 2)
    assert len(numbers(out)) == 2
    found = outputs(out / str(numbers(out)[-1]), id=[0, 7, 2999, 5_000_000])
    np.testing.assert_allclose(found["row"], [[3.0] * 3] * 3 + [[0.0] * 3])
    np.testing.assert_allclose(found["y"], [[30.0] * 2] * 3 + [[3.0] * 2])


def test_groups_of_tables_and_unknown_rows(server, tmp_path):
    """Would catch tables of one group that change places, and unknown ids that read a row."""
    het_tf.init(ps=het_tf.Store(server.address))
    begins = {"item": "zeros", "shop": 0.5, "user": "normal"}
    features, inputs = {}, {}
    for name, initializer in begins.items():
        if initializer == 0.5:
            initializer = het_tf.initializers.Constant(0.5)
        table = het_tf.TableConfig(name, 4, het_tf.optimizers.SGD(1.0), initializer=initializer)
        features[name], inputs[name] = het_tf.FeatureConfig(table), keras.Input((), dtype="int64", name=name)
    rows = het_tf.keras.EmbeddingCollection(features)(inputs)
    model = keras.Model(inputs, {name: one * 1.0 for name, one in rows.items()})
    for number, name in enumerate(begins):
        het_tf.Table(name).assign(IDS, np.full((len(IDS), 4), number + 1.0))
    follow = het_tf.serving.Follow(server.address)
    het_tf.export(model, tmp_path / "model", het_tf.serving.Native(follow=follow))
    het_tf.export(model, tmp_path / "base", het_tf.serving.Portable(row_dtype="int8"))
    for number, name in enumerate(begins):
        ids = np.arange(100 * number, 100 * number + 700)
        het_tf.Table(name).assign(ids, np.full((len(ids), 4), number + 10.0))
    het("serve", "follow", tmp_path / "model", "--once", status=0)
    portable(tmp_path / "base", "--from", tmp_path / "model", "--to", tmp_path / "out")
    ids = np.array([3, 250, 650, 9999], np.int64)
    answer = export_lib.serve(tmp_path / "out" / str(numbers(tmp_path / "out")[0]))
    found = answer(**{name: ids for name in begins})
    expected = model({name: tf.constant(ids) for name in begins}, training=False)
    for name in begins:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-2)


def test_what_is_no_base_is_refused(server, tmp_path):
    followed = Followed(server, tmp_path)
    words = ("--from", followed.path, "--to", tmp_path / "out")
    assert "is no portable export" in portable(followed.path, *words, status=1).err
    het_tf.export(make_model(units=5), tmp_path / "other")
    assert "is not of the model of" in portable(tmp_path / "other", *words, status=1).err
    assert "'60' is no time such as 60s" in portable(followed.path, *words, "--every", "60", status=2).err
