"""The native library: checks that it can be loaded, loads it, and calls its management functions.

`library` is the ctypes handle, `ops` the module of raw TensorFlow ops. Importing this module is what makes
TensorFlow know the ops; it fails with one line that names the remedy.
"""

import ctypes
import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python import versions
from het_tf.python.session.quoting import shortened
from het_tf.python.versions import SUPPORTED, TESTED

LIBRARY = versions.PLUGIN

# het::Code -> the exception of Python that says the same.
_EXCEPTIONS: dict[int, type[Exception]] = {
    2: OSError,  # the operating system refused a file
    3: ValueError,  # invalid argument
    4: TimeoutError,  # deadline exceeded
    5: LookupError,  # not found
    6: ValueError,  # already exists
    8: MemoryError,  # resource exhausted
    9: RuntimeError,  # failed precondition
    12: NotImplementedError,  # unimplemented
    14: ConnectionError,  # unavailable
}

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]


def _import_tensorflow() -> Any:
    """Returns the module tensorflow. ImportError: there is none, or its version is not supported."""
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


def _load() -> tuple[Any, ctypes.CDLL]:
    """Returns the module of ops and the ctypes handle. ImportError: no library, or one that does not load."""
    if not LIBRARY.exists():
        raise ImportError(f"het_tf's native library {LIBRARY} is missing; run: {versions.build_command()}")
    march = versions.plugin_march(LIBRARY)
    if lacks := versions.cpu_lacks(march):
        raise ImportError(
            f"het_tf's native library is built for {march}, and this CPU lacks {', '.join(lacks)}; "
            f"run: {versions.build_command('HET_MARCH=')}"
        )
    try:
        return tf.load_op_library(str(LIBRARY)), ctypes.CDLL(str(LIBRARY))
    except (OSError, tf.errors.NotFoundError) as error:
        why = (str(error).strip() or "unknown error").splitlines()[0]
        raise ImportError(
            f"het_tf's native library does not load ({why}); run: {versions.build_command()}"
        ) from None


tf: Any = _import_tensorflow()
KERAS_3 = hasattr(tf.keras, "ops")
ops, library = _load()
library.HetText.restype = ctypes.c_char_p
library.HetBuildInfo.restype = ctypes.c_char_p
library.HetScanFree.restype = None


def call(function: str, *arguments: Any) -> str:
    """Calls a management function (capi/management.h) and returns its text.

    Args:
      function: Its name.
      *arguments: str become UTF-8, int become int64 or size_t, arrays of numpy become pointers.

    Raises:
      ValueError, LookupError, RuntimeError, MemoryError, NotImplementedError, TimeoutError or
      ConnectionError or OSError, by the code of the error.
    """
    converted = [_to_c(argument) for argument in arguments]
    code = getattr(library, function)(*converted)
    text = (library.HetText() or b"").decode(errors="replace")  # of a server it may be anything
    if code != 0:
        raise _EXCEPTIONS.get(code, RuntimeError)(shortened(text))
    return text


def call_int(function: str, *arguments: Any) -> int:
    """Calls a management function whose last parameter is an int64 that it sets; returns that."""
    out = ctypes.c_int64()
    call(function, *arguments, ctypes.byref(out))
    return out.value


def _to_c(value: Any) -> Any:
    if isinstance(value, str):
        try:
            text = value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{value!r} cannot be written as UTF-8; give another name") from None
        if b"\0" in text:
            raise ValueError(f"{value!r} has a zero character; give another name")
        return text
    if isinstance(value, int):
        return ctypes.c_int64(value)
    if isinstance(value, np.ndarray):
        return value.ctypes.data_as(ctypes.c_void_p)
    return value


def build_info() -> dict[str, str]:
    """How the native library was built: version, compiler, march, tf_headers, build_type."""
    import json

    return dict(json.loads(library.HetBuildInfo()))


def plain(value: Any) -> Any:
    """A number as JSON has it: numpy's as Python's, a whole float as an int, NaN as text; else `value`."""
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, float) or math.isinf(value):
        return value
    return str(value) if math.isnan(value) else int(value) if value.is_integer() else value
