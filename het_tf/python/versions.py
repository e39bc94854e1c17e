"""The native libraries, their targets and build commands, found without loading anything."""

import importlib.util
import re
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
TREE = PACKAGE.parent if (PACKAGE.parent / "CMakeLists.txt").exists() else None

TENSORFLOW = ("2.16", "2.22")  # first that works, first untested one
# Variables have `overwrite_with_gradient` since Keras 3.3. Up to 3.9 an optimizer ignored it beside a
# tf.Variable, assigned None where there was no gradient, and divided the gradient by the loss scale.
KERAS = "3.10"
TESTED = "2.21.0"
WORKS_WITH = f"het_tf works with TensorFlow >={TENSORFLOW[0]},<{TENSORFLOW[1]} and Keras >={KERAS}"
PIP_KERAS = f"pip install 'keras>={KERAS}'"

# CPU flags that a -march= level needs, in the words of /proc/cpuinfo.
CPU_FLAGS = {
    "x86-64-v2": ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"),
    "x86-64-v3": ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}


def library(name: str) -> Path:
    """Returns the path of a native library, which need not exist.

    A wheel of `make wheel` has them for two levels of CPUs. GPU libraries may be in the package het_tf_gpu.
    """
    places = [PACKAGE / "lib"]
    if not cpu_lacks("x86-64-v3"):
        places.insert(0, PACKAGE / "lib" / "x86-64-v3")
    gpu = importlib.util.find_spec("het_tf_gpu")
    if gpu is not None and gpu.origin is not None:
        places.append(Path(gpu.origin).parent / "lib")
    return next((place / name for place in places if (place / name).exists()), PACKAGE / "lib" / name)


def plugin_march(plugin: Path) -> str:
    """The -march= level that a plugin file was built for, read without loading it; "" if none."""
    found = re.findall(rb"x86-64-v[234]", plugin.read_bytes())
    return max(found).decode() if found else ""


def gpu_ops_tensorflow(library: Path) -> str:
    """The TensorFlow that libhet_tf_gpu.so was built for, read without loading it; "" if unknown."""
    found = re.search(rb"GPU ops are built for TensorFlow ([^;]*);", library.read_bytes())
    return found.group(1).decode() if found else ""


def cpu_lacks(march: str) -> list[str]:
    """CPU flags that -march=`march` needs and this CPU lacks; [] if unknown."""
    cpu = Path("/proc/cpuinfo")
    match = re.search(r"^flags\s*:(.*)$", cpu.read_text(), re.MULTILINE) if cpu.exists() else None
    if match is None or march not in CPU_FLAGS:
        return []
    has = set(match.group(1).split())
    return [flag for level, flags in CPU_FLAGS.items() if level <= march for flag in flags if flag not in has]


PLUGIN = library("libhet_tf.so")
INPUTS = library("libhet_inputs.so")
ENGINE = library("libhet_engine.so")
GPU_OPS = library("libhet_tf_gpu.so")
CUDA = library("libhet_cuda.so")
MODULE = library("het.so")


def pip_install(*packages: str) -> str:
    """The command that installs packages into the running Python."""
    return " ".join([sys.executable, "-m pip install", *packages])


def gpu_build_command() -> str:
    """The command that builds the libraries for GPUs, which the wheel of `make wheel` lacks."""
    if TREE is not None:
        return build_command()
    return f"make wheel-gpu in het_tf's source tree, then {pip_install('dist/het_tf_gpu-*.whl')}"


def build_command(arguments: str = "") -> str:
    """The command that builds the plugin in its place, with a variable such as "HET_MARCH="."""
    if TREE is None:
        make = f"make wheel {arguments}".strip()
        return f"{make} in het_tf's source tree, then {pip_install('--force-reinstall dist/het_tf-*.whl')}"
    if Path(sys.prefix) == TREE / ".venv":
        return f"make -C {TREE} build {arguments}".strip()
    configure = f"cmake --preset release -DPython3_EXECUTABLE={sys.executable}"
    if arguments:
        configure += f" -D{arguments}"
    return f"cd {TREE} && {configure} && cmake --build --preset release"
