"""A cache on a GPU without a GPU: one clear message, and no change."""

import logging
import os
import shutil
import subprocess
import sys

import gpu_lib
import pytest
import tensorflow as tf

import het_tf
from het_tf.ext.gpu.python import device
from het_tf.python import versions

pytestmark = [pytest.mark.usefixtures("fresh")]
if gpu_lib.REAL:
    pytestmark.append(pytest.mark.skip(reason="about machines without a GPU"))


def embedding(**cache):
    return het_tf.keras.Embedding(4, name="t", cache=het_tf.Cache(**cache))


@pytest.fixture(autouse=True)
def forget():
    """Findings of earlier tests about this process."""
    kept = (device._automatic, device._load_device_library, device._load_gpu_ops)
    for function in kept:
        function.cache_clear()
    yield
    for function in kept:
        function.cache_clear()


@pytest.fixture
def a_gpu(monkeypatch):
    monkeypatch.setattr(device, "_gpu", lambda: 0)


def test_no_gpu():
    refused(r"TensorFlow sees no GPU; Cache\(device='cpu'\) needs none; ", RuntimeError)


def test_auto_takes_the_cpu_and_says_so_once(caplog):
    with caplog.at_level(logging.INFO, "het_tf"):
        layer = embedding(device="auto")
        embedding(device="auto")
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "Cache(device='auto') caches in host memory: TensorFlow sees no GPU" in record.getMessage()
    assert layer(tf.constant([1], tf.int64)).device.endswith("CPU:0")
    assert het_tf.Table("t").stats()["mode"] == "direct"  # as without a cache
    assert layer.get_config()["cache"]["device"] == "auto"


def refused(words, error=ImportError):
    with pytest.raises(error, match=words):
        embedding(device="gpu")
    assert het_tf.tables() == []


@pytest.mark.usefixtures("a_gpu")
def test_the_device_library_is_not_built(monkeypatch, tmp_path):
    monkeypatch.delenv("HET_DEVICE_LIBRARY", raising=False)
    monkeypatch.setattr(versions, "CUDA", tmp_path / "libhet_cuda.so")
    refused(r"libhet_cuda.so, which drives the GPU, is not built; with nvcc .* run: ")
    monkeypatch.setenv("HET_DEVICE_LIBRARY", str(tmp_path / "other.so"))
    refused(r"HET_DEVICE_LIBRARY is .*other.so.*, which does not exist")
    (tmp_path / "other.so").write_text("no library")
    refused(r"other.so")


@pytest.mark.usefixtures("a_gpu")
def test_missing_or_mismatched_gpu_ops_are_reported(monkeypatch, tmp_path):
    library = tmp_path / "libhet_tf_gpu.so"
    monkeypatch.setattr(device, "_load_device_library", lambda path, gpu: None)
    monkeypatch.setattr(device, "GPU_OPS", library)
    device._load_gpu_ops.cache_clear()
    refused(r"libhet_tf_gpu.so, the ops' kernels for GPUs, is not built; run: ")
    text = b"...het_tf's GPU ops are built for TensorFlow 2.17.9;..."
    library.write_bytes(text)
    refused(f"for TensorFlow 2.17.9, but this is {tf.__version__}; build it")
    library.write_bytes(text.replace(b"2.17.9", tf.__version__.encode()))
    refused(r"does not load \(.*libhet_tf_gpu.so.*run: ")
    monkeypatch.setattr(versions, "TREE", None)  # as in a wheel, which has no code for GPUs
    refused(r"make wheel-gpu in .*-m pip install dist/het_tf_gpu-\*.whl")


@pytest.mark.skipif(not gpu_lib.GPU_OPS.exists(), reason=f"not built: {gpu_lib.GPU_OPS}")
def test_the_library_says_what_it_was_built_for(tmp_path):
    assert versions.gpu_ops_tensorflow(gpu_lib.GPU_OPS).startswith("2.")
    (tmp_path / "other.so").write_text("nothing of the kind")
    assert versions.gpu_ops_tensorflow(tmp_path / "other.so") == ""


@pytest.mark.skipif(not gpu_lib.GPU_OPS.exists(), reason=f"not built: {gpu_lib.GPU_OPS}")
def test_the_gpu_ops_have_no_engine_of_their_own():
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("no nm (binutils)")
    command = [nm, "-D", "--defined-only", str(gpu_lib.GPU_OPS)]
    symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[2::3]
    assert symbols == ["kHetGpuOpsFor"]


def test_an_nvcc_that_is_too_old_is_left_alone(tmp_path):
    cmake = shutil.which("cmake", path=f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    if cmake is None:
        pytest.skip("no cmake")
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\n[ $1 = --version ] && echo 'tools, release 11.0, V11.0.1' && exit\nexit 1\n")
    nvcc.chmod(0o755)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(test NONE)\nset(HET_BUILD_PLUGIN ON)\n"
        f'include("{gpu_lib.ROOT}/cmake/HetCuda.cmake")\nadd_custom_target(het_plugin)\n'
    )

    def configure(*options):
        command = [cmake, "-S", tmp_path, "-B", tmp_path / "build", f"-DHET_NVCC={nvcc}", *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=600)

    done = configure()
    assert done.returncode == 0, done.stderr
    assert f"{nvcc} is 11.0, not CUDA 13 or newer, so libhet_cuda.so is not built" in done.stdout
    assert configure("-DHET_CUDA=ON").returncode != 0
