"""Modules of benchmarks/, which is no package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def benchmark(name: str, folder: Path = BENCHMARKS) -> ModuleType:
    """Imports a module from the folder."""
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
