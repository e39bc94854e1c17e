"""A native library of het_tf that TensorFlow loads: its raw ops, and its C functions (calling.py).

Importing this module imports TensorFlow; it fails with one line that names the remedy.
"""

import ctypes
from pathlib import Path
from typing import Any

from het_tf.python import backend
from het_tf.python.calling import caller as caller
from het_tf.python.calling import check, unloadable
from het_tf.python.importing import import_tensorflow

if not backend.TENSORFLOW:
    raise backend.needs_tensorflow(__name__)
tf: Any = import_tensorflow()


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
