"""The command het plan profile: what it reads, what it prints, and what it refuses."""

import re
import sys
import textwrap
from pathlib import Path

import pytest
from cli_lib import het

import het_tf.planner
from het_tf.ext.sizing.python.stats import Stats


def profile(*words: object) -> None:
    """Runs the command with the output "out"."""
    het("plan", "profile", *words, "--out", "out")


def refused(*words: object) -> str:
    done = het("plan", "profile", *words, status=1)
    assert done.err.startswith("het plan: ") and not done.out
    return done.err


MODULE = """
    import het_tf, tensorflow as tf

    table = het_tf.TableConfig("item", 4)
    layer = het_tf.keras.EmbeddingCollection({
        "item": het_tf.FeatureConfig(table),
        "history": het_tf.FeatureConfig(table, padding_id=-1, max_sequence_length=2),
        "user": het_tf.FeatureConfig(het_tf.TableConfig("user", 8), "sum"),
    })
    data = tf.data.Dataset.from_tensor_slices({
        "item": [1, 2, 3, 4, 5], "history": [[-1, 1, 9]] * 5,
        "user": tf.ragged.constant([[1], [], [2, 3], [], [1]]),
    }).batch(2)
    labelled = lambda: (data.map(lambda x: (x, 1.0)), layer)
    moved = lambda: (data.map(lambda x: x["item"]), layer,
                     lambda item: {"item": item, "history": tf.stack([item, item], 1), "user": item[:, None]})
    endless = lambda: (data.repeat(), layer)
    no_pair = lambda: [data, layer]
    no_data = lambda: ([1, 2], layer)
    floats = lambda: (data.map(lambda x: {**x, "item": tf.cast(x["item"], tf.float32)}), layer)
"""


@pytest.fixture
def module(fresh, tmp_path, monkeypatch):
    """A module of functions in the directory in which the command runs."""
    (tmp_path / "train_module.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    yield "train_module"
    sys.modules.pop("train_module", None)


def test_a_function_of_a_module(module, tmp_path):
    profile("--data", f"{module}:labelled")
    stats = Stats.load("out")
    assert [tuple(one.values()) for one in stats.features] == [
        ("item", "item", 1), ("history", "item", 1), ("user", "user", 0.8),
    ]  # fmt: skip
    assert [(one.dim, one.uses, one.rows) for one in stats.tables] == [(4, 10, 5), (8, 4, 3)]
    keys, ids, _ = stats.keys(0)
    assert keys[ids].tolist() == [1, 1, 2, 1, 3, 1, 4, 1, 5, 1]
    assert stats.keys(1)[2].tolist() == [0, 2, 2, 4]
    train = sys.modules[module]
    assert het_tf.planner.profile(train.data, train.layer, out="api").tables == stats.tables
    profile("--data", f"{module}:endless", "--samples", 7)
    assert Stats.load("out").samples == 7


def test_inputs_say_where_the_ids_are(module):
    """As of het_tf.lookahead: `inputs` is called with the components of an element."""
    profile("--data", f"{module}:moved")
    of_command = Stats.load("out")
    dataset, layer, _ = sys.modules[module].moved()

    def inputs(item):
        import tensorflow as tf

        return {"item": item, "history": tf.stack([item, item], 1), "user": item[:, None]}

    stats = het_tf.planner.profile(dataset, layer, inputs, "out")
    assert stats.tables == of_command.tables
    assert [one["ids_per_sample"] for one in stats.features] == [1, 2, 1]


REFUSED = [
    (["no_pair"], "train_module:no_pair gives list; let it return"),
    (["no_data"], "dataset is a list; give a tf.data.Dataset"),
    (["missing"], "has no attribute 'missing'; give module:function"),
    (["endless"], r"the dataset has no end; give the number .*--samples"),
    (["floats"], "'item': ids are float32"),
    (["labelled", "--samples", "0"], "samples is 0; give an integer of 1 or more"),
]


@pytest.mark.parametrize(("words", "text"), REFUSED)
def test_functions_that_do_not_fit(module, words, text):
    assert re.search(text, refused("--data", f"{module}:{words[0]}", *words[1:], "--out", "out"))
    assert not Path("out").exists()


def test_a_file_in_the_place_of_the_directory(module, tmp_path):
    (tmp_path / "taken").touch()
    assert "taken is a file; give a directory" in refused("--data", f"{module}:labelled", "--out", "taken")
