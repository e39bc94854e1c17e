"""A native library of het_tf: its raw TensorFlow ops, and its C functions.

Importing this module imports TensorFlow; it fails with one line that names the remedy.
"""

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from het_tf.python import versions
from het_tf.python.quoting import shortened
from het_tf.python.versions import SUPPORTED, TESTED

# het::Code -> the corresponding exception of Python.
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
    if not path.exists():
        raise ImportError(f"het_tf's native library {path} is missing; run: {versions.build_command()}")
    march = versions.plugin_march(path)
    if lacks := versions.cpu_lacks(march):
        raise ImportError(
            f"het_tf's native library is built for {march}, but this CPU lacks {', '.join(lacks)}; "
            f"run: {versions.build_command('HET_MARCH=')}"
        )
    try:
        ops, handle = tf.load_op_library(str(path)), ctypes.CDLL(str(path))
    except (OSError, tf.errors.NotFoundError) as error:
        why = (str(error).strip() or "unknown error").splitlines()[0]
        raise ImportError(
            f"het_tf's native library does not load ({why}); run: {versions.build_command()}"
        ) from None
    handle.HetText.restype = ctypes.c_char_p
    return ops, handle


def caller(handle: ctypes.CDLL) -> Callable[..., str]:
    """Returns a library's function `call`, which calls a C function by name and returns its text."""

    def call(function: str, *arguments: Any) -> str:
        """Calls a C function (capi/management.h, inputs/capi.h) and returns its text.

        Args:
          function: Its name.
          *arguments: str become UTF-8, int become int64 or size_t, arrays of numpy become pointers.

        Raises:
          ValueError, LookupError, RuntimeError, MemoryError, NotImplementedError, TimeoutError,
          ConnectionError or OSError, by the code of the error.
        """
        converted = [_to_c(argument) for argument in arguments]
        code = getattr(handle, function)(*converted)
        text = (handle.HetText() or b"").decode(errors="replace")  # a server may send anything
        if code != 0:
            raise _EXCEPTIONS.get(code, RuntimeError)(shortened(text))
        return text

    return call


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
