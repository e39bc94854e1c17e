"""What a backend of Keras cannot do is refused with a remedy, and changes nothing."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from backends_lib import BACKEND, DIM, apply, array, gradients, on_jax, rows

import het_tf
from het_tf.python import backend

ROOT = Path(__file__).parents[3]
IDS = np.array([1, 2], "int32")
elsewhere = pytest.mark.skipif(BACKEND == "tensorflow", reason="of other backends than TensorFlow")
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="of PyTorch")


def layer(**arguments):
    return het_tf.keras.Embedding(DIM, name="t", optimizer="sgd", **arguments)


def program(code, **variables):
    """What a program says on stderr, in one line; "": it went well."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": BACKEND, **variables}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=300, cwd="/"
    )
    assert done.returncode == 0 or done.stderr
    return "" if done.returncode == 0 else " ".join(done.stderr.split())


@elsewhere
def test_no_tensorflow_is_imported():
    code = """
import sys, numpy as np, keras, het_tf
inputs = keras.Input((2,), dtype="int32")
model = keras.Model(inputs, keras.layers.Dense(1)(het_tf.keras.Embedding(4, "sum", name="t")(inputs)))
model.compile("adam", "mse")
model.fit(np.ones((4, 2), "int32"), np.ones((4, 1), "float32"), verbose=0,
          callbacks=[het_tf.callbacks.TableStats()])
assert het_tf.Table("t").size == 1 and het_tf.checkpoint and het_tf.Cache(rows=10)
assert not {one.partition(".")[0] for one in sys.modules} & {"tensorflow", "tf_keras"}
"""
    assert program(code) == ""


@pytest.mark.parametrize(
    "bad",
    [np.ones(2, "float32"), np.ones(2, bool), [[1, 2], [3]], [None], np.array(["a", 1], object)],
    ids=str,
)
def test_the_remedy_for_ids_works_on_this_backend(bad):
    with pytest.raises(ValueError, match=r"feature 't': ids (are|hold)") as error:
        layer()(bad)
    text = str(error.value)
    if BACKEND != "tensorflow":
        assert not re.search(r"(?<!het_)tf\.", text)
    for declared in re.findall(r"keras\.Input\(shape, dtype=\"(\w+)\"\)", text):
        assert layer()(keras.Input((), dtype=declared)).shape[-1] == DIM
    for dtype in re.findall(r"keras\.ops\.cast\(ids, \"(\w+)\"\)", text):
        assert layer()(keras.ops.cast(bad, dtype)).shape == (2, DIM)


@elsewhere
@pytest.mark.parametrize("name", ["export", "inputs", "serving"])
def test_names_that_need_tensorflow(name):
    with pytest.raises(
        ImportError, match=rf"het_tf\.{name} needs TensorFlow, and Keras' backend is '{BACKEND}'"
    ):
        getattr(het_tf, name)


@elsewhere
def test_arguments_that_need_tensorflow(tmp_path):
    with pytest.raises(ImportError, match="log_dir of TableStats needs TensorFlow"):
        het_tf.callbacks.TableStats(tmp_path)
    with pytest.raises(RuntimeError, match=r"give Cache\(device='cpu'\)"):
        layer(cache=het_tf.Cache(device="gpu"))


def test_a_model_that_nobody_can_follow():
    inputs = keras.Input((), dtype="int32")
    model = keras.Model(inputs, layer()(inputs))
    with pytest.raises(ValueError, match="tables are in this process, where no follower can read them"):
        het_tf.publish(model)
    with pytest.raises(ValueError, match="tables are in this process, where no follower can read them"):
        model.compile("sgd", "mse")
        model.fit(IDS, np.ones((2, DIM)), callbacks=[het_tf.callbacks.Publish()], verbose=0)
    assert het_tf.Table("t").updates == 0


@elsewhere
@pytest.mark.parametrize("kind", ["RaggedTensor", "SparseTensor"])
def test_inputs_of_tensorflow(kind):
    with pytest.raises(ValueError, match=f"feature 't': ids or weights are a {kind}.*padding_id"):
        layer()(type(kind, (), {})())


def test_shapes_that_do_not_fit():
    embed = layer(combiner="sum")
    ids = keras.ops.convert_to_tensor(IDS[None])
    with pytest.raises(ValueError, match="weights have shape"):
        embed(ids, weights=keras.ops.ones((1, 3)))
    with pytest.raises(ValueError, match="ids are float32; they must be integers or strings"):
        embed(keras.ops.ones((1, 3)))
    with pytest.raises(ValueError, match="a scalar"):
        embed(keras.ops.convert_to_tensor(np.int32(3)))


def test_values_of_the_variable():
    embed = layer()
    start = rows()
    with pytest.raises(RuntimeError, match="is not an array"):
        embed.anchor.assign(np.ones((64, 2), "float32"))
    with pytest.raises(RuntimeError, match="an optimizer updates by its gradient"):
        embed.anchor.assign(keras.ops.ones((64, 2)))
    with pytest.raises(RuntimeError, match="are not moved by a gradient's multiple"):
        embed.anchor.assign_sub(keras.ops.ones((64, 2)))
    np.testing.assert_array_equal(rows(), start)


def test_a_gradient_that_is_not_kept_any_more():
    embed, optimizer = layer(), keras.optimizers.SGD(1.0)

    def behind(others):
        """A gradient, and then so many others."""
        all_of_them = [
            gradients(lambda: keras.ops.sum(embed(IDS)), embed.trainable_variables)[1]
            for _ in range(others + 1)
        ]
        return all_of_them[0]

    apply(optimizer, behind(63), embed.trainable_variables)
    start = rows()
    with pytest.raises(Exception, match=r"is applied that is not kept any more.*newest 64 gradients"):
        apply(optimizer, behind(256), embed.trainable_variables)
    np.testing.assert_array_equal(rows(), start)
    assert het_tf.Table("t").updates == 1


def test_tables_that_are_gone():
    embed = layer()
    het_tf.reset()
    with pytest.raises(Exception, match="A lookup never makes a table"):
        embed(IDS)


# --- other backends -----------------------------------------------------------------------------------


@elsewhere
def test_a_backend_that_het_tf_lacks():
    said = program("import het_tf; het_tf.Cache()", KERAS_BACKEND="numpy")
    assert said.endswith(
        "Keras' backend is 'numpy', and het_tf works with tensorflow, torch, jax; set KERAS_BACKEND"
    )


@elsewhere
def test_no_tensorflow_where_it_is_the_backend():
    said = program("import het_tf.keras", KERAS_BACKEND="tensorflow")
    assert (
        "ImportError: het_tf needs TensorFlow (or KERAS_BACKEND=torch or jax), which does not import" in said
    )


@elsewhere
def test_another_backend_in_the_same_process():
    other = {"torch": "jax", "jax": "torch"}[BACKEND]
    for use in ("embed(np.ones(2, 'int32'))", "het_tf.keras.Embedding(3)"):
        code = f"""
import keras, numpy as np, het_tf
embed = het_tf.keras.Embedding(4, name="t")
keras.config.set_backend({other!r})
{use}
"""
        said = program(code)
        assert f"het_tf was imported with Keras' backend {BACKEND!r}, and now it is {other!r}" in said


@pytest.mark.skipif(BACKEND == "torch", reason="of other backends than PyTorch")
def test_modules_of_torch_elsewhere():
    with pytest.raises(ImportError, match=f"needs PyTorch as Keras' backend, and it is '{BACKEND}'"):
        het_tf.torch  # noqa: B018
    assert "torch" not in dir(het_tf)


# --- PyTorch ------------------------------------------------------------------------------------------


@on_torch
def test_a_second_derivative_of_torch():
    import torch

    embed = layer()
    value = (embed(IDS) ** 2).sum()
    (ticket,) = torch.autograd.grad(value, [embed.anchor.value], create_graph=True)
    with pytest.raises(RuntimeError, match="which has no derivative"):
        ticket.sum().backward()


@on_torch
def test_ids_that_were_changed_in_place():
    import torch

    embed = layer()
    ids = torch.tensor([1, 2])
    value = embed(ids).sum()
    ids += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


@on_torch
def test_torch_compile():
    import torch

    embed = layer()
    ids = torch.tensor([1, 2])
    with pytest.raises(
        Exception, match="lookups of tables run in Python; compile the layers behind them alone"
    ):
        torch.compile(lambda x: embed(x) * 2, fullgraph=True, backend="eager")(ids)
    found = torch.compile(lambda x: embed(x) * 2, backend="eager")(ids)
    np.testing.assert_array_equal(array(found), 2 * rows()[1:3])


class Lookups:
    """A data set of torch that looks rows up, in a process of a DataLoader."""

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return het_tf.Table("t").lookup([index])


@on_torch
def test_a_fork_of_a_data_loader():
    import torch

    layer()(IDS)
    with pytest.raises(RuntimeError, match="forked"):
        list(torch.utils.data.DataLoader(Lookups(), num_workers=1, multiprocessing_context="fork"))


@on_torch
def test_ids_elsewhere_are_copied_with_one_warning(monkeypatch):
    """No GPU here: a tensor whose device says otherwise."""
    from het_tf.python.layer.backends import torch as ours
    from het_tf.python.table.notes import HetWarning

    class Elsewhere:
        def __init__(self, tensor):
            self.tensor, self.device = tensor, type("Device", (), {"type": "cuda"})()

        def cpu(self):
            return self.tensor

    import torch

    ids = torch.tensor([1])
    with pytest.warns(HetWarning, match="every lookup copies ids, rows and gradients") as found:
        assert ours._here(Elsewhere(ids)) is ids and ours._here(Elsewhere(ids)) is ids
    assert len(found) == 1


# --- JAX ----------------------------------------------------------------------------------------------


@on_jax
def test_wide_ids_of_jax():
    embed = layer()
    with pytest.raises(ValueError, match=r"some are beyond 2\*\*31; JAX would cut them to 32 bits"):
        embed(np.array([1, 2**40]))
    with pytest.raises(ValueError, match=r"ids are declared int64; JAX would cut them.*or declare int32"):
        embed(keras.Input((), dtype="int64"))
    np.testing.assert_array_equal(array(embed(np.array([1, 2]))), rows()[1:3])
    code = """
import jax; jax.config.update("jax_enable_x64", True)
import keras, numpy as np, het_tf
inputs = keras.Input((), dtype="int64")
model = keras.Model(inputs, het_tf.keras.Embedding(4, name="t")(inputs))
model.compile("sgd", "mse")
model.fit(np.array([1, 2**40]), np.ones((2, 4), "float32"), verbose=0)
assert sorted(het_tf.Table("t").to_numpy()[0]) == [1, 2**40]
"""
    assert program(code) == ""


@on_jax
def test_vmap():
    import jax

    embed = layer()
    for function in (jax.vmap(embed), jax.jit(jax.vmap(embed))):
        with pytest.raises(RuntimeError, match=r"a lookup of tables under jax\.vmap.*outside of vmap"):
            function(IDS[:, None])


@on_jax
def test_a_second_derivative_of_jax():
    import jax

    embed = layer()

    def loss(value):
        with keras.StatelessScope(state_mapping=[(embed.anchor, value)]):
            return keras.ops.sum(embed(IDS) ** 2)

    def inner(value):
        return keras.ops.sum(jax.grad(loss)(value))

    for function in (jax.grad(inner), jax.jit(jax.grad(inner))):
        with pytest.raises(RuntimeError, match="which has no derivative"):
            function(embed.anchor.value)


@on_jax
def test_averages_that_overwrite_weights_of_jax():
    inputs = keras.Input((), dtype="int32")
    model = keras.Model(inputs, layer()(inputs))
    model.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=2), "mse")
    with pytest.raises(NotImplementedError, match="ema_overwrite_frequency is 2 with tables on JAX"):
        model.fit(IDS, np.ones((2, DIM), "float32"), verbose=0)
    assert het_tf.Table("t").updates == 0


@on_jax
def test_rows_are_read_behind_steps_that_still_run():
    """JAX returns from a step whose inputs are still computed: what asks the engine waits for it."""
    import jax

    embed = layer()
    start = rows()

    @jax.jit
    def long(x):
        for _ in range(6):
            x = x @ x / 1000
        return x

    @jax.jit
    def step(value, ids, x):
        def loss(value):
            with keras.StatelessScope(state_mapping=[(embed.anchor, value)]):
                return keras.ops.sum(embed(ids + x[0, 0].astype("int32") * 0, training=True))

        embed.anchor.apply(jax.grad(loss)(value))

    x = jax.numpy.ones((1000, 1000))
    for number in range(1, 4):  # the first compiles
        step(embed.anchor.value, IDS, long(x))
        np.testing.assert_allclose(rows()[1:3], start[1:3] - 0.01 * number, atol=1e-6)


@on_jax
def test_constant_ids_of_a_compiled_step_are_looked_up_in_every_step():
    import jax

    embed = layer()
    start = rows()

    @jax.jit
    def step(value):
        def loss(value):
            with keras.StatelessScope(state_mapping=[(embed.anchor, value)]):
                return keras.ops.sum(embed(IDS, training=True))

        value, ticket = jax.value_and_grad(loss)(value)
        embed.anchor.apply(ticket)
        return value

    for number in range(3):
        expected = start[1:3].sum() - 0.01 * number * 2 * DIM
        np.testing.assert_allclose(array(step(embed.anchor.value)), expected, atol=1e-5)
    np.testing.assert_allclose(rows()[1:3], start[1:3] - 0.03, atol=1e-6)


@on_jax
def test_an_error_in_a_compiled_step_says_what_it_is():
    import jax

    embed = layer()
    look = jax.jit(lambda ids: embed(ids, training=False))
    np.testing.assert_array_equal(array(look(IDS)), rows()[1:3])
    het_tf.reset()
    with pytest.raises(jax.errors.JaxRuntimeError, match="A lookup never makes a table"):
        jax.block_until_ready(look(IDS))
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        backend.settle()
    layer()(IDS)  # later calls work
