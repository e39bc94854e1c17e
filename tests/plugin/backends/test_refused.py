"""What a backend of Keras cannot do is refused with a remedy, and changes nothing."""

import re

import keras
import numpy as np
import pytest
from backends_lib import BACKEND, DIM, apply, array, elsewhere, gradients, on_jax, on_torch, rows
from tools_lib import ROOT, python

import het_tf

IDS = np.array([1, 2], "int32")


def layer(**arguments):
    return het_tf.keras.Embedding(DIM, name="t", optimizer="sgd", **arguments)


USES_NO_TENSORFLOW = """
import sys, numpy as np, keras, het_tf
inputs = keras.Input((2,), dtype="int32")
model = keras.Model(inputs, keras.layers.Dense(1)(het_tf.keras.Embedding(4, "sum", name="t")(inputs)))
model.compile("adam", "mse")
model.fit(np.ones((4, 2), "int32"), np.ones((4, 1), "float32"), verbose=0,
          callbacks=[het_tf.callbacks.TableStats()])
assert het_tf.Table("t").size == 1 and het_tf.checkpoint and het_tf.Cache(rows=10)
assert not {one.partition(".")[0] for one in sys.modules} & {"tensorflow", "tf_keras"}
"""
WIDE_IDS_OF_JAX = """
import jax; jax.config.update("jax_enable_x64", True)
import keras, numpy as np, het_tf
inputs = keras.Input((), dtype="int64")
model = keras.Model(inputs, het_tf.keras.Embedding(4, name="t")(inputs))
model.compile("sgd", "mse")
model.fit(np.array([1, 2**40]), np.ones((2, 4), "float32"), verbose=0)
assert sorted(het_tf.Table("t").to_numpy()[0]) == [1, 2**40]
"""
OTHER = "jax" if BACKEND == "torch" else "torch"
ANOTHER_BACKEND = f"""
import keras, numpy as np, het_tf
embed = het_tf.keras.Embedding(4, name="t")
keras.config.set_backend({OTHER!r})
"""
IMPORTED = f"het_tf was imported with Keras' backend {BACKEND!r}, and now it is {OTHER!r}"


PROGRAMS = [
    (USES_NO_TENSORFLOW, BACKEND, ""),
    pytest.param(WIDE_IDS_OF_JAX, BACKEND, "", marks=on_jax),
    ("import het_tf; het_tf.Cache()", "numpy",
     "Keras' backend is 'numpy', and het_tf works with tensorflow, torch, jax; set KERAS_BACKEND"),
    ("import het_tf.keras", "tensorflow",
     "ImportError: het_tf needs TensorFlow (or KERAS_BACKEND=torch or jax), which does not import"),
    (ANOTHER_BACKEND + "embed(np.ones(2, 'int32'))", BACKEND, IMPORTED),
    (ANOTHER_BACKEND + "het_tf.keras.Embedding(3)", BACKEND, IMPORTED),
]  # fmt: skip


@elsewhere
@pytest.mark.parametrize(("code", "backend", "words"), PROGRAMS)
def test_programs(code, backend, words):
    done = python("-c", code, status=None, cwd="/", PYTHONPATH=str(ROOT), KERAS_BACKEND=backend)
    said = " ".join(done.stderr.split())
    assert words in said and bool(words) == (done.returncode != 0), said


BAD_IDS = [np.ones(2, "float32"), np.ones(2, bool), [[1, 2], [3]], [None], np.array(["a", 1], object)]


@pytest.mark.parametrize("bad", BAD_IDS, ids=str)
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


def of_tensorflow(kind):
    return type(kind, (), {})()


OF_TENSORFLOW = [
    *((lambda name=name: getattr(het_tf, name), ImportError,
       rf"het_tf\.{name} needs TensorFlow, and Keras' backend is '{BACKEND}'")
      for name in ("export", "inputs", "serving")),
    (lambda: het_tf.callbacks.TableStats("logs"), ImportError, "log_dir of TableStats needs TensorFlow"),
    (lambda: layer(cache=het_tf.Cache(device="gpu")), RuntimeError, r"give Cache\(device='cpu'\)"),
    *((lambda kind=kind: layer()(of_tensorflow(kind)), ValueError,
       f"feature 't': ids or weights are a {kind}.*padding_id")
      for kind in ("RaggedTensor", "SparseTensor")),
]  # fmt: skip


@elsewhere
@pytest.mark.parametrize(("call", "error", "words"), OF_TENSORFLOW)
def test_what_needs_tensorflow(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_model_that_nobody_can_follow():
    inputs = keras.Input((), dtype="int32")
    model = keras.Model(inputs, layer()(inputs), name="clicks")
    model.compile("sgd", "mse")
    said = "model is 'clicks', whose tables are in this process, where no follower can read them"
    publish = het_tf.callbacks.Publish()
    for call in (
        lambda: het_tf.publish(model),
        lambda: model.fit(IDS, np.ones((2, DIM)), callbacks=[publish], verbose=0),
    ):
        with pytest.raises(ValueError, match=f"{said}.*`het ps up`.*HET_PS or het_tf.init"):
            call()
    assert het_tf.Table("t").updates == 0


def ones(*shape):
    return keras.ops.ones(shape)


BAD_CALLS = [
    (lambda embed: embed(IDS[None], weights=ones(1, 3)), ValueError, "weights have shape"),
    (lambda embed: embed(ones(1, 3)), ValueError, "ids are float32; they must be integers or strings"),
    (lambda embed: embed(keras.ops.convert_to_tensor(np.int32(3))), ValueError, "a scalar"),
    (lambda embed: embed.anchor.assign(np.ones((64, 2), "float32")), RuntimeError, "is not an array"),
    (lambda embed: embed.anchor.assign(ones(64, 2)), RuntimeError, "an optimizer updates by its gradient"),
    (lambda embed: embed.anchor.assign_sub(ones(64, 2)), RuntimeError, "not moved by a gradient's multiple"),
    (lambda embed: het_tf.reset() or embed(IDS), Exception, "A lookup never makes a table"),
]


@pytest.mark.parametrize(("call", "error", "words"), BAD_CALLS)
def test_calls_and_values_that_do_not_fit(call, error, words):
    embed = layer(combiner="sum")
    start = rows()
    with pytest.raises(error, match=words):
        call(embed)
    assert not het_tf.tables() or (rows() == start).all()


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


@pytest.mark.skipif(BACKEND == "torch", reason="of other backends than PyTorch")
def test_modules_of_torch_elsewhere():
    with pytest.raises(ImportError, match=f"needs PyTorch as Keras' backend, and it is '{BACKEND}'"):
        het_tf.torch  # noqa: B018
    assert "torch" not in dir(het_tf)


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
    with pytest.raises(Exception, match="lookups of tables run in Python; compile the layers behind them"):
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
