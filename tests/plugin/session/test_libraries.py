"""The choice of the native library, and its symbols from TensorFlow."""

import types
from pathlib import Path

import pytest
from tools_lib import ROOT, python

from het_tf.python import versions


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with libraries for two levels of CPUs."""
    for folder in ("lib", "lib/x86-64-v3"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "libhet_tf.so").write_bytes(b"")
    monkeypatch.setattr(versions, "PACKAGE", tmp_path)
    return tmp_path


def test_the_cpu_decides_between_two_libraries(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "cpu_lacks", lambda march: [])
    assert versions.library("libhet_tf.so") == package / "lib/x86-64-v3/libhet_tf.so"
    monkeypatch.setattr(versions, "cpu_lacks", lambda march: ["avx2"] if march == "x86-64-v3" else [])
    assert versions.library("libhet_tf.so") == package / "lib/libhet_tf.so"


def test_missing_library_error_names_build_path(package: Path) -> None:
    assert versions.library("libhet_cuda.so") == package / "lib/libhet_cuda.so"


def test_gpu_libraries_come_from_het_tf_gpu(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "het_tf_gpu"
    (other / "lib").mkdir(parents=True)
    (other / "lib/libhet_cuda.so").write_bytes(b"")
    spec = types.SimpleNamespace(origin=str(other / "__init__.py"))
    monkeypatch.setattr(versions.importlib.util, "find_spec", lambda name: spec)
    assert versions.library("libhet_cuda.so") == other / "lib/libhet_cuda.so"


def test_plugin_uses_only_tensorflow_c_api() -> None:
    # zlib and std::string were taken from TensorFlow's library, which exports its own.
    assert "TensorFlow installed: has all of them" in python(ROOT / "tools/tf_symbols.py").stdout
