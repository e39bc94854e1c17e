"""Shared by the checks of gpu_checks.py: layers on either device, steps, comparisons.

A pluggable device and the ops' kernels for GPUs stay in the process that has loaded them: one of ranks.py.
Without a GPU the device is libhet_poisoned_gpu.so (tests/ext/gpu/pluggable) and libhet_cuda_host.so works it;
HET_TEST_GPU=real takes TensorFlow's own and libhet_cuda.so.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from floats_lib import MODEL, assert_close

import het_tf
from het_tf.ext.gpu.python import device
from het_tf.python.session import connection
from het_tf.python.table import registry

keras = tf.keras
REAL = os.environ.get("HET_TEST_GPU") == "real"
PLACES = ("cpu", "gpu")


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


def train(layer, ids, seed=0, dtype="float32"):
    """One step with a loss whose gradients differ from row to row. Returns the rows."""
    with tf.GradientTape() as tape:
        rows = layer(ids, training=True)
        factors = np.random.default_rng(seed).normal(size=[int(n) for n in rows.shape]).astype(dtype)
        loss = tf.reduce_sum(rows * factors)
    het_tf.apply(zip(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables, strict=True))
    return rows


def table_of(place):
    table = het_tf.Table("t", namespace=place)
    table.flush()
    rows = table.scan()
    return rows["ids"], rows["rows"]


def compare_tables(exact=True):
    ids, rows = table_of("cpu")
    gpu_ids, gpu_rows = table_of("gpu")
    assert len(ids) > 0
    np.testing.assert_array_equal(ids, gpu_ids)
    same(rows, gpu_rows, exact)


def same(a, b, exact=True):
    """Bit-equal; where `exact` is false up to the order of sums, on a real GPU also up to its own."""
    if REAL:
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    elif exact:
        np.testing.assert_array_equal(a, b)
    else:
        assert_close(a, b, MODEL)


def raises(kind, text, function, *arguments, **named):
    with pytest.raises(kind, match=re.escape(text)) as raised:
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
