"""Builds the wheel het_tf_gpu: libhet_tf_gpu.so, and libhet_cuda.so where there is nvcc.

It has no Python of its own: het_tf finds the libraries here (het_tf/python/versions.py). libhet_tf_gpu.so
fits the TensorFlow that it is built with, and needs the het_tf of its own version.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VERSION = re.findall(r'__version__ = "([^"]+)"', (ROOT / "het_tf" / "_version.py").read_text())[0]
shutil.copyfile(ROOT / "LICENSE", HERE / "LICENSE")


class BuildLibraries(build_py):
    """Adds the libraries to the package."""

    def run(self) -> None:
        super().run()
        directory = ROOT / "build" / "wheel" / "gpu"
        configure = [
            "cmake", "-S", ROOT, "-B", directory, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
            "-DCMAKE_UNITY_BUILD=ON", "-DHET_LIB_DIR=het_tf_gpu/lib",
            f"-DPython3_EXECUTABLE={sys.executable}",
            f"-DHET_CUDA={os.environ.get('HET_CUDA', 'ON')}", "-DHET_MARCH=x86-64-v2",
            f"-DHET_CUDA_ARCH={os.environ.get('HET_CUDA_ARCH', 'all')}",
        ]  # fmt: skip
        install = [
            "cmake",
            "--install",
            directory,
            "--component",
            "gpu",
            "--strip",
            "--prefix",
            self.build_lib,
        ]
        for command in (configure, ["cmake", "--build", directory, "--parallel", "2"], install):
            subprocess.run([str(part) for part in command], check=True)


class PlatformWheel(bdist_wheel):
    """Any Python 3, but this platform."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


class BinaryDistribution(Distribution):
    """Has native code although setuptools compiles none of it."""

    def has_ext_modules(self) -> bool:
        return True


setup(
    version=VERSION,
    install_requires=[f"het_tf=={VERSION}"],
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildLibraries, "bdist_wheel": PlatformWheel},
    options={"build": {"build_base": str(ROOT / "build" / "wheel" / "gpu_package")}},
)
