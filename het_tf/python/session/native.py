"""The plugin, libhet_tf.so: its ops, and the management functions (capi/management.h).

`library` is the ctypes handle, `ops` the module of raw TensorFlow ops. Importing this module registers the
ops in TensorFlow; a failure is one line with the remedy.
"""

import ctypes
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python import versions
from het_tf.python.library import caller, load
from het_tf.python.library import tf as tf

LIBRARY = versions.PLUGIN

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]

ops, library = load(LIBRARY)
library.HetBuildInfo.restype = ctypes.c_char_p
library.HetScanFree.restype = None
call = caller(library)


def call_int(function: str, *arguments: Any) -> int:
    """Calls a management function that sets its last parameter, an int64; returns that."""
    out = ctypes.c_int64()
    call(function, *arguments, ctypes.byref(out))
    return out.value


def build_info() -> dict[str, str]:
    """Returns version, compiler, march, tf_headers and build_type of the native library."""
    import json

    return dict(json.loads(library.HetBuildInfo()))


def plain(value: Any) -> Any:
    """Converts a number for JSON: numpy's to Python's, a whole float to int, NaN to text; else `value`."""
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, float) or math.isinf(value):
        return value
    return str(value) if math.isnan(value) else int(value) if value.is_integer() else value
