"""het_tf.checkpoint.load_rows: every format, ids and slots where they belong; bad files change nothing."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from rules_lib import learn

import het_tf

keras = tf.keras
pytestmark = pytest.mark.usefixtures("fresh")
TFRA = Path(__file__).parent / "tfra"
KERAS_2 = Path(__file__).parent / "keras2"
IDS = np.array([5, -3, 2**62, 0])
VALUES = np.arange(8, dtype=np.float32).reshape(4, 2)


def table(optimizer="adagrad", dim=2, name="item"):
    made = het_tf.keras.Embedding(dim, name=name, optimizer=optimizer)
    found = het_tf.Table(name)
    found.layer = made  # so that it lives as long
    return found


def content(of, with_slots=False):
    rows = of.scan()
    floats = rows["rows"] if with_slots else rows["rows"][:, : of.dim]
    return dict(zip(rows["ids"].tolist(), floats.tolist(), strict=True))


EXPECTED = {int(one): row.tolist() for one, row in zip(IDS, VALUES, strict=True)}


def test_npz(tmp_path):
    np.savez(tmp_path / "rows.npz", ids=IDS.astype("int64"), values=VALUES.astype("float64"))
    into = table()
    into.assign([9, 5], [[1, 1], [1, 1]])
    assert het_tf.checkpoint.load_rows("item", tmp_path / "rows.npz") == 4
    assert content(into) == {**EXPECTED, 9: [1, 1]}


def test_names_of_the_table_come_first(tmp_path):
    np.savez(
        tmp_path / "x.npz", **{"item/ids": IDS, "item/values": VALUES, "ids": IDS[:1], "values": VALUES[:1]}
    )
    into = table()
    assert het_tf.checkpoint.load_rows(into, str(tmp_path / "x.npz")) == 4
    assert content(into) == EXPECTED


def test_row_number_is_id_by_default(tmp_path):
    np.savez(tmp_path / "x.npz", weight=VALUES, ids=IDS)
    into = table()
    het_tf.checkpoint.load_rows("item", tmp_path / "x.npz", rows="weight")
    assert list(content(into)) == [0, 1, 2, 3]
    into.clear()
    het_tf.checkpoint.load_rows("item", tmp_path / "x.npz", rows="weight", ids="ids")
    assert content(into) == EXPECTED


def test_strings_are_hashed_as_the_layers_do(tmp_path):
    names = np.array(["a", "bb", "ä", ""])
    np.savez(tmp_path / "x.npz", ids=names, values=VALUES)
    into = table()
    het_tf.checkpoint.load_rows("item", tmp_path / "x.npz")
    read = into.layer(tf.constant(names.tolist()), training=False)
    np.testing.assert_array_equal(read, VALUES)


def test_safetensors(tmp_path):
    from safetensors.tensorflow import save_file

    path = tmp_path / "model.safetensors"
    tensors = {"w": tf.constant(VALUES), "half": tf.cast(VALUES, tf.bfloat16), "keys": tf.constant(IDS)}
    save_file(tensors, str(path))
    for name in ("w", "half"):
        into = table(name=name)
        het_tf.checkpoint.load_rows(into, path, rows=name, ids="keys")
        assert content(into) == EXPECTED


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow.parquet  # noqa: F401

    lists = pa.FixedSizeListArray.from_arrays(pa.array(VALUES.reshape(-1)), 2)
    columns = {"sku": IDS, "vector": VALUES.tolist(), "fixed": lists, "x": VALUES[:, 0], "y": VALUES[:, 1]}
    pa.parquet.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=3)
    for number, rows in enumerate(["vector", "fixed", ["x", "y"]]):
        into = table(name=f"t{number}")
        het_tf.checkpoint.load_rows(into, tmp_path / "rows.parquet", ids="sku", rows=rows)
        assert content(into) == EXPECTED
    pa.parquet.write_table(pa.table({"id": ["a"], "value": [[1.0, 2.0]]}), tmp_path / "named.parquet")
    assert het_tf.checkpoint.load_rows("t0", tmp_path / "named.parquet") == 1


def test_checkpoint_of_a_variable_with_its_slots(tmp_path):
    rows, mean, square = (tf.Variable(VALUES + i) for i in range(3))
    path = tf.train.Checkpoint(rows=rows, m=mean, v=square).write(str(tmp_path / "model"))
    names = [f"{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in ("rows", "m", "v")]
    into = table("adam")
    het_tf.checkpoint.load_rows("item", path, rows=names[0], slots=[*names[1:], 7])
    for number, (one, row) in enumerate(content(into, with_slots=True).items()):
        assert one == number
        assert row == [*VALUES[number], *(VALUES[number] + 1), *(VALUES[number] + 2), 7]
    assert het_tf.checkpoint.load_rows("item", tmp_path / "model", rows=names[0]) == 4
    with pytest.raises(ValueError, match=r"has no array .*name one by rows="):
        het_tf.checkpoint.load_rows("item", path)


def test_checkpoint_of_keras_2():
    """Variable 0 of the optimizer is the step; then come the slots of each weight."""
    names = ["layer_with_weights-0/embeddings", "optimizer/_variables/1", "optimizer/_variables/2"]
    names = [f"{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in names]
    into = table("adam")
    assert het_tf.checkpoint.load_rows("item", KERAS_2 / "weights", rows=names[0], slots=[*names[1:], 2]) == 4
    expected = np.load(KERAS_2 / "expected.npz")
    columns = [expected["rows"], expected["m"], expected["v"], np.full((4, 1), 2)]
    np.testing.assert_array_equal(into.scan()["rows"], np.concatenate(columns, axis=1))


@pytest.mark.parametrize(
    ("place", "names", "first"),
    [
        (
            TFRA / "checkpoint/model",
            ["item/tables_of_item"]
            + [f"optimizer/item.Slook.S{slot}/tables_of_item.Slook.S{slot}" for slot in "mv"],
            0.8750001788139343,
        ),
        (TFRA / "files/TFRADynamicEmbedding", ["item", "item_look_m", "item_look_v"], 0.8750001788139343),
    ],
    ids=["checkpoint", "files"],
)
def test_tables_of_tfra(place, names, first):
    """Two shards; the slots are tables that lack the ids 3 and 4, which nothing has trained."""
    into = table("adam")
    assert het_tf.checkpoint.load_rows("item", place, rows=names[0], slots=[*names[1:], 1]) == 6
    found = content(into, with_slots=True)
    assert sorted(found) == [-7, 1, 2, 3, 4, 2**40]
    assert found[1] == pytest.approx([0, first, 0, 0.2, 0, 0.004, 1], abs=1e-6)
    assert found[2**40] == pytest.approx([3.875, 4.875, 0.8, 1, 0.064, 0.1, 1], abs=1e-5)
    assert found[3] == [8, 9, 0, 0, 0, 0, 0]


def test_one_table_of_tfra_needs_no_name(tmp_path):
    IDS.astype("<i8").tofile(tmp_path / "x_mht_1of1_rank0_size1-keys")
    VALUES.tofile(tmp_path / "x_mht_1of1_rank0_size1-values")
    into = table()
    het_tf.checkpoint.load_rows("item", tmp_path)
    assert content(into) == EXPECTED


def test_no_rows_at_all(tmp_path):
    np.savez(tmp_path / "x.npz", ids=IDS[:0], values=VALUES[:0])
    assert het_tf.checkpoint.load_rows(table(), tmp_path / "x.npz") == 0


def test_training_goes_on_with_the_slots(tmp_path):
    np.savez(tmp_path / "x.npz", ids=IDS, values=VALUES, accumulators=np.full((4, 2), 3.0, "float32"))
    into = table(het_tf.optimizers.Adagrad(1.0))
    het_tf.checkpoint.load_rows("item", tmp_path / "x.npz", slots="accumulators")
    learn(into.layer, lambda: tf.reduce_sum(into.layer(tf.constant([5], tf.int64))))
    np.testing.assert_allclose(into.lookup([5])[0], VALUES[0] - 1 / np.sqrt(4), atol=1e-6)


# --- bad files ----------------------------------------------------------------------------------------------


def npz(path, **arrays):
    np.savez(path / "x.npz", **{"ids": IDS, "values": VALUES, **arrays})
    return path / "x.npz"


def cut(path):
    npz(path)
    whole = (path / "x.npz").read_bytes()
    (path / "x.npz").write_bytes(whole[: len(whole) // 2])
    return path / "x.npz"


def cut_tfra(path):
    IDS.astype("<i8").tofile(path / "x-keys")
    (path / "x-values").write_bytes(VALUES.tobytes()[:-2])
    return path


def lost_tfra(path):
    IDS.astype("<i8").tofile(path / "x-keys")
    return path


def cut_safetensors(path):
    from safetensors.numpy import save_file

    save_file({"values": VALUES}, str(path / "x.safetensors"))
    whole = (path / "x.safetensors").read_bytes()
    (path / "x.safetensors").write_bytes(whole[:-4])
    return path / "x.safetensors"


def cut_checkpoint(path):
    prefix = tf.train.Checkpoint(v=tf.Variable(VALUES)).write(str(path / "c"))
    (path / "c.data-00000-of-00001").write_bytes(b"")
    return prefix


def with_one(value):
    values = VALUES.copy()
    values[2, 1] = value
    return values


# fmt: off
BAD = {
    "width": (lambda p: npz(p, values=VALUES[:, :1]), {}, "rows of 1 floats, but table 'item' has dim 2"),
    "twice": (lambda p: npz(p, ids=[5, 1, 5, 1]), {}, "2 ids occur again, the first 1, 5; keep one row"),
    "nan": (lambda p: npz(p, values=with_one(np.nan)), {}, f"the row of id {2**62} hold nan as float32"),
    "large": (
        lambda p: npz(p, values=with_one(3).astype("float64") * 1e300),
        {},
        "x.npz: .* hold inf as float32",
    ),
    "float ids": (
        lambda p: npz(p, ids=IDS.astype(float)), {},
        "ids are float64, not integers or strings",
    ),
    "large ids": (
        lambda p: npz(p, ids=np.array([1, 2, 3, 2**63], "u8")), {},
        "id 9223372036854775808 is above",
    ),
    "fewer ids": (lambda p: npz(p, ids=IDS[:3]), {}, "ids of shape .3. and 4 rows"),
    "integers": (lambda p: npz(p, values=VALUES.astype(int)), {}, "is int64, but rows are floats"),
    "a cube": (
        lambda p: npz(p, values=VALUES.reshape(2, 2, 2)), {},
        "has shape .2, 2, 2., but rows .N, dim.",
    ),
    "no array": (lambda p: npz(p), {"rows": "w"}, "rows is 'w', but it has arrays 'ids', 'values'"),
    "no ids": (lambda p: npz(p), {"rows": "values", "ids": "k"}, "ids is 'k', but it has arrays"),
    "cut": (cut, {}, "x.npz cannot be read: .*copy it again"),
    "text": (lambda p: (p / "x.npz").write_text("a,b") and p / "x.npz", {}, "x.npz cannot be read"),
    "objects": (
        lambda p: npz(p, ids=np.array([{}, 1, 2, 3], object)), {},
        "x.npz cannot be read: array 'ids'",
    ),
    "safetensors": (cut_safetensors, {}, "x.safetensors is damaged"),
    "checkpoint": (cut_checkpoint, {"rows": "v/.ATTRIBUTES/VARIABLE_VALUE"}, "c cannot be read: variable 'v"),
    "tfra": (cut_tfra, {}, "x-values has 30 bytes and x-keys 32: no whole rows"),
    "tfra's table": (
        lambda p: TFRA / "files/TFRADynamicEmbedding", {"rows": "user"},
        "no table 'user'; it has",
    ),
    "which table": (lambda p: TFRA / "files/TFRADynamicEmbedding", {}, "name one by rows="),
    "slots": (
        lambda p: npz(p), {"slots": ["values", "values"]},
        r"slots are \[2, 2\] floats wide, .* 2 together",
    ),
    "slots of others": (lambda p: npz(p, s=VALUES[:3]), {"slots": "s"}, "has 3 rows, but the values 4"),
    "format": (lambda p: npz(p), {"format": "csv"}, "format is 'csv'; give one of"),
    "ending": (
        lambda p: (p / "x.csv").write_text("a") and p / "x.csv", {},
        "does not end in .npz, .safetensors",
    ),
    "directory": (lambda p: p, {}, "is a directory without a file 'checkpoint'"),
}
# fmt: on


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_changes_nothing(case, tmp_path):
    make, arguments, words = BAD[case]
    into = table()
    into.assign([5, 77], VALUES[:2] + 50)
    with pytest.raises(ValueError, match=words):
        het_tf.checkpoint.load_rows("item", make(tmp_path), **arguments)
    assert content(into) == {5: [50, 51], 77: [52, 53]}


@pytest.mark.parametrize("make", [lambda p: p / "x.npz", lambda p: p / "x", lost_tfra])
def test_what_is_missing(make, tmp_path):
    table()
    with pytest.raises(FileNotFoundError, match="x"):
        het_tf.checkpoint.load_rows("item", make(tmp_path))


def test_a_table_that_nobody_has_made(tmp_path):
    with pytest.raises(LookupError, match="nobody"):
        het_tf.checkpoint.load_rows("nobody", npz(tmp_path))


def test_bad_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow.parquet  # noqa: F401

    into = table()
    for values, words in (
        ([[1.0, 2.0], [3.0]], "lists of column 'value' have different lengths"),
        ([[1.0, 2.0], None], "column 'value' has 1 nulls"),
        ([[1.0, 2.0], [None, 1.0]], "lists of column 'value' hold nulls"),
    ):
        pa.parquet.write_table(pa.table({"id": [1, 2], "value": values}), tmp_path / "x.parquet")
        with pytest.raises(ValueError, match=words):
            het_tf.checkpoint.load_rows("item", tmp_path / "x.parquet")
    (tmp_path / "x.parquet").write_bytes((tmp_path / "x.parquet").read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"x.parquet cannot be read"):
        het_tf.checkpoint.load_rows("item", tmp_path / "x.parquet")
    assert into.size == 0
