"""A native library of het_tf that TensorFlow loads: its raw ops, and its C functions (calling.py).

Importing this module imports TensorFlow; it fails with one line that names the remedy.
"""

import ctypes
import re
from pathlib import Path
from typing import Any

from het_tf.python.calling import caller as caller
from het_tf.python.calling import check, unloadable
from het_tf.python.versions import SUPPORTED, TESTED


def _import_tensorflow() -> Any:
    """Returns the module tensorflow. ImportError: it is missing, or its version is not supported."""
    try:
        import tensorflow
    except ImportError as error:
        raise ImportError(
            f"het_tf needs TensorFlow, which does not import ({error}); "
            f"run: pip install tensorflow-cpu=={TESTED[-1]}"
        ) from None
    release = tuple(int(number) for number in re.findall(r"\d+", tensorflow.__version__)[:2])
    if not SUPPORTED[0] <= release < SUPPORTED[1]:
        low, high = (".".join(map(str, version)) for version in SUPPORTED)
        raise ImportError(
            f"het_tf works with TensorFlow >={low},<{high} (tested: {', '.join(TESTED)}), "
            f"not {tensorflow.__version__}; run: pip install tensorflow-cpu=={TESTED[-1]}"
        )
    return tensorflow


tf: Any = _import_tensorflow()
KERAS_3 = hasattr(tf.keras, "ops")


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
