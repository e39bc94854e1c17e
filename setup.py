"""Builds the wheel: CMake makes the native libraries, setuptools packs them with the Python files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
CMAKE_DIR = ROOT / "build" / "wheel" / "cmake"


def run(*command: object) -> None:
    """Runs one step of the native build; a failure ends setup with one line that names the remedy."""
    try:
        subprocess.run([str(part) for part in command], cwd=ROOT, check=True)
    except FileNotFoundError:
        raise SystemExit(f"error: {command[0]} is missing. Remedy: pip install cmake ninja") from None
    except subprocess.CalledProcessError:
        raise SystemExit(
            "error: the native build failed (above). A missing compiler: apt-get install g++; "
            "missing headers: pip install -r requirements/build.txt -r requirements/tensorflow.txt"
        ) from None


class FreshBuild(build):
    """Starts from an empty directory, so that a deleted source file cannot reach the wheel."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildWithPlugin(build_py):
    """Adds the libraries of het_tf/lib, built for this wheel, to the Python files.

    Those for GPUs too: libhet_tf_gpu.so, which fits the TensorFlow that it is built with alone, and where
    there is nvcc libhet_cuda.so. HET_CUDA_ARCH and HET_CUDA of the environment are CMake's
    (cmake/HetCuda.cmake).
    """

    def run(self) -> None:
        super().run()
        prefix = ROOT if self.editable_mode else self.build_lib
        run(
            "cmake", "-S", ROOT, "-B", CMAKE_DIR, "-G", "Ninja",
            "-DCMAKE_BUILD_TYPE=Release", "-DHET_BUILD_PLUGIN=ON",
            f"-DPython3_EXECUTABLE={sys.executable}", f"-DHET_MARCH={os.environ.get('HET_MARCH', 'default')}",
            f"-DHET_CUDA={os.environ.get('HET_CUDA', 'AUTO')}",
            f"-DHET_CUDA_ARCH={os.environ.get('HET_CUDA_ARCH', 'all')}",
        )  # fmt: skip
        run("cmake", "--build", CMAKE_DIR, "--target", "het_plugin", "--parallel", "2")
        run("cmake", "--install", CMAKE_DIR, "--component", "plugin", "--strip", "--prefix", prefix)


class PlatformWheel(bdist_wheel):
    """The plugin uses neither Python's nor TensorFlow's C++ ABI: any Python 3, but this platform.

    libhet_tf_gpu.so uses TensorFlow's; it is loaded when a layer asks for it, and into no other version.
    """

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


class BinaryDistribution(Distribution):
    """Has native code although setuptools compiles none of it."""

    def has_ext_modules(self) -> bool:
        return True


setup(
    distclass=BinaryDistribution,
    cmdclass={"build": FreshBuild, "build_py": BuildWithPlugin, "bdist_wheel": PlatformWheel},
    options={"build": {"build_base": "build/wheel"}},
)
