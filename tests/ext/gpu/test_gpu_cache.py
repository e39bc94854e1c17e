"""Layers whose cache is in the memory of a GPU: the ops run there, and everything equals the CPU's.

The checks run in a process of their own, where a pluggable device and the ops' kernels for GPUs stay: on a
device of type GPU in poisoned host memory (tests/ext/gpu/pluggable), which libhet_cuda_host.so works, or with
HET_TEST_GPU=real on TensorFlow's own by libhet_cuda.so: tools/gpu_check_tf.sh. Layers are made twice, in the
namespaces "cpu" and "gpu", and must agree.
"""

import contextlib
import ctypes
import functools
import os
import re
import tempfile
from pathlib import Path

import gpu_lib
import numpy as np
import pytest
import ranks
import redis_lib
import tensorflow as tf
from floats_lib import MODEL, assert_close
from gpu_lib import REAL
from rules_lib import keras, learn

import het_tf
from het_tf.ext.gpu.python import device
from het_tf.python.layer.backends.tensorflow import OPS_DEVICE
from het_tf.python.session import connection, native
from het_tf.python.table import registry

MISSING = gpu_lib.what_is_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
PLACES = ("cpu", "gpu")
CHECKS = {}


def start():
    if REAL:
        tf.config.experimental.enable_tensor_float_32_execution(False)
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
    else:
        from tensorflow.python.framework import load_library

        load_library.load_pluggable_device_library(os.environ["HET_TEST_POISONED_GPU"])
    device.GPU_OPS = Path(os.environ["HET_TEST_GPU_OPS"])
    tf.debugging.set_log_device_placement(True)  # for devices_of
    tf.config.set_soft_device_placement(True)
    device.start()
    connection.connect()


if "HET_TEST_GPU_OPS" in os.environ:
    start()


def elsewhere():
    """Where the rest of a model runs: of some ops tensorflow-cpu gives any GPU kernels that work on a CPU."""
    return contextlib.nullcontext() if REAL else tf.device("/device:CPU:0")


def embedding(place, dim=8, cache=None, **options):
    with het_tf.namespace(place):
        cache = het_tf.Cache(**{"rows": 512, "wire": "float32", **(cache or {}), "device": place})
        return het_tf.keras.Embedding(dim, table="t", cache=cache, **options)


def train(layer, ids, seed=0):
    """One step with a loss whose gradients differ from row to row. Returns the rows."""
    found = []

    def loss():
        found.append(layer(ids, training=True))
        factors = np.random.default_rng(seed).normal(size=[int(n) for n in found[0].shape])
        return tf.reduce_sum(found[0] * factors.astype("float32"))

    learn(layer, loss)
    return found[0]


def table_of(place):
    table = het_tf.Table("t", namespace=place)
    table.flush()
    rows = table.scan()
    return rows["ids"], rows["rows"]


def compare_tables():
    ids, rows = table_of("cpu")
    gpu_ids, gpu_rows = table_of("gpu")
    assert len(ids) > 0
    np.testing.assert_array_equal(ids, gpu_ids)
    same(rows, gpu_rows)


def same(a, b, exact=True):
    """Bit-equal; where `exact` is false up to the order of sums, on a real GPU also up to its own."""
    if REAL:
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    elif exact:
        np.testing.assert_array_equal(a, b)
    else:
        assert_close(a, b, MODEL)


def raises(kind, text, function, *arguments, **named):
    with ranks.refused(kind, text) as raised:
        function(*arguments, **named)
    return str(raised.value)


def devices_of(function, *arguments):
    """Runs a new tf.function; returns where TensorFlow says that it has placed ops, by their type."""
    flush = ctypes.CDLL(None).fflush  # TensorFlow writes with C's printf
    with tempfile.TemporaryFile("w+") as said:
        flush(None)
        stdout = os.dup(1)
        os.dup2(said.fileno(), 1)
        try:
            function(*arguments)
        finally:
            flush(None)
            os.dup2(stdout, 1)
            os.close(stdout)
        said.seek(0)
        text = said.read()
    found = {}
    for op, place in re.findall(r"\((\w+)\): /\S+/device:(\w+:\d+)", text):
        found.setdefault(op, set()).add(place)
    return found


def fresh():
    for namespace, name in registry.keys():  # a server would keep them
        het_tf.Table(name, namespace=namespace).drop()
    for namespace in {"", *registry.namespaces()}:
        het_tf.reset(namespace)
    keras.backend.clear_session(free_memory=False)


def check(function):
    @functools.wraps(function)
    def run():
        try:
            function()
        finally:
            fresh()

    CHECKS[function.__name__] = run
    return run


# --- steps ----------------------------------------------------------------------------------------


@check
def steps_equal_those_on_the_cpu():
    opt = het_tf.optimizers
    for optimizer in (opt.SGD(0.1), opt.RowWiseAdagrad(0.1), opt.Adam(0.01), opt.Ftrl(0.1)):
        rng = np.random.default_rng(1)
        layers = {place: embedding(place, optimizer=optimizer, padding_id=0) for place in PLACES}
        for step in range(5):
            ids = tf.constant(rng.integers(0, 100, size=(4, 30)))
            rows = {place: train(layers[place], ids, step) for place in PLACES}
            assert all(rows[place].device.endswith(f"{place.upper()}:0") for place in PLACES)
            assert rows["gpu"].shape == (4, 30, 8)
            same(rows["cpu"].numpy(), rows["gpu"].numpy())
        assert not np.any(layers["gpu"](tf.zeros([1], tf.int64)).numpy()), "padding reads zeros"
        compare_tables()
        fresh()


@check
def both_ops_run_on_the_device_in_a_function():
    ids = tf.constant([1, 2, 2, 3], tf.int64)
    for place in PLACES:
        layer = embedding(place)
        # Neither what TensorFlow prefers nor the scope of the caller decides, but where the cache is.
        for scope in (None, "/device:CPU:0", "/device:GPU:0"):
            with tf.device(scope):
                step = tf.function(lambda ids, layer=layer: learn(layer, lambda: layer(ids, training=True)))
                found = devices_of(step, ids)
            for op in ("HetLookup", "HetKeepGrad", "HetApplyGrad"):
                assert found[op] == {f"{place.upper()}:0"}, (op, place, scope, found)
    compare_tables()


@check
def strings_are_hashed_on_the_cpu():
    """There is no kernel for GPUs: without soft placement TensorFlow refused the layer in a GPU's scope."""
    layer, ids = embedding("gpu"), tf.constant(["a", "b", "a"])
    rows = layer(ids)
    tf.config.set_soft_device_placement(False)
    try:
        with tf.device("/GPU:0"):
            np.testing.assert_array_equal(layer(ids), rows)
    finally:
        tf.config.set_soft_device_placement(True)


@check
def an_op_that_trains_runs_where_the_cache_is():
    ids, hints = [tf.constant([3, 4, 3], tf.int64)], [tf.zeros([0, 8])]
    invalid = tf.errors.InvalidArgumentError

    def lookup(place, training):
        call = embedding(place)._het_state.call
        attributes = {"tables": call.tables, "specs": call.specs}
        out = native.ops.het_lookup(ids=ids, anchor=0.0, hints=hints, training=training, **attributes)
        return {"ids": ids, "grads": out.rows, "token": out.token, "norm": 1.0, **attributes}

    with tf.device("/device:GPU:0"):
        raises(invalid, "place it on the CPU", lookup, "cpu", True)
    with tf.device("/device:CPU:0"):
        lookup("gpu", False)
        raises(invalid, "place it on the GPU", native.ops.het_keep_grad, **lookup("gpu", True))


@check
def several_features_and_tables():
    layers = {}
    for place in PLACES:
        user = het_tf.TableConfig("user", 4, optimizer="adagrad")
        item = het_tf.TableConfig("t", 12, optimizer=het_tf.optimizers.SGD(momentum=0.9))
        with het_tf.namespace(place):
            layers[place] = het_tf.keras.EmbeddingCollection(
                {
                    "user": het_tf.FeatureConfig(user),
                    "item": het_tf.FeatureConfig(item),
                    "history": het_tf.FeatureConfig(item, combiner="mean"),
                    "words": het_tf.FeatureConfig(item, combiner="sum", padding_id=-1),
                },
                cache=het_tf.Cache(rows=256, wire="float32", device=place),
            )
    inputs = {
        "user": tf.constant(["ann", "bob", "ann"]),  # strings are hashed
        "item": tf.constant([1, 2, 1], tf.int32),
        "history": tf.ragged.constant([[1, 2, 3], [], [9]], dtype=tf.int64),
        "words": tf.constant([[1, -1], [-1, -1], [5, 5]], tf.int64),
    }
    for _ in range(3):
        outputs = {}
        for place, layer in layers.items():

            def loss(place=place, layer=layer, outputs=outputs):
                outputs[place] = layer(inputs, training=True)
                return tf.add_n([tf.reduce_sum(tf.square(rows)) for rows in outputs[place].values()])

            learn(layer, loss)
        for name in inputs:
            same(outputs["cpu"][name].numpy(), outputs["gpu"][name].numpy())
    empty = layers["gpu"]({**inputs, "history": tf.ragged.constant([[], [], []], dtype=tf.int64)})
    assert not np.any(empty["history"].numpy())
    compare_tables()


# --- models ---------------------------------------------------------------------------------------


def model_of(place):
    keras.utils.set_random_seed(3)
    with elsewhere():
        dense = [keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1, dtype="float32")]
        inputs, rows = keras.Input((3,), dtype="int64"), embedding(place)
        model = keras.Sequential([inputs, rows, keras.layers.Flatten(), *dense])
        model.compile("adam", "mse")
    return model


def data(rows=96):
    rng = np.random.default_rng(5)
    return rng.integers(0, 50, size=(rows, 3)), rng.normal(size=(rows, 1)).astype("float32")


def fitted(place):
    model = model_of(place)
    with elsewhere():
        history = model.fit(*data(), batch_size=16, epochs=2, shuffle=False, verbose=0).history["loss"]
    return model, history


@check
def fit_evaluate_and_predict():
    found = {}
    for place in PLACES:
        model, history = fitted(place)
        assert model.jit_compile is False  # "auto" would compile for a GPU; the layers refuse
        with elsewhere():
            found[place] = (history, model.evaluate(*data(), verbose=0), model.predict(data()[0], verbose=0))
        assert history[-1] < history[0]
    for cpu, gpu in zip(found["cpu"], found["gpu"], strict=True):
        same(cpu, gpu)
    stats = het_tf.Table("t", namespace="gpu").stats()["cache"]
    assert stats["device"] == "gpu", stats
    assert "device" not in het_tf.Table("t", namespace="cpu").stats()["cache"]
    compare_tables()


@check
def mixed_float16_scales_and_skips():
    results = {}
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        for place in PLACES:
            model, history = fitted(place)
            assert type(model.optimizer).__name__ == "LossScaleOptimizer"
            # Its first scale, 2^15, overflows in float16: steps that both sit out.
            before = table_of(place)[1]
            with elsewhere():
                model.optimizer.dynamic_scale.assign(2.0**40)
                model.fit(*data(16), batch_size=16, epochs=1, verbose=0)
            same(before, table_of(place)[1])
            assert float(model.optimizer.dynamic_scale) < 2.0**40
            results[place] = history
    finally:
        keras.mixed_precision.set_global_policy("float32")
    same(results["cpu"], results["gpu"])
    compare_tables()


@check
def weights_and_checkpoints_come_back():
    folder, (model, _) = ranks.place(), fitted("gpu")
    with elsewhere():
        before, rows = model.predict(data()[0], verbose=0), table_of("gpu")
        model.save_weights(folder / "model.weights.h5")
        tf.train.Checkpoint(model=model).write(f"{folder}/tf")
        het_tf.checkpoint.save(folder / "het", model, namespace="gpu")
        for restore in (
            lambda: model.load_weights(folder / "model.weights.h5"),
            lambda: tf.train.Checkpoint(model=model).restore(f"{folder}/tf"),
            lambda: het_tf.checkpoint.restore(folder / "het", model, namespace="gpu"),
        ):
            model.fit(*data(), batch_size=16, epochs=1, verbose=0)
            assert np.abs(model.predict(data()[0], verbose=0) - before).max() > 1e-4
            restore()
            same(before, model.predict(data()[0], verbose=0), exact=False)
            for one, other in zip(rows, table_of("gpu"), strict=True):
                same(one, other)


@check
def a_cache_that_may_be_anywhere_is_on_the_gpu():
    automatic = het_tf.keras.Embedding(4, name="a", cache=het_tf.Cache(device="auto"))
    assert automatic(tf.constant([1, 5], tf.int64)).device.endswith("GPU:0")


@check
def a_cache_of_so_many_bytes():
    layer = embedding("gpu", 16, cache={"bytes": 1 << 20, "rows": None})
    layer(tf.constant([1], tf.int64))
    cache = het_tf.Table("t", "gpu").stats()["cache"]
    assert 0 < cache["device_bytes"] <= 1 << 20, cache
    assert cache["capacity"] * 16 * 4 > 1 << 18, cache
    with ranks.refused(ValueError, "cache.bytes is 9; table 'u'"):
        het_tf.keras.Embedding(16, table="u", cache=het_tf.Cache(device="gpu", bytes=9))


# --- what is refused ------------------------------------------------------------------------------


@check
def bad_inputs_are_refused_as_on_the_cpu():
    texts = {}
    for place in PLACES:
        layer = embedding(place)
        train(layer, tf.constant([1, 2], tf.int64))
        before = table_of(place)[1]
        call = layer._het_state.call
        attributes = {"tables": call.tables, "specs": call.specs}
        ids = [tf.constant([1, 2], tf.int64)]
        said = []

        def lookup(hint=(0, 8), training=True, ids=ids, attributes=attributes, place=place):
            more = {"anchor": 0.0, "hints": [tf.zeros(hint)], "training": training, **attributes}
            with tf.device(OPS_DEVICE[place]):
                return native.ops.het_lookup(ids=ids, **more)

        def apply(token, grads=None, rates=(0.1,), ids=ids, attributes=attributes, place=place):
            more = {"token": token, "norm": 1.0, **attributes}
            with tf.device(OPS_DEVICE[place]):
                grads = [tf.ones([2, 8]) if grads is None else grads]
                tickets = native.ops.het_keep_grad(ids=ids, grads=grads, **more)
                return native.ops.het_apply_grad(
                    tickets=tickets, learning_rates=rates, scale=1.0, **attributes
                )

        invalid, failed = tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError
        raises(ValueError, "ids are float32; they must be integers", layer, tf.constant([1.0]))
        raises(Exception, "int64", lookup, ids=[tf.constant([1.0])])
        raises(invalid, "it must be [0", lookup, hint=(0, 9))
        raises(invalid, "it must be [2", apply, lookup().token, grads=tf.ones([2, 7]))
        said.append(raises(invalid, "learning rate", apply, lookup().token, rates=[0.1, 0.2]))
        said.append(raises(invalid, "not finite", apply, lookup().token, rates=[float("nan")]))
        token = lookup().token
        said.append(raises(invalid, "NaN", apply, token, grads=tf.fill([2, 8], float("nan"))))
        said.append(raises(failed, "not a training lookup", apply, lookup(training=False).token))
        same(before, table_of(place)[1])
        heads = [text.splitlines()[0].split(" [Op:")[0].split("} ")[-1] for text in said]
        texts[place] = [re.sub(r"\d+", "N", one) for one in heads]
    assert texts["cpu"] == texts["gpu"], texts


@check
def capacities_that_cannot_be():
    with het_tf.namespace("gpu"):
        words = "TensorFlow takes nearly all memory"
        raises(MemoryError, words, embedding, "gpu", cache={"rows": 2**32 - 32}, dim=1024)
        assert het_tf.tables() == []  # nothing has come of it
    train(embedding("gpu"), tf.constant([1, 2], tf.int64))


# --- launches -------------------------------------------------------------------------------------

# Tests of only the layer, and of one process whose tables end with it.
NOT_WITH_A_SERVER = {"a_cache_that_may_be_anywhere_is_on_the_gpu", "a_cache_of_so_many_bytes"}
WITH_A_SERVER = [name for name in CHECKS if name not in NOT_WITH_A_SERVER]


def started(place, names, address):
    checks = [CHECKS[name] for name in names]
    return ranks.Job(place, *checks, ranks=1, launcher="python", HET_PS=address, **gpu_lib.variables(place))


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """An error ends the process, and with it later checks."""
    return started(tmp_path_factory.mktemp("gpu"), CHECKS, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_on_a_gpu(job, name):
    job.values(name)


@pytest.mark.long
def test_on_a_gpu_of_this_tensorflow(job):
    """The ops' kernels for GPUs are built anew for a TensorFlow that is not the tree's."""
    assert job.end() == 0, job.out[-6000:]


@pytest.fixture(scope="module")
def job_with_a_server(tmp_path_factory, shared_server):
    assert shared_server.command("FLUSHALL").startswith(b"+OK")
    return started(tmp_path_factory.mktemp("gpu_ps"), WITH_A_SERVER, shared_server.address)


@pytest.mark.long
@redis_lib.SERVER
@pytest.mark.parametrize("name", WITH_A_SERVER)
def test_on_a_gpu_with_a_parameter_server(job_with_a_server, name):
    job_with_a_server.values(name)
