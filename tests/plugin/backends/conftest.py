"""These tests run on TensorFlow in `make test`, on PyTorch and JAX in `make test-backends`."""

import pytest


@pytest.fixture(autouse=True)
def fresh_backend():
    """No tables before and after each test."""
    import backends_lib

    backends_lib.reset()
    yield
    backends_lib.reset()


@pytest.fixture
def server():
    """Address of a server with the het module."""
    from het_tf.ext.ps.python.redis_server import LocalServer

    with LocalServer.start(unix=True) as running:
        yield running.address
