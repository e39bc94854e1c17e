"""Lookups and gradients inside of JAX's programs: the foreign functions, their order, and other devices."""

import os
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from backends_lib import BACKEND, DIM, array, rows
from tools_lib import ROOT, python

import het_tf

pytestmark = pytest.mark.skipif(BACKEND != "jax", reason="of JAX")
SERVER = shutil.which("valkey-server") or shutil.which("redis-server")
IDS = np.array([[1, 2], [3, 4]], "int32")


def layer(**arguments):
    return het_tf.keras.Embedding(DIM, name="t", optimizer="sgd", **arguments)


def trains(embed):
    """Returns a step on ids, which gives the sum of their rows, and takes .01 off each element of a row."""
    import jax

    def loss(value, ids):
        with keras.StatelessScope(state_mapping=[(embed.anchor, value)]):
            return keras.ops.sum(embed(ids, training=True))

    def step(ids):
        found, ticket = jax.value_and_grad(loss)(embed.anchor.value, ids)
        embed.anchor.apply(ticket)
        return found

    return step


def program(code, *words, **variables):
    """Runs a program; returns what it prints."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests/lib", Path(__file__).parent)))
    return python("-c", code, *words, cwd="/", PYTHONPATH=paths, **variables).stdout


def test_a_program_for_a_cpu_calls_no_python(monkeypatch):
    """A registration or a check of devices that fails would silently leave the slow way."""
    import jax

    from het_tf.python.layer.backends import jax as backend

    step = trains(layer())
    step(IDS)
    monkeypatch.setattr(backend, "_host", None)
    text = jax.jit(step).lower(IDS).as_text()
    assert [text.count(f"@het_{name}(") for name in ("lookup", "keep", "apply")] == [1, 1, 1]
    # Only those that are never taken, each in a branch of its own.
    assert text.count("callback(") == text.count("stablehlo.case") == 3


def test_an_error_is_that_of_its_program_alone():
    """JAX gave it on with the order: all later programs, and het_tf.Table, failed of it until the end."""
    import jax
    import jax.numpy as jnp

    embed, weights = layer(), jnp.ones((256, 256))

    @jax.jit
    def large(ids):  # JAX waits for small programs anyhow
        x = jnp.ones((4096, 256))
        for _ in range(10):
            x = jnp.tanh(x @ weights)
        return x[:, :DIM].sum() + embed(ids).sum()

    assert np.isfinite(float(large(IDS)))
    het_tf.reset()
    with pytest.raises(jax.errors.JaxRuntimeError, match="no table 't'"):
        float(large(IDS))
    other = het_tf.keras.Embedding(DIM, name="other", optimizer="sgd")
    assert jax.jit(trains(other))(IDS).shape == () and het_tf.Table("other").size == 4
    model = keras.Sequential([keras.Input((), dtype="int32"), other, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(jax.errors.JaxRuntimeError, match="NaN or Inf; no row was changed"):
        model.fit(np.arange(64, dtype="int32"), np.full(64, np.nan, "float32"), verbose=0)
    assert np.isfinite(het_tf.Table("other").to_numpy()[1]).all()


def test_masks_and_tables_of_several_dims():
    """An error in the order of arrays, or in a mask's places, gives other rows."""
    import jax

    wide = het_tf.TableConfig("wide", 5)
    narrow = het_tf.FeatureConfig(het_tf.TableConfig("narrow", 1), padding_id=3)
    features = {"a": het_tf.FeatureConfig(wide), "b": narrow, "c": het_tf.FeatureConfig(wide)}
    embed = het_tf.keras.EmbeddingCollection(features)
    ids = {"a": IDS, "b": IDS[:1] + 1, "c": np.zeros((0, 2), "int32")}
    of_a = np.array([[True, False], [False, True]])
    for mask, kept in ((None, np.ones((2, 2))), ({"a": of_a, "b": None, "c": None}, of_a)):
        found = jax.jit(lambda ids, mask=mask: embed(ids, mask=mask))(ids)
        np.testing.assert_array_equal(array(found["a"]), rows("wide")[IDS] * kept[..., None])
        np.testing.assert_array_equal(array(found["b"]), rows("narrow")[[[2, 3]]] * [[[1], [0]]])
        assert found["c"].shape == (0, 2, 5)


def test_gradients_of_masked_ids_go_nowhere():
    import jax

    embed = layer()
    start = rows()
    weights = np.array([[[1], [2]], [[4], [8]]], "float32")

    @jax.jit
    def step(value, mask):
        def loss(value):
            with keras.StatelessScope(state_mapping=[(embed.anchor, value)]):
                return keras.ops.sum(embed(IDS, mask=mask, training=True) * weights)

        embed.anchor.apply(jax.grad(loss)(value))

    step(embed.anchor.value, np.array([[True, False], [True, False]]))
    moved = rows() - start
    np.testing.assert_allclose(moved[[1, 3]], [[-0.01] * DIM, [-0.04] * DIM], atol=1e-6)
    np.testing.assert_array_equal(moved[[0, 2, 4]], 0)


def test_loops_and_branches_of_jax_keep_the_order():
    """A lookup without JAX's token would read before an update, or be left out."""
    import jax

    embed = layer()
    step = trains(embed)
    first = float(rows()[1:5].sum())
    many = jax.jit(lambda many: jax.lax.scan(lambda carry, ids: (carry, step(ids)), 0, many)[1])
    expected = first - 0.01 * 4 * DIM * np.arange(5)
    np.testing.assert_allclose(array(many(np.stack([IDS] * 5))), expected, atol=1e-5)
    maybe = jax.jit(lambda ids, do: jax.lax.cond(do, lambda: step(ids), lambda: 0.0))
    for do in (True, False):
        maybe(IDS, do)
    np.testing.assert_allclose(rows()[1:5].sum(), first - 0.01 * 4 * DIM * 6, atol=1e-5)


def test_lookups_see_the_rows_before_and_behind_an_update():
    """XLA runs what is ready: without JAX's token the update would not wait for ids that come late."""
    import jax

    embed = layer()
    step = trains(embed)

    @jax.jit
    def both(ids, x):
        for _ in range(5):
            x = x @ x / 400
        before = keras.ops.sum(embed(ids + (x[0, 0] * 0).astype("int32"), training=False))
        step(ids)
        return before, keras.ops.sum(embed(ids, training=False))

    before, after = both(IDS, np.ones((400, 400), "float32"))
    np.testing.assert_allclose(float(before - after), 0.01 * 4 * DIM, atol=1e-5)


def test_rows_are_read_behind_steps_that_still_run():
    """JAX returns from a step whose inputs are still computed: what asks the engine waits for it."""
    import jax

    step = trains(layer())
    start = rows()
    late = jax.jit(lambda ids, x: step(ids + x[0, 0].astype("int32") * 0))

    @jax.jit
    def long(x):
        for _ in range(6):
            x = x @ x / 1000
        return x

    for number in range(1, 4):  # the first compiles
        late(IDS, long(jax.numpy.ones((1000, 1000))))
        np.testing.assert_allclose(rows()[1:5], start[1:5] - 0.01 * number, atol=1e-6)


def test_constant_ids_of_a_compiled_step_are_looked_up_in_every_step():
    import jax

    step = trains(layer())
    start = rows()
    constant = jax.jit(lambda: step(IDS))
    for number in range(3):
        expected = start[1:5].sum() - 0.01 * number * 4 * DIM
        np.testing.assert_allclose(array(constant()), expected, atol=1e-5)
    np.testing.assert_allclose(rows()[1:5], start[1:5] - 0.03, atol=1e-6)


def test_what_is_refused():
    import jax

    embed = layer()
    for function in (jax.vmap(embed), jax.jit(jax.vmap(embed))):
        with pytest.raises(RuntimeError, match=r"a lookup of tables under jax\.vmap.*outside of vmap"):
            function(IDS[:, None])

    def loss(value):
        with keras.StatelessScope(state_mapping=[(embed.anchor, value)]):
            return keras.ops.sum(embed(IDS) ** 2)

    second = jax.grad(lambda value: keras.ops.sum(jax.grad(loss)(value)))
    for function in (second, jax.jit(second)):
        with pytest.raises(RuntimeError, match="which has no derivative"):
            function(embed.anchor.value)
    with pytest.raises(ValueError, match=r"some are beyond 2\*\*31; JAX would cut them to 32 bits"):
        embed(np.array([1, 2**40]))
    with pytest.raises(ValueError, match=r"ids are declared int64; JAX would cut them.*or declare int32"):
        embed(keras.Input((), dtype="int64"))
    np.testing.assert_array_equal(array(embed(np.array([1, 2]))), rows()[1:3])
    inputs = keras.Input((2,), dtype="int32")
    model = keras.Model(inputs, embed(inputs))
    model.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=2), "mse")
    with pytest.raises(NotImplementedError, match="ema_overwrite_frequency is 2 with tables on JAX"):
        model.fit(IDS, np.ones((2, 2, DIM), "float32"), verbose=0)
    assert het_tf.Table("t").updates == 0


TWO_PROGRAMS = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import jax, numpy as np
from test_jax_programs import DIM, IDS, layer, rows, trains
embed = layer()
step = trains(embed)
first, start = jax.jit(step), float(rows()[1:5].sum())
second, long = jax.jit(lambda ids: 2 * step(ids)), jax.jit(lambda x: x @ x / 300)
x, found = np.ones((300, 300), "float32"), []
for _ in range(10):
    x = long(x)
    found += [first(IDS + (x[0, 0] * 0).astype("int32")), second(IDS)]
expected = start - 0.01 * 4 * DIM * np.arange(20)
np.testing.assert_allclose(np.array(found) / np.tile([1, 2], 10), expected, atol=1e-5)
"""


def test_two_programs_that_run_at_once_on_one_core_end_in_order():
    """A function that held XLA's only thread while it waits for another program would never return."""
    program(TWO_PROGRAMS)


DEVICES = """
import jax, keras, numpy as np, het_tf
if len(jax.devices()) > 1:
    keras.distribution.set_distribution(keras.distribution.DataParallel())
keras.utils.set_random_seed(0)
inputs = keras.Input((2,), dtype="int32")
hidden = keras.layers.Flatten()(het_tf.keras.Embedding(3, name="t", padding_id=0)(inputs))
model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
model.compile(keras.optimizers.SGD(0.1), "mse")
ids = np.arange(32, dtype="int32").reshape(16, 2) % 7
model.fit(ids, np.ones((16, 1), "float32"), batch_size=4, epochs=2, shuffle=False, verbose=0)
print(len(jax.devices()), het_tf.Table("t").updates, *het_tf.Table("t").lookup(np.arange(7)).ravel())
"""


def test_a_program_of_several_devices_trains_what_that_of_one_trains():
    """XLA would run a foreign function on every device, so that each row learns twice."""
    found = []
    for devices in (1, 2):
        flags = f"--xla_force_host_platform_device_count={devices}"
        said = np.array(program(DEVICES, XLA_FLAGS=flags).split(), float)
        assert said[0] == devices and said[1] == 8
        found.append(said[2:])
    np.testing.assert_allclose(*found, atol=1e-6)


KEPT = """
import sys, jax, numpy as np
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
import het_tf
embed = het_tf.keras.Embedding(3, name="t", optimizer="sgd")
het_tf.Table("t").assign(np.arange(3), np.full((3, 3), float(sys.argv[2]), "float32"))
print(*np.asarray(jax.jit(lambda ids: embed(ids, training=False))(np.arange(3, dtype="int32"))).ravel())
"""


def test_a_program_from_jaxs_cache_reads_the_tables_of_its_process(tmp_path):
    """A call that has an address in its program would be missing in another process, or another one there."""
    kept = []
    for value in (3.0, 4.0):
        assert program(KEPT, tmp_path, value).split() == [str(value)] * 9
        kept.append({one.name for one in tmp_path.iterdir() if one.name.endswith("-cache")})
    # JAX keeps others there, but none that has a callback, taken or not.
    assert kept[0] == kept[1] and kept[0] and not any("lambda" in name for name in kept[0])


INTERRUPTED = """
import os, signal, threading
import jax, numpy as np, het_tf
from het_tf.ext.ps.python.redis_server import LocalServer
with LocalServer.start(unix=True) as server:
    het_tf.init(ps=server.address)
    embed = het_tf.keras.Embedding(3, name="t", optimizer="sgd")
    look = jax.jit(lambda ids: embed(ids, training=False))
    jax.block_until_ready(look(np.array([1, 2], "int32")))
    os.kill(server.pid, signal.SIGSTOP)
    threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        jax.block_until_ready(look(np.array([3, 4], "int32")))
    except (KeyboardInterrupt, jax.errors.JaxRuntimeError) as error:
        print("ended by", type(error).__name__)
    os.kill(server.pid, signal.SIGCONT)
    assert look(np.array([1, 2], "int32")).shape == (2, 3)
"""


@pytest.mark.skipif(SERVER is None, reason="there is no redis-server nor valkey-server")
def test_ctrl_c_ends_a_program_that_waits_for_a_server():
    assert "ended by" in program(INTERRUPTED)
