"""The portable format's parts: the perfect hash, initial rows, groups of tables.

That a process without het_tf reads it: test_export_rows.py::test_check_export.
"""

import os

import export_lib as lib
import numpy as np
import pytest
import saving_lib
import tensorflow as tf

import het_tf
from het_tf.ext.serving.python.export import arrays, index

pytestmark = saving_lib.MARKS

keras = tf.keras
SCALE = float(os.environ.get("HET_TEST_SCALE", "1"))


KINDS = {
    "random": lambda rng, n: rng.integers(-(2**63), 2**63, 2 * n),
    "consecutive": lambda rng, n: rng.permutation(np.arange(n) - n // 2),
    "strided": lambda rng, n: np.arange(n) * 2**40,
    "high bits": lambda rng, n: np.arange(n, dtype=np.int64) << 44,
    "extremes": lambda rng, n: np.array([-(2**63), 2**63 - 1, 0, -1, 1]),
}


def found(made: index.Index, ids):
    return [one.numpy() for one in tf.function(made.find)(tf.constant(ids, tf.int64), None)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 3, 1000, 50_000])
def test_index_maps_only_known_ids_to_distinct_slots(kind, size, rng):
    ids = np.unique(KINDS[kind](rng, size))[: max(1, size)]
    rng.shuffle(ids)
    made = index.Index([ids])
    slots, hit = found(made, ids)
    assert hit.all()
    assert len(np.unique(slots)) == len(ids) and slots.min() >= 0 and slots.max() < made.slots
    np.testing.assert_array_equal(slots, made.regions[0].slot_of)
    others = np.concatenate([rng.integers(-(2**63), 2**63, 20_000), np.arange(-5000, 5000)])
    slots, hit = found(made, np.setdiff1d(others, ids))
    assert not hit.any()
    assert slots.min() >= 0 and slots.max() < made.slots
    assert made.slots <= len(ids) / index.LOAD + 2
    assert made.bytes <= 9.7 * len(ids) + 100


def test_ids_that_cannot_be_placed():
    with pytest.raises(ValueError, match="occurs twice"):
        index.build(np.array([4, 4]), pilots=64)


def test_other_seeds_are_tried_when_pilots_run_out():
    regions = [index.build(np.arange(40), pilots=limit) for limit in (24, 65536)]
    assert [len(np.unique(region.slot_of)) for region in regions] == [40, 40]
    assert regions[0].seed != 0 and regions[0].pilots.max() < 24
    assert regions[1].seed == 0


def test_variables_take_arrays_over():
    for dtype in (np.float32, np.float16, np.int8, np.int64, np.uint16, tf.bfloat16.as_numpy_dtype):
        array = arrays.zeros((100, 3), dtype)
        array[:] = np.arange(300).reshape(100, 3) % 100
        made = arrays.variable(array, "x")
        np.testing.assert_array_equal(made.numpy().astype(np.float32), array.astype(np.float32))
        assert made.dtype.as_numpy_dtype == dtype
        if dtype is np.float32:
            array[0, 0] = 5
            assert made.numpy()[0, 0] == 5  # one copy in memory
    assert arrays.variable(arrays.zeros((0, 3), np.float32), "x").numpy().shape == (0, 3)


INITIALIZERS = [
    het_tf.initializers.RandomUniform(),
    het_tf.initializers.RandomUniform(0.1, 0.1),
    het_tf.initializers.RandomNormal(0.3, 2.0),
    het_tf.initializers.Constant(-0.3),
]


def test_unknown_ids_have_their_initial_rows_bit_for_bit(rng, tmp_path):
    tables = [
        het_tf.TableConfig(f"nä/{number}/{dim}", dim, initializer=initializer, seed=2**64 - dim)
        for number, initializer in enumerate(INITIALIZERS)
        for dim in (1, 5, 16)
    ]
    ids = keras.Input((), dtype="int64", name="ids")
    layer = het_tf.keras.EmbeddingCollection({t.name: het_tf.FeatureConfig(t) for t in tables})
    model = keras.Model({"ids": ids}, layer({t.name: ids for t in tables}))
    het_tf.export(model, tmp_path / "1", verbose=False)
    x = np.r_[0, -1, 2**63 - 1, 1 - 2**63, rng.integers(1 - 2**63, 2**63, int(20_000 * SCALE))]
    got = lib.serve(tmp_path / "1")(ids=x)  # by way of Grappler, as it is served
    for table in tables:
        wanted = het_tf.Table(table.name).lookup(x)
        np.testing.assert_array_equal(got[table.name].view(np.int32), wanted.view(np.int32), repr(table))


def test_many_tables_are_read_by_few_ops(rng, tmp_path):
    """Tables of three dims, of four kinds of initial rows, shared and not, some empty, two namespaces."""
    kinds = [None, "zeros", het_tf.initializers.RandomNormal(0, 1), het_tf.initializers.Constant(3.0)]
    tables = [het_tf.TableConfig(f"t{n}", dim=(2, 3, 8)[n % 3], initializer=kinds[n % 4]) for n in range(24)]
    features = {f"f{n}": het_tf.FeatureConfig(tables[n % 24]) for n in range(30)}
    features["s"] = het_tf.FeatureConfig(tables[0], "mean", padding_id=0)
    inputs = {name: keras.Input((), dtype="int64", name=name) for name in features if name != "s"}
    inputs["s"] = keras.Input((4,), dtype="int64", name="s")
    first = het_tf.keras.EmbeddingCollection(features, name="first")
    with het_tf.namespace("other"):
        second = het_tf.keras.EmbeddingCollection({"f0": het_tf.FeatureConfig(tables[0])}, name="second")
    outputs = {**first(inputs), "other": second({"f0": inputs["f0"]})["f0"]}
    model = keras.Model(inputs, outputs)
    for n in range(0, 24, 2):
        lib.fill(f"t{n}", np.arange(n, 50 + n), rng)
    het_tf.Table("t0", "other").assign([1, 2], rng.normal(size=(2, 2)))
    het_tf.export(model, tmp_path / "1", verbose=False)
    x = {name: rng.integers(-5, 80, (100, 4) if name == "s" else 100) for name in inputs}
    answer = lib.serve(tmp_path / "1")
    got = answer(**x)
    wanted = model({name: tf.constant(ids) for name, ids in x.items()}, training=False)
    assert set(got) == set(wanted)
    for name, rows in wanted.items():
        np.testing.assert_array_equal(got[name], rows.numpy(), err_msg=name)
    empty = {name: ids[:0] for name, ids in x.items()}
    assert all(len(rows) == 0 for rows in answer(**empty).values())


def test_rows_are_variables_and_no_constants(rng, tmp_path):
    """A graph is a message of at most 2 GB: nothing in it may grow with the table."""
    model, sizes = lib.one_table(16), []
    for rows in (10, 20_000):
        lib.fill("item", np.arange(rows), rng)
        het_tf.export(model, tmp_path / str(rows), verbose=False)
        sizes.append((tmp_path / str(rows) / "saved_model.pb").stat().st_size)
        data = sum(file.stat().st_size for file in (tmp_path / str(rows) / "variables").iterdir())
        assert data >= rows * 64
    assert abs(sizes[1] - sizes[0]) < 200
