"""The native library with the engine: on TensorFlow the plugin libhet_tf.so, else libhet_engine.so.

`library` is the ctypes handle, `call` calls a management function (capi/management.h). On TensorFlow `tf` is
that module, and `ops` are the plugin's raw ops, which importing this module registers; on another backend
importing one of the two raises NeedsTensorFlow. A failure is one line with the remedy.
"""

import ctypes
import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python import backend, versions
from het_tf.python.calling import caller
from het_tf.python.calling import load as _load_engine

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]

library: ctypes.CDLL
if backend.TENSORFLOW:
    from het_tf.python.library import load as load
    from het_tf.python.library import tf as tf

    LIBRARY = versions.PLUGIN
    ops, library = load(LIBRARY)
else:
    LIBRARY = versions.ENGINE
    library = _load_engine(LIBRARY)
library.HetBuildInfo.restype = ctypes.c_char_p
library.HetScanFree.restype = None
call_in_step = caller(library)  # for callbacks of a step, which cannot wait for it


def _settled(function: str, *arguments: Any) -> str:
    """`call` behind the steps that run."""
    backend.settle()
    return call_in_step(function, *arguments)


call = _settled if backend.NAME == "jax" else call_in_step


def __getattr__(name: str) -> Any:
    """Refuses what only TensorFlow has."""
    if name in ("tf", "ops", "load"):
        raise backend.needs_tensorflow(str(sys._getframe(1).f_globals.get("__name__", "it")))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
