"""The functions that the library of GPU kernels calls (het_tf/capi/device.h), without TensorFlow's part."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "build" / "release" / "tests" / "cpp" / "libhet_device_reference.so"


@pytest.mark.slow
def test_lookup_and_apply_as_a_kernel_calls_them() -> None:
    library = os.environ.get("HET_DEVICE_LIBRARY", str(REFERENCE))
    if not Path(library).exists():
        pytest.skip(f"{library} is missing: build the C++ tests")
    # In a process of its own: a process has one such library.
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/python/lib/device_functions_worker.py"), library],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "all is well" in done.stdout
