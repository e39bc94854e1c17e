"""A GPU for tests: one in poisoned host memory, or with HET_TEST_GPU=real TensorFlow's own."""

import os
import subprocess
from pathlib import Path

from het_tf.python import versions

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HET_TEST_BUILD", ROOT / "build" / "release"))
LIBRARIES = ROOT / "het_tf" / "lib"
REAL = os.environ.get("HET_TEST_GPU") == "real"

POISONED_GPU = BUILD / "libhet_poisoned_gpu.so"
DEVICE_LIBRARY = LIBRARIES / "libhet_cuda.so" if REAL else BUILD / "libhet_cuda_host.so"
GPU_OPS = LIBRARIES / "libhet_tf_gpu.so"


def what_is_missing() -> str:
    """Why these tests cannot run here; "" if they can."""
    needed = [DEVICE_LIBRARY, GPU_OPS] + ([] if REAL else [POISONED_GPU])
    missing = [str(path) for path in needed if not path.exists()]
    return f"not built: {', '.join(missing)}" if missing else ""


def gpu_ops_for_this_tensorflow(folder: Path) -> Path:
    """libhet_tf_gpu.so for the TensorFlow that is here; of another one than the tree's it is made anew."""
    import tensorflow as tf

    if versions.gpu_ops_tensorflow(GPU_OPS) == tf.__version__:
        return GPU_OPS
    library = folder / "libhet_tf_gpu.so"
    include = tf.sysconfig.get_include()
    flags = [flag for flag in tf.sysconfig.get_compile_flags() if not flag.startswith("-I")]
    command = [
        os.environ.get("CXX", "g++"), *flags, "-O1", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{ROOT}",
        "-isystem", include, f'-DHET_TF_HEADERS="{tf.__version__}"', "-Wl,--no-undefined", "-o", str(library),
        *(str(source) for source in (ROOT / "het_tf" / "kernels" / "gpu").glob("*.cc")),
        f"-L{LIBRARIES}", "-l:libhet_tf.so", *tf.sysconfig.get_link_flags(),
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=300)
    return library


def variables(folder: Path) -> dict[str, str]:
    """Of a process in which test_gpu_cache.py starts the GPU."""
    return {
        "HET_DEVICE_LIBRARY": str(DEVICE_LIBRARY),
        "HET_TEST_POISONED_GPU": str(POISONED_GPU),
        "HET_TEST_GPU_OPS": str(gpu_ops_for_this_tensorflow(folder)),
    }
