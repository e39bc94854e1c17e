"""Fixtures of `het run`: launches in a folder of their own, and a store for nodes to meet at."""

from collections.abc import Iterator
from pathlib import Path

import launch_lib
import pytest

from het_tf.ext.ps.python.redis_server import LocalServer


@pytest.fixture
def run(tmp_path: Path) -> Iterator[launch_lib.Launches]:
    with launch_lib.launches(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def store() -> Iterator[LocalServer]:
    with LocalServer.start() as server:
        yield server
