"""Fixtures of `het run`: launches in a folder of their own, and a store for nodes to meet at."""

from collections.abc import Iterator
from pathlib import Path

import launch_lib
import pytest

from het_tf.ext.ps.python.redis_server import LocalServer


@pytest.fixture
def run(tmp_path: Path) -> Iterator[launch_lib.Launches]:
    made = launch_lib.Launches(tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="module")
def store() -> Iterator[LocalServer]:
    with LocalServer.start() as server:
        yield server
