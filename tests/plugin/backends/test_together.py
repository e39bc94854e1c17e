"""One table on three backends of Keras: equal rows by equal gradients, and each opens what another has saved.

Runs where PyTorch and JAX are; HET_TEST_TENSORFLOW names a Python with TensorFlow (`make test-backends`).
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from functools import partial

import backends_worker as worker
import numpy as np
import pytest
import ranks
import ranks_cases
from backends_lib import BACKEND

PYTHONS = {"torch": sys.executable, "jax": sys.executable}
if other := os.environ.get("HET_TEST_TENSORFLOW"):
    PYTHONS["tensorflow"] = other
OTHERS = ("torch", "jax")
with_tensorflow = pytest.mark.skipif(
    "tensorflow" not in PYTHONS, reason="HET_TEST_TENSORFLOW names no Python"
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BACKEND != "torch", reason="of all backends: once, with PyTorch"),
]


@pytest.fixture
def run(tmp_path_factory):
    return partial(run_in, tmp_path_factory)


def run_in(tmp_path_factory, backend, function, ranks_=1, launcher="python", **arguments):
    """What a function returns in a process of a backend, or on rank 0 of two."""
    place = tmp_path_factory.mktemp(backend)
    options = {"launcher": launcher, "python": PYTHONS[backend], "KERAS_BACKEND": backend}
    return ranks.run(place, partial(function, **arguments), ranks=ranks_, **options)[0]


@pytest.fixture(scope="module")
def server():
    """Address of a server with the het module; "" if there is none on this machine."""
    from het_tf.ext.ps.python.redis_server import LocalServer

    if ranks.missing(horovod=False):
        yield ""
        return
    with LocalServer.start(unix=True) as running:
        yield running.address


@pytest.fixture(scope="module")
def trained(tmp_path_factory, server):
    """A folder in which every backend has trained, and the tables of each."""
    folder = str(tmp_path_factory.mktemp("trained"))
    found = {
        one: run_in(tmp_path_factory, one, worker.train, folder=folder, server=server) for one in PYTHONS
    }
    return folder, found


def assert_equal(mine, others):
    assert mine.keys() == others.keys()
    for name, one in mine.items():
        np.testing.assert_array_equal(one, others[name], err_msg=name)


@pytest.mark.parametrize("where", ["exact", "server", "ahead"])
def test_rows_slots_and_clocks_are_equal_bit_for_bit(trained, server, where):
    """At the server with staleness 0 as of one process, also by planned lookups."""
    if where != "exact" and not server:
        pytest.skip("no redis-server")
    first = trained[1]["torch"]["exact"]
    assert len(first["item/ids"]) == 200 and first["item/clocks"].max() > 20
    for backend in OTHERS if where == "ahead" else PYTHONS:
        assert_equal(trained[1][backend][where], first)


def test_wide_and_deep_is_equal_but_for_rounding(trained):
    for backend in PYTHONS:
        for name, one in trained[1][backend]["rounded"].items():
            first = trained[1]["torch"]["rounded"][name]
            np.testing.assert_allclose(one, first, rtol=0, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("pair", itertools.permutations(["tensorflow", *OTHERS], 2), ids="-opens-".join)
def test_each_opens_what_another_has_saved(trained, server, run, pair):
    if not set(pair) <= set(PYTHONS):
        pytest.skip("HET_TEST_TENSORFLOW names no Python")
    opener, saver = pair
    found = run(opener, worker.open_it, folder=trained[0], other=saver, server=server)
    assert set(found) == {"weights", "checkpoint", "keras", *(["server"] if server else [])}
    for one in found.values():
        assert_equal(one, trained[1][saver]["exact"])


@with_tensorflow
@ranks.SERVER
def test_tensorflow_serves_what_others_train_and_publish(tmp_path, server, run):
    """TensorFlow exports the model once; rows and dense weights follow those of the other backend."""
    run("tensorflow", worker.export, folder=str(tmp_path), server=server)
    published = {one: run(one, worker.publish, server=server) for one in OTHERS}
    for backend in OTHERS:  # the follower needs no TensorFlow either
        words = ["-m", "het_tf", "serve", "follow", tmp_path / f"served-{backend}", "--once"]
        variables = ranks.environment(KERAS_BACKEND=backend)
        subprocess.run([PYTHONS[backend], *words], env=variables, check=True, timeout=600)
    ids = {backend: ids for backend, (ids, _) in published.items()}
    answers = run("tensorflow", worker.serve, folder=str(tmp_path), ids=ids)
    for backend, (_, expected) in published.items():
        assert np.ptp(expected) > 0.01
        np.testing.assert_allclose(answers[backend], expected, atol=1e-5)


@ranks.SERVER
def test_rows_of_two_ranks_are_equal_bit_for_bit(run):
    """Each rank has rows of its own; with rows of both, updates of two ranks have no order."""
    found = {one: run(one, ranks_cases.bitwise, ranks_=2, launcher="het_tf") for one in PYTHONS}
    first = found["torch"]
    assert len(set(first["item/ids"] % 2)) == 2 and first["item/clocks"].max() > 5
    for one in found.values():
        assert_equal(one, first)
