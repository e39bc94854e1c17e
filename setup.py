"""Builds the wheel: CMake makes the native libraries, setuptools packs them with the Python files."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
# As deep as build/release: ccache then knows what that has compiled with the same flags.
CMAKE_DIR = ROOT / "build" / "wheel-cmake"
os.environ.setdefault("CCACHE_BASEDIR", str(ROOT))
# -march= -> where the libraries built for it go.
LEVELS = {"x86-64-v2": "het_tf/lib", "x86-64-v3": "het_tf/lib/x86-64-v3"}
PORTABLE = LEVELS if os.environ.get("HET_PORTABLE") == "1" else {}


def directory_of(march: str) -> Path:
    """Where CMake builds for a level."""
    return CMAKE_DIR.with_name(f"wheel-{march}") if PORTABLE else CMAKE_DIR


def run(*command: object) -> None:
    """Runs one step of the native build; a failure ends setup with one line that names the remedy."""
    words = [str(part) for part in command]
    try:
        subprocess.run(words, cwd=ROOT, check=True)
    except FileNotFoundError:
        raise SystemExit(f"error: {words[0]} is missing. Remedy: pip install cmake ninja") from None
    except subprocess.CalledProcessError as error:
        # CMake looks for the compiler and for headers as it configures; what fails later has found them.
        remedy = (
            "CMake's message above names what is missing. A compiler: apt-get install g++; "
            "headers: pip install -r requirements/build.txt -r requirements/tensorflow.txt"
            if "-S" in words
            else "The compiler or the linker has said above what is wrong with which file"
        )
        raise SystemExit(
            f"error: the native build failed: {shlex.join(words[:3])} ended with {error.returncode}. {remedy}"
        ) from None


class FreshBuild(build):
    """Starts from an empty directory, so that a deleted source file cannot reach the wheel."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildWithPlugin(build_py):
    """Adds the libraries of het_tf/lib, built for this wheel, to the Python files.

    `pip install .` builds one of each, for this machine's glibc and for HET_MARCH, and those for GPUs:
    libhet_tf_gpu.so, which fits the TensorFlow that it is built with alone, and where there is nvcc
    libhet_cuda.so. HET_CUDA_ARCH and HET_CUDA of the environment are CMake's (cmake/HetCuda.cmake).

    `make wheel` sets HET_PORTABLE=1: for glibc 2.28 and newer, without the libraries for GPUs (the package
    het_tf_gpu has them, cmake/gpu_wheel), for x86-64-v2 in lib/ and for x86-64-v3 in lib/x86-64-v3/; Python
    takes those that the CPU can run.
    """

    def run(self) -> None:
        super().run()
        prefix = ROOT if self.editable_mode else self.build_lib
        if PORTABLE:
            none_for_gpus = ("-DHET_BUILD_GPU_OPS=OFF", "-DHET_CUDA=OFF", "-DHET_GLIBC=2.28")
            for march, folder in PORTABLE.items():
                self.build_libraries(march, prefix, f"-DHET_LIB_DIR={folder}", *none_for_gpus)
        else:
            self.build_libraries(
                os.environ.get("HET_MARCH", "default"),
                prefix,
                f"-DHET_CUDA={os.environ.get('HET_CUDA', 'AUTO')}",
                f"-DHET_CUDA_ARCH={os.environ.get('HET_CUDA_ARCH', 'all')}",
            )

    def build_libraries(self, march: str, prefix: object, *options: str) -> None:
        """Builds with CMake, and installs below `prefix`."""
        directory = directory_of(march)
        run(
            "cmake", "-S", ROOT, "-B", directory, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
            "-DCMAKE_UNITY_BUILD=ON", "-DHET_BUILD_PLUGIN=ON", f"-DPython3_EXECUTABLE={sys.executable}",
            f"-DHET_MARCH={march}", *options,
        )  # fmt: skip
        run("cmake", "--build", directory, "--target", "het_plugin", "--parallel", "2")
        for component in ("plugin",) if PORTABLE else ("plugin", "gpu"):
            run("cmake", "--install", directory, "--component", component, "--strip", "--prefix", prefix)


class PlatformWheel(bdist_wheel):
    """The plugin uses neither Python's nor TensorFlow's C++ ABI: any Python 3, but this platform.

    libhet_tf_gpu.so uses TensorFlow's; it is loaded when a layer asks for it, and into no other version.
    """

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])

    def write_wheelfile(self, wheelfile_base: str, **arguments: object) -> None:
        super().write_wheelfile(wheelfile_base, **arguments)
        sboms = Path(wheelfile_base) / "sboms"
        sboms.mkdir(exist_ok=True)
        cache = directory_of(next(iter(LEVELS))) / "CMakeCache.txt"
        run(sys.executable, ROOT / "cmake" / "sbom.py", cache, sboms / "het_tf.cdx.json")


class BinaryDistribution(Distribution):
    """Has native code although setuptools compiles none of it."""

    def has_ext_modules(self) -> bool:
        return True


setup(
    distclass=BinaryDistribution,
    cmdclass={"build": FreshBuild, "build_py": BuildWithPlugin, "bdist_wheel": PlatformWheel},
    options={"build": {"build_base": "build/wheel"}},
)
