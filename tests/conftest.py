"""Fixtures of all Python tests."""

import gc
import os
import shutil
import tempfile
from pathlib import Path

import pytest


def pytest_configure(config):
    gc.set_threshold(100_000, 50, 100)  # a seventh of the import of TensorFlow
    if not hasattr(config, "workerinput"):  # processes of a run inherit the environment
        use_own_cache_of_data()
    use_test_server(config)
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        # Processes that tests start find lib/sitecustomize.py; those that run the tests do not.
        paths = [str(Path(__file__).parent / "lib"), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def use_own_cache_of_data():
    """Tests write to build/test-data, with links to what the user's cache of data sets has downloaded."""
    users = Path(os.environ.get("HET_DATA_DIR") or "~/.cache/het_tf").expanduser().absolute()
    own = Path(__file__).parents[1] / "build" / "test-data"
    own.mkdir(parents=True, exist_ok=True)
    for file in users.glob("*-*/*"):  # downloads; graphs, which het_tf makes, are made again
        link = own / file.relative_to(users)
        if file.is_file() and not link.exists():
            link.parent.mkdir(exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(file)
    os.environ["HET_DATA_DIR"] = str(own)


def use_test_server(config):
    """HET_TEST_SERVER is the server of all tests: the first that het ps and ranks find on PATH, too."""
    program = shutil.which(os.environ.get("HET_TEST_SERVER", ""))
    if program and Path(shutil.which("valkey-server") or "").resolve() != Path(program).resolve():
        folder = tempfile.mkdtemp(prefix="het_test_server_")
        config.add_cleanup(lambda: shutil.rmtree(folder))
        Path(folder, "valkey-server").symlink_to(Path(program).resolve())
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


def pytest_collection_modifyitems(items):
    """Files of servers and launches come first: a run in two processes then ends with small pieces."""
    items.sort(key=lambda item: item.getparent(pytest.Module).get_closest_marker("slow") is None)


@pytest.fixture(scope="module")
def frozen():
    """What the process has imported is looked at by no collection of garbage: half a second each time."""
    import het_tf  # noqa: F401

    gc.collect()
    gc.freeze()


@pytest.fixture
def fresh(frozen):
    """No tables, no Keras state, seeds set: before and after the test."""
    import backends_lib
    import numpy as np

    backends_lib.reset()
    yield np.random.default_rng(0)
    backends_lib.reset()


@pytest.fixture
def eagerly():
    """What Keras and tests trace otherwise, a second or more each time, runs without graphs."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory):
    """A Redis server with the het module."""
    import redis_lib

    with redis_lib.running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def server(shared_server):
    """The same, empty, and left by the process after the test."""
    import redis_lib

    assert shared_server.command("FLUSHALL").startswith(b"+OK")
    yield shared_server
    redis_lib.leave()


@pytest.fixture
def client(server):
    """A client of that server."""
    from het_tf.ext.ps.python.address import parse
    from het_tf.ext.ps.python.client import Client

    with Client(parse(server.address), seconds=5.0) as client:
        yield client


@pytest.fixture
def played(fresh, monkeypatch):
    """Two played ranks that het_tf was initialised with; tables are in this process."""
    from played_lib import Played

    from het_tf.ext.streams.python.agreement import Stream
    from het_tf.python.session import settings

    played = Played()
    monkeypatch.setattr(settings.current, "workers", played)
    # Streams of other tests are not compared with this one's, nor these with theirs.
    for name, value in (("_notes", None), ("_passes", [])):
        monkeypatch.setattr(Stream, name, value)
    return played


@pytest.fixture
def four(played):
    """Four played ranks that all say the same."""
    played.ranks = 4
    played.others = lambda mine: [mine] * 3
    return played
