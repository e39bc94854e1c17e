"""libhet_testing.so, the core without TensorFlow, for ctypes."""

from __future__ import annotations

import ctypes
import os
import pathlib


def load() -> ctypes.CDLL:
    """The library of the release build, or the one that HET_TESTING_LIB names."""
    default = pathlib.Path(__file__).parents[3] / "build" / "release" / "libhet_testing.so"
    path = pathlib.Path(os.environ.get("HET_TESTING_LIB", default))
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing; build the CMake target het_testing or set HET_TESTING_LIB"
        )
    return ctypes.CDLL(str(path))
