"""These tests run on TensorFlow in `make test`, on PyTorch and JAX in `make test-backends`."""

import pytest


@pytest.fixture(autouse=True)
def fresh_backend():
    """No tables before and after each test."""
    import backends_lib

    backends_lib.reset()
    yield
    backends_lib.reset()
