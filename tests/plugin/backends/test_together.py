"""One table on three backends of Keras: equal rows by equal gradients, and each opens what another has saved.

Runs where PyTorch and JAX are; HET_TEST_TENSORFLOW names a Python with TensorFlow (`make test-backends`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from backends_lib import BACKEND

ROOT = Path(__file__).parents[3]
WORKER = ROOT / "tests/lib/backends_worker.py"
PYTHONS = {"torch": sys.executable, "jax": sys.executable}
if other := os.environ.get("HET_TEST_TENSORFLOW"):
    PYTHONS["tensorflow"] = other

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BACKEND != "torch", reason="of all backends: once, with PyTorch"),
]


def run(backend, *words, program=(str(WORKER),)):
    environment = {
        **os.environ,
        "KERAS_BACKEND": backend,
        "PYTHONPATH": str(ROOT),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    done = subprocess.run(
        [PYTHONS[backend], *program, *map(str, words)],
        capture_output=True, text=True, env=environment, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Address of a server with the het module; "" if there is none on this machine."""
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        yield ""
        return
    place = tmp_path_factory.mktemp("server") / "socket"
    words = [program, "--port", "0", "--unixsocket", str(place), "--save", "", "--dir", str(place.parent)]
    process = subprocess.Popen(
        [*words, "--loadmodule", str(ROOT / "het_tf/lib/het.so")], stdout=subprocess.DEVNULL
    )
    while not place.exists() and process.poll() is None:
        time.sleep(0.02)
    yield f"unix://{place}"
    process.terminate()
    process.wait()


@pytest.fixture(scope="module")
def trained(tmp_path_factory, server):
    """A folder in which every backend has trained."""
    folder = tmp_path_factory.mktemp("trained")
    for backend in PYTHONS:
        run(backend, "train", folder, server)
    return folder


def arrays(folder, name):
    with contextlib.closing(np.load(folder / f"{name}.npz")) as file:
        return dict(file)


def assert_equal(mine, others):
    assert mine.keys() == others.keys()
    for name, one in mine.items():
        np.testing.assert_array_equal(one, others[name], err_msg=name)


@pytest.mark.parametrize("where", ["exact", "server"])
def test_rows_slots_and_clocks_are_equal_bit_for_bit(trained, server, where):
    if where == "server" and not server:
        pytest.skip("no redis-server")
    first = arrays(trained, f"torch-{where}")
    assert len(first["item/ids"]) == 200 and first["item/clocks"].max() > 20
    for backend in PYTHONS:
        assert_equal(arrays(trained, f"{backend}-{where}"), first)
        assert_equal(arrays(trained, f"{backend}-exact"), first)  # of one process, with staleness 0
        if where == "server" and backend != "tensorflow":
            assert_equal(arrays(trained, f"{backend}-ahead"), first)  # of planned lookups


def test_wide_and_deep_is_equal_but_for_rounding(trained):
    first = arrays(trained, "torch-rounded")
    for backend in PYTHONS:
        mine = arrays(trained, f"{backend}-rounded")
        for name, one in mine.items():
            np.testing.assert_allclose(one, first[name], rtol=0, atol=2e-4, err_msg=name)


@pytest.mark.parametrize(
    "pair", itertools.permutations(["tensorflow", "torch", "jax"], 2), ids="-opens-".join
)
def test_each_opens_what_another_has_saved(trained, server, pair):
    if "tensorflow" in pair and "tensorflow" not in PYTHONS:
        pytest.skip("HET_TEST_TENSORFLOW names no Python")
    opener, saver = pair
    run(opener, "open", trained, saver, server)
    found = arrays(trained, f"{opener}-opens-{saver}")
    saved = arrays(trained, f"{saver}-exact")
    for what in ("weights", "checkpoint", "keras", *(["server"] if server else [])):
        mine = {
            name.removeprefix(f"{what}/"): one for name, one in found.items() if name.startswith(f"{what}/")
        }
        assert_equal(mine, saved)


def test_tensorflow_serves_what_others_train_and_publish(tmp_path, server):
    """TensorFlow exports the model once; rows and dense weights follow those of the other backend."""
    if not server or "tensorflow" not in PYTHONS:
        pytest.skip("no redis-server, or HET_TEST_TENSORFLOW names no Python")
    run("tensorflow", "export", tmp_path, server)
    for backend in ("torch", "jax"):
        run(backend, "publish", tmp_path, server)
        # The follower needs no TensorFlow either.
        run(backend, "serve", "follow", tmp_path / f"served-{backend}", "--once", program=("-m", "het_tf"))
    run("tensorflow", "serve", tmp_path)
    for backend in ("torch", "jax"):
        expected = arrays(tmp_path, f"served-{backend}")["answers"]
        assert np.ptp(expected) > 0.01
        np.testing.assert_allclose(arrays(tmp_path, f"answers-{backend}")["answers"], expected, atol=1e-5)
