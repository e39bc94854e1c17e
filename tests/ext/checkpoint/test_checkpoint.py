"""Saving and restoring of tables and models in one process."""

import numpy as np
import pytest
from checkpoint_lib import fit, keras, layer, model, same, tables, train, weights
from cli_lib import het
from floats_lib import assert_close, of_columns
from safetensors.numpy import load_file

import het_tf
from het_tf import checkpoint
from het_tf.ext.checkpoint.python import manifest

pytestmark = [pytest.mark.usefixtures("fresh", "eagerly")]


def as_safetensors_reads_it(path):
    """All tables of a full checkpoint, by the package safetensors alone."""
    parts = [load_file(file) for file in sorted(path.glob("rows-*"))]
    found = {}
    for name in {tensor.rpartition("/")[0] for part in parts for tensor in part}:
        of = {column: [part[f"{name}/{column}"] for part in parts if f"{name}/{column}" in part]
              for column in ("keys", "clocks", "values", "slots", "last_used", "counts")}  # fmt: skip
        of = {column: np.concatenate(values) for column, values in of.items() if values}
        of["rows"] = np.concatenate([of.pop("values"), *([of.pop("slots")] if "slots" in of else [])], axis=1)
        order = np.argsort(of["keys"])
        found[name] = {"ids" if column == "keys" else column: values[order] for column, values in of.items()}
    return found


@pytest.mark.parametrize("name", ["SGD", "Adam", "RowWiseAdagrad", "Ftrl"])
def test_everything_of_a_table_comes_back(tmp_path, name):
    layer("a", 5, name), layer("b/x y", 1, name)
    train(layer("a", 5, name))
    train(layer("b/x y", 1, name), ids=3000, batch=3000, end=2)
    saved = tables()
    applies = het_tf.Table("a").updates
    path = checkpoint.save(tmp_path / "c", step=7)
    assert path == tmp_path / "c" / "ckpt-00000007" == checkpoint.latest(tmp_path / "c")
    same(as_safetensors_reads_it(path), saved, ("ids", "clocks", "rows", "last_used", "counts"))
    het("ckpt", "verify", path)
    het_tf.reset()
    a = layer("a", 5, name)
    layer("b/x y", 1, name)
    train(a, 50, 60)  # what was there goes
    found = checkpoint.restore(tmp_path / "c")
    same(tables(), saved)
    assert (found.path, found.step, found.namespace) == (path, 7, "")
    rows = {one: len(columns["ids"]) for one, columns in saved.items()}
    assert {one: table["rows"] for one, table in found.tables.items()} == rows
    assert het_tf.Table("a").updates == applies == 10
    ids = saved["a"]["ids"]
    np.testing.assert_array_equal(a(ids, training=False), het_tf.Table("a").lookup(ids))


def test_namespaces_are_apart(tmp_path):
    for namespace in ("", "one"):
        with het_tf.namespace(namespace):
            train(layer("item"), end=3 if namespace else 5)
    outside, inside = tables(), tables("one")
    checkpoint.save(tmp_path / "outside")
    checkpoint.save(tmp_path / "inside", namespace="one")
    with het_tf.namespace("two"):
        layer("item")
    checkpoint.restore(tmp_path / "inside", namespace="two")
    same(tables("two"), inside)
    with het_tf.namespace("two"):
        checkpoint.restore(tmp_path / "outside")
    same(tables("two"), outside)
    same(tables(), outside)
    same(tables("one"), inside)


def resumed(tmp_path, make, begin=6, end=12):
    """Weights and tables of uninterrupted training, and of training that was saved and restored half-way."""
    found = []
    for interrupted in (False, True):
        het_tf.reset()
        made = make()
        fit(made, 0, begin)
        if interrupted:
            checkpoint.save(tmp_path, made, step=begin)
            fit(made, 100, 103)  # what comes after the checkpoint is forgotten
            het_tf.reset()
            made = make()
            fit(made, 200, 201)
            assert checkpoint.restore(tmp_path, made).step == begin
        fit(made, begin, end)
        found.append((weights(made), tables()))
    return found


def test_training_goes_on_bit_for_bit(tmp_path):
    (dense, table), (dense_again, table_again) = resumed(tmp_path, lambda: model(whole=True))
    assert np.any(table["item"]["rows"]) and any(np.any(one) for one in dense)
    same(table_again, table, ("ids", "clocks", "counts", "rows"))
    np.testing.assert_equal(dense_again, dense)


@pytest.mark.slow
def test_training_goes_on_with_slots_and_a_schedule(tmp_path):
    """Slots, the dense Adam with its step, and the applies of a schedule that falls fast."""
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    (dense, table), (dense_again, table_again) = resumed(tmp_path, lambda: model("Adam", rate=schedule))
    same(table_again, table, ("ids", "clocks", "counts"))
    expected = table["item"]["rows"]
    assert_close(table_again["item"]["rows"], expected, magnitude=of_columns(expected))
    for a, b in zip(dense, dense_again, strict=True):
        assert_close(b, a)


def test_a_model_is_restored_with_its_tables_or_they_alone(tmp_path):
    made = model()
    fit(made, 0, 3)
    checkpoint.save(tmp_path, made)
    before, saved = weights(made), tables()
    fit(made, 3, 5)
    after = weights(made)
    checkpoint.restore(tmp_path)
    same(tables(), saved)
    np.testing.assert_equal(weights(made), after)
    checkpoint.restore(tmp_path, made)
    np.testing.assert_equal(weights(made), before)
    fit(made, 3, 4)
    there = tables()
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(9, name="top")])
    other.compile("adam", "mse")
    for strict in (True, False):  # nothing of it fits
        with pytest.raises(ValueError, match="build and compile the model that was saved:"):
            checkpoint.restore(tmp_path, other, strict=strict)
    same(tables(), there)


def test_other_tables_are_refused_or_left_out(tmp_path):
    train(layer("both"), end=3)
    train(layer("old"), end=3)
    saved = tables()
    checkpoint.save(tmp_path)
    layer("another")
    with pytest.raises(ValueError, match="only this process has 'another'; give strict=False"):
        checkpoint.restore(tmp_path)
    het_tf.reset()
    train(layer("new"), 5, 6)
    with pytest.raises(ValueError, match=r"make the layers that use them first, with the same names$"):
        checkpoint.restore(tmp_path)
    train(layer("both"), 5, 6)
    before = tables()
    with pytest.raises(ValueError, match=r"only the checkpoint has 'old', only this process has 'new'"):
        checkpoint.restore(tmp_path)
    same(tables(), before)
    found = checkpoint.restore(tmp_path, strict=False)
    assert (found.only_in_checkpoint, found.only_live) == (("old",), ("new",))
    same(tables(), {"both": saved["both"], "new": before["new"]})


SLOTS = "give slots=False"
DIFFERS = [
    ({"dim": 5}, r"dim +4 +5", None),
    ({"seed": 3}, r"seed +0 +3", None),
    ({"initializer": het_tf.initializers.RandomUniform(-0.1, 0.05)}, r"initializer\.a +-0\.05 +-0\.1", None),
    ({"dim": 5, "of": "Adam", "seed": 3}, r"(?s)dim +4 +5\n.*seed +0 +3", None),
    ({"of": "Adam"}, r'(?s)optimizer\.name +"adagrad" +"adam".*optimizer\.params\.beta_?1', SLOTS),
    ({"of": "SGD"}, r"optimizer\.params\.eps\w* +\S+ +-", SLOTS),
    ({"of": "Ftrl"}, r'optimizer\.name +"adagrad" +"ftrl"', "FTRL computes the values from the slots"),
]


@pytest.mark.parametrize(("changes", "line", "without_slots"), DIFFERS)
def test_a_table_of_another_kind_is_refused_and_unchanged(tmp_path, changes, line, without_slots):
    train(layer("t", 4, "Adagrad"), end=3)
    checkpoint.save(tmp_path)
    het_tf.reset()
    train(layer("t", **{"of": "Adagrad", **changes}), end=2)
    before = tables()
    for slots in (True, False):
        if not slots and without_slots == SLOTS:
            continue
        with pytest.raises(ValueError, match=line if slots or not without_slots else without_slots) as caught:
            checkpoint.restore(tmp_path, slots=slots)
        said = str(caught.value)
        assert "declare the table as it was saved" in said or not slots
        assert (SLOTS in said) == (without_slots == SLOTS), "where that would help"
        same(tables(), before)


def test_an_optimizer_may_change_if_its_slots_begin_anew(tmp_path):
    train(layer("t", 4, "Adagrad"), end=3)
    saved = tables()
    path = checkpoint.save(tmp_path)
    het_tf.reset()
    train(layer("t", 4, "Adam"), end=2)
    checkpoint.restore(tmp_path, slots=False)
    found = tables()["t"]
    for column in ("ids", "counts", "last_used"):
        np.testing.assert_array_equal(found[column], saved["t"][column])
    assert not (found["clocks"] % 2**20).any(), "rows without their slots are young"
    np.testing.assert_array_equal(found["rows"][:, :4], saved["t"]["rows"][:, :4])
    assert not found["rows"][:, 4:].any(), "the moments of Adam begin at 0"
    het_tf.reset()
    layer("t", 4, "Adagrad", l2=0.5, max_norm=2.0)
    checkpoint.restore(tmp_path)
    same(tables(), saved)
    # Equal by name and parameters, with other slots: as of another version.
    document = manifest.read_manifest(path).document
    document["tables"][0]["slots"] = [["accumulator", 1]]
    (path / manifest.FILE).unlink()
    manifest.write(path, document)
    with pytest.raises(ValueError, match=r'slots +\[\["accumulator", 1\]\] +\[\["accumulator", 4\]\]'):
        checkpoint.restore(tmp_path)
