"""Caches in the memory of a GPU: chooses the place of a layer's cache, and loads the two libraries.

libhet_tf_gpu.so has the ops' kernels for DEVICE_GPU. It is built for one release of TensorFlow, and loads
only into that. libhet_cuda.so drives the GPU; libhet_tf.so loads it, and it is independent of
TensorFlow. Neither is loaded before a layer asks for a cache on a GPU.
"""

import functools
import logging
import os
from pathlib import Path
from typing import Any

from het_tf.python import backend, versions
from het_tf.python.session import native

PLACES = ("cpu", "gpu", "auto")
LIBRARY_VARIABLE = "HET_DEVICE_LIBRARY"

GPU_OPS = versions.GPU_OPS

WHO_HAS_THE_MEMORY = (
    "TensorFlow takes nearly all memory of a GPU when it first uses it: leave it less "
    "(tf.config.experimental.set_memory_growth(gpu, True), or a memory_limit), or give the cache fewer "
    "rows or bytes, or device='cpu'"
)

log = logging.getLogger("het_tf")


def check_place(place: Any) -> Any:
    """Returns `place`. ValueError: it is unknown to `het_tf.Cache(device=...)`."""
    if place is not None and place not in PLACES:
        raise ValueError(
            f'cache.device is {place!r}; give "cpu" for a cache in the memory of this process, "gpu" for one '
            'in the memory of the GPU, or "auto" for the GPU if there is one'
        )
    return place


def choose(place: str | None) -> str:
    """Chooses the place of a cache with this `device`.

    Args:
      place: "cpu", or None for it; "gpu"; or "auto": "gpu" if that works, else "cpu", which is logged
        once.

    Returns:
      "cpu" or "gpu". For "gpu" all libraries are loaded.

    Raises:
      ImportError: A library for GPUs is not built, does not load, or is built for another TensorFlow.
      RuntimeError: "gpu", but the machine has no GPU, or its driver is too old.
    """
    if place == "auto":
        return _automatic()
    if place == "gpu":
        start()
    return place or "cpu"


@functools.lru_cache(maxsize=1)
def _automatic() -> str:
    try:
        start()
    except (ImportError, RuntimeError) as error:
        log.warning("het_tf: Cache(device='auto') caches in host memory: %s", error)
        return "cpu"
    log.info("het_tf: Cache(device='auto') caches in the memory of the GPU")
    return "gpu"


def start() -> None:
    """Loads all that caches on the GPU need; further calls do nothing.

    Raises:
      ImportError: A library is not built, does not load, or is built for another TensorFlow.
      RuntimeError: The machine has no GPU, its driver is too old, or another library drives it already.
    """
    _load_device_library(str(device_library()), _gpu())
    _load_gpu_ops(GPU_OPS)


def device_library() -> Path:
    """Path of libhet_cuda.so, or of its replacement in the environment's HET_DEVICE_LIBRARY."""
    return Path(os.environ.get(LIBRARY_VARIABLE) or versions.CUDA)


def _gpu() -> int:
    """CUDA's number of TensorFlow's first visible GPU."""
    if not backend.TENSORFLOW:
        raise RuntimeError(
            "caches on a GPU are for TensorFlow's ops; give Cache(device='cpu'), or set "
            "KERAS_BACKEND=tensorflow"
        )
    from het_tf.python.session.native import tf

    gpus = tf.config.get_visible_devices("GPU")
    if not gpus:
        if tf.config.list_physical_devices("GPU"):
            remedy = "tf.config.set_visible_devices has hidden all GPUs"
        elif tf.test.is_built_with_gpu_support():
            remedy = "nvidia-smi says whether the machine has one"
        else:
            remedy = (
                f"this TensorFlow is built without CUDA; run: {versions.pip_install('tensorflow[and-cuda]')}"
            )
        raise RuntimeError(f"TensorFlow sees no GPU; Cache(device='cpu') needs none; {remedy}")
    return int(gpus[0].name.rpartition(":")[2])


@functools.lru_cache(maxsize=1)
def _load_device_library(path: str, gpu: int) -> None:
    build = versions.gpu_build_command()
    if not Path(path).exists() and os.environ.get(LIBRARY_VARIABLE):
        raise ImportError(f"the environment's {LIBRARY_VARIABLE} is {path!r}, which does not exist")
    if not Path(path).exists():
        raise ImportError(
            f"{path}, which drives the GPU, is not built; with nvcc of CUDA 13 on the PATH run: {build}"
        )
    try:
        native.call("HetLoadDeviceLibrary", path, gpu)
    except LookupError as error:
        raise ImportError(f"{error}; with nvcc of CUDA 13 on the PATH run: {build}") from None
    native.call("HetDescribeDevice")


@functools.lru_cache(maxsize=1)
def _load_gpu_ops(path: Path) -> None:
    from het_tf.python.session.native import tf

    what, build = f"{path}, the ops' kernels for GPUs,", versions.gpu_build_command()
    if not path.exists():
        raise ImportError(f"{what} is not built; run: {build}")
    built_for = versions.gpu_ops_tensorflow(path) or "of an unknown version"
    if built_for != tf.__version__:
        raise ImportError(
            f"{what} is built for TensorFlow {built_for}, but this is {tf.__version__}; build it with this "
            f"one: {build}"
        )
    try:
        tf.load_op_library(str(path))
    except (OSError, tf.errors.OpError) as error:
        why = (str(error).strip() or "unknown error").splitlines()[0]
        raise ImportError(f"{what} does not load ({why}); run: {build}") from None
