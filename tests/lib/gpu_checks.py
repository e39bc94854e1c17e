"""Checks in a process with a GPU, one after the other: test_gpu_cache.py.

Layers are made twice, in the namespaces "cpu" and "gpu", and must agree.
"""

from __future__ import annotations

import functools
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from gpu_checks_lib import (
    PLACES,
    compare_tables,
    devices_of,
    elsewhere,
    embedding,
    fresh,
    keras,
    raises,
    same,
    table_of,
    train,
)

import het_tf
from het_tf.python.layer.backends.tensorflow import OPS_DEVICE
from het_tf.python.session import native

CHECKS = {}


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
    layers = {place: embedding(place) for place in PLACES}

    def step(layer, ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids, training=True))
        variables = layer.trainable_variables
        het_tf.apply(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    ids = tf.constant([1, 2, 2, 3], tf.int64)
    for place, layer in layers.items():
        # Neither what TensorFlow prefers nor the scope of the caller decides, but where the cache is.
        for scope in (None, "/device:CPU:0", "/device:GPU:0"):
            with tf.device(scope):
                found = devices_of(tf.function(lambda ids, layer=layer: step(layer, ids)), ids)
            assert found["HetLookup"] == {f"{place.upper()}:0"}, (place, scope, found)
            for op in ("HetKeepGrad", "HetApplyGrad"):
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
            with tf.GradientTape() as tape:
                outputs[place] = layer(inputs, training=True)
                loss = tf.add_n([tf.reduce_sum(tf.square(rows)) for rows in outputs[place].values()])
            variables = layer.trainable_variables
            het_tf.apply(zip(tape.gradient(loss, variables), variables, strict=True))
        for name in inputs:
            same(outputs["cpu"][name].numpy(), outputs["gpu"][name].numpy())
    empty = layers["gpu"]({**inputs, "history": tf.ragged.constant([[], [], []], dtype=tf.int64)})
    assert not np.any(empty["history"].numpy())
    compare_tables()


# --- models ---------------------------------------------------------------------------------------


def model_of(place, **options):
    keras.utils.set_random_seed(3)
    with elsewhere():
        dense = [keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1, dtype="float32")]
        inputs, rows = keras.Input((3,), dtype="int64"), embedding(place, **options)
        model = keras.Sequential([inputs, rows, keras.layers.Flatten(), *dense])
        model.compile("adam", "mse")
    return model


def data(rows=96):
    rng = np.random.default_rng(5)
    return rng.integers(0, 50, size=(rows, 3)), rng.normal(size=(rows, 1)).astype("float32")


def fitted(place, epochs=2, **options):
    model = model_of(place, **options)
    with elsewhere():
        history = model.fit(*data(), batch_size=16, epochs=epochs, shuffle=False, verbose=0).history["loss"]
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
            model, history = fitted(place, epochs=2)
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
    with tempfile.TemporaryDirectory() as folder:
        model, _ = fitted("gpu")
        with elsewhere():
            before = model.predict(data()[0], verbose=0)
            rows = table_of("gpu")
            weights = Path(folder) / "model.weights.h5"
            model.save_weights(weights)
            tf.train.Checkpoint(model=model).write(f"{folder}/tf")
            het_tf.checkpoint.save(f"{folder}/het", model, namespace="gpu")

            def moved_and_back(restore):
                model.fit(*data(), batch_size=16, epochs=1, verbose=0)
                assert np.abs(model.predict(data()[0], verbose=0) - before).max() > 1e-4
                restore()
                same(before, model.predict(data()[0], verbose=0), exact=False)
                for one, other in zip(rows, table_of("gpu"), strict=True):
                    same(one, other)

            moved_and_back(lambda: model.load_weights(weights))
            moved_and_back(lambda: tf.train.Checkpoint(model=model).restore(f"{folder}/tf"))
            moved_and_back(lambda: het_tf.checkpoint.restore(f"{folder}/het", model, namespace="gpu"))


@check
def a_layer_is_made_anew_from_its_config():
    layer = embedding("gpu", cache={"rows": 100})
    config = layer.get_config()
    assert config["cache"] == het_tf.Cache(device="gpu", rows=100, wire="float32").get_config()
    with het_tf.namespace("gpu"):
        again = type(layer).from_config(config)
    assert again.get_config() == config
    ids = tf.constant([1, 5], tf.int64)
    same(layer(ids).numpy(), again(ids).numpy())
    with het_tf.namespace("third"):
        automatic = het_tf.keras.Embedding(4, name="a", cache=het_tf.Cache(device="auto"))
        assert automatic(ids).device.endswith("GPU:0")


@check
def a_cache_of_so_many_bytes():
    bytes_of = functools.partial(het_tf.Cache, device="gpu")
    with het_tf.namespace("gpu"):
        cache = bytes_of(bytes=1 << 20, rows=None)
        layer = het_tf.keras.Embedding(16, table="t", optimizer="sgd", cache=cache)
        layer(tf.constant([1], tf.int64))
        cache = het_tf.Table("t").stats()["cache"]
        assert 0 < cache["device_bytes"] <= 1 << 20, cache
        assert cache["capacity"] * 16 * 4 > 1 << 18, cache
        with pytest.raises(ValueError, match=r"cache.bytes is 9; table 'u'"):
            het_tf.keras.Embedding(16, table="u", cache=bytes_of(bytes=9))


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
            with tf.device(OPS_DEVICE[place]):
                return native.ops.het_lookup(
                    ids=ids, anchor=0.0, hints=[tf.zeros(hint)], training=training, **attributes
                )

        def apply(token, grads=None, rates=(0.1,), scale=1.0, ids=ids, attributes=attributes, place=place):
            with tf.device(OPS_DEVICE[place]):
                tickets = native.ops.het_keep_grad(
                    ids=ids, grads=[tf.ones([2, 8]) if grads is None else grads], token=token, norm=1.0,
                    **attributes,
                )  # fmt: skip
                return native.ops.het_apply_grad(
                    tickets=tickets, learning_rates=rates, scale=scale, **attributes
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
