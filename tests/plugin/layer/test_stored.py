"""Tables whose rows are stored in 16 or 8 bits, in this process and at a server."""

import warnings

import numpy as np
import pytest
import redis_lib
import tensorflow as tf
from rules_lib import learn

import het_tf
from het_tf import checkpoint

FORMATS = ("bfloat16", "int8")
UNIT = {"bfloat16": 1 / 128, "int8": 1 / 64}
"""Between numbers from 1 on, in a row whose largest number is below 2."""

pytestmark = [pytest.mark.usefixtures("fresh")]


def embedding(stored, dim=16, rate=1.0, of="RowWiseAdagrad", **more):
    optimizer = getattr(het_tf.optimizers, of)(rate)
    return het_tf.keras.Embedding(
        dim,
        name="t",
        optimizer=optimizer,
        initializer=het_tf.initializers.Constant(1.0),
        stored=stored,
        **more,
    )


def train(layer, steps, ids=(1, 2, 3)):
    for _ in range(steps):
        learn(layer, lambda: -tf.reduce_sum(layer(tf.constant(ids, tf.int64), training=True)))


def rounded(values, stored):
    """Whether each row is one of the format."""
    if stored == "bfloat16":
        return not np.any(values.astype(np.float32).view(np.uint32) & 0xFFFF)
    scales = 2.0 ** (np.ceil(np.log2(np.abs(values).max(axis=1, keepdims=True) / 127)))
    return np.array_equal(values / scales, np.round(values / scales))


@pytest.mark.parametrize("stored", FORMATS)
def test_small_steps_add_up(stored):
    """A hundredth of a unit a step: the nearest number would stay where it is."""
    layer = embedding(stored, rate=UNIT[stored] / 100, of="SGD")
    train(layer, 1000)
    values = het_tf.Table("t").lookup([1, 2, 3])
    assert rounded(values, stored)
    # 10 units by 1,000 draws of a deviation of .1 units, in each of 48 numbers.
    np.testing.assert_allclose((values - 1).mean() / UNIT[stored], 10, atol=5 * 0.1 * 1000**0.5 / 48**0.5)


@pytest.mark.parametrize("stored", FORMATS)
def test_a_table_is_smaller(stored):
    sizes = {}
    for each in ("float32", stored):
        het_tf.reset()
        layer = embedding(each, dim=64)
        train(layer, 1, ids=range(20_000))
        sizes[each] = het_tf.Table("t").bytes
    assert sizes[stored] / sizes["float32"] < {"bfloat16": 0.62, "int8": 0.45}[stored]


@redis_lib.SERVER
@pytest.mark.parametrize("stored", FORMATS)
def test_a_server_has_what_its_only_worker_has(server, stored):
    het_tf.reset()
    het_tf.init(ps=server.address)
    layer = embedding(stored, rate=0.01, of="SGD", cache=het_tf.Cache(rows=100, staleness=0, wire="float32"))
    train(layer, 50)
    table = het_tf.Table("t")
    there = table.lookup([1, 2, 3], stored=True)
    assert rounded(there, stored)
    np.testing.assert_array_equal(table.lookup([1, 2, 3]), there)
    with pytest.raises(ValueError, match="stored is"):
        het_tf.reset()
        het_tf.init(ps=server.address)
        embedding("float32")


@pytest.mark.parametrize("stored", FORMATS)
def test_checkpoints_keep_rows_and_say_when_they_convert(stored, tmp_path):
    layer = embedding(stored, rate=0.1)
    train(layer, 20)
    saved = het_tf.Table("t").scan()
    checkpoint.save(tmp_path / "c")
    for live in ("float32", stored, *FORMATS):
        het_tf.reset()
        embedding(live, rate=0.1)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", het_tf.HetWarning)
            checkpoint.restore(tmp_path / "c")
        said = [str(each.message) for each in said if issubclass(each.category, het_tf.HetWarning)]
        rows = het_tf.Table("t").scan()
        order = {"saved": np.argsort(saved["ids"]), "rows": np.argsort(rows["ids"])}
        found, expected = rows["rows"][order["rows"]], saved["rows"][order["saved"]]
        if live == stored:
            assert said == []
        else:
            assert said == [
                f"table 't' of the checkpoint was stored as {stored}, and is stored as {live} here"
            ]
        if live in ("float32", stored):
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, atol=2 * UNIT[live])


def test_what_is_refused():
    with pytest.raises(ValueError, match="stored is 'int4'; give one of"):
        het_tf.TableConfig("t", 4, stored="int4")
    with pytest.raises(ValueError, match=r"dim 1.*'bfloat16'"):
        het_tf.TableConfig("t", 1, stored="int8")
    with pytest.raises(ValueError, match="another optimizer"):
        het_tf.TableConfig("t", 4, optimizer=het_tf.optimizers.Ftrl(0.1), stored="bfloat16")


def test_a_configuration_keeps_it():
    config = het_tf.TableConfig("t", 4, stored="int8")
    assert het_tf.TableConfig.from_config(config.get_config()).spec == config.spec
    assert config.spec["stored"] == "int8"
    layer = embedding("bfloat16")
    assert type(layer).from_config(layer.get_config()).tables[0].stored == "bfloat16"
