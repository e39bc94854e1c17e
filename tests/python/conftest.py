"""Fixtures of all Python tests."""

import pytest


@pytest.fixture
def fresh():
    """No tables, no Keras state, seeds set: before and after the test."""
    import numpy as np
    import tensorflow as tf

    import het_tf

    def clean():
        het_tf.reset("")
        het_tf.init()
        tf.keras.backend.clear_session()
        if hasattr(tf.keras, "config"):
            tf.keras.config.set_dtype_policy("float32")
        else:
            tf.keras.mixed_precision.set_global_policy("float32")

    clean()
    tf.keras.utils.set_random_seed(0)
    yield np.random.default_rng(0)
    clean()
