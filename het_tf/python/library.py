"""A native library of het_tf that TensorFlow loads: its raw ops, and its C functions (calling.py).

Importing this module imports TensorFlow; it fails with one line that names the remedy.
"""

import ctypes
import os
import re
from pathlib import Path
from typing import Any

from het_tf.python import versions
from het_tf.python.calling import caller as caller
from het_tf.python.calling import check, unloadable


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _import_tensorflow() -> Any:
    """Returns the module tensorflow. ImportError: it or Keras is missing, or its version is not supported."""
    pip = f"pip install tensorflow-cpu=={versions.TESTED}"
    try:
        import tensorflow
    except ImportError as error:
        raise ImportError(f"het_tf needs TensorFlow, which does not import ({error}); run: {pip}") from None
    first, after = map(_release, versions.TENSORFLOW)
    if not first <= _release(tensorflow.__version__) < after:
        raise ImportError(f"{versions.WORKS_WITH}, not TensorFlow {tensorflow.__version__}; run: {pip}")
    legacy = os.environ.get("TF_USE_LEGACY_KERAS")
    if legacy in ("1", "true", "True"):  # as TensorFlow reads it
        raise ImportError(
            f"{versions.WORKS_WITH}, not Keras 2 (tf-keras), which TF_USE_LEGACY_KERAS={legacy} chooses; "
            f"run: unset TF_USE_LEGACY_KERAS; {versions.PIP_KERAS}"
        )
    try:
        import keras
    except Exception as error:  # Keras 2 of another TensorFlow ends with an AttributeError
        raise ImportError(
            f"{versions.WORKS_WITH}, but Keras does not import ({error}); run: {versions.PIP_KERAS}"
        ) from None
    if _release(keras.__version__) < _release(versions.KERAS):
        raise ImportError(f"{versions.WORKS_WITH}, not Keras {keras.__version__}; run: {versions.PIP_KERAS}")
    return tensorflow


tf: Any = _import_tensorflow()


def load(path: Path) -> tuple[Any, ctypes.CDLL]:
    """Returns the module of a library's ops and its ctypes handle.

    Raises:
      ImportError: The library is missing, built for another CPU, or does not load.
    """
    check(path)
    try:
        ops, handle = tf.load_op_library(str(path)), ctypes.CDLL(str(path))
    except (OSError, tf.errors.NotFoundError) as error:
        raise unloadable(error) from None
    handle.HetText.restype = ctypes.c_char_p
    return ops, handle
