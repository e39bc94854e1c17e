"""How a native library's C functions are called (capi/management.h); without TensorFlow."""

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from het_tf.python import versions
from het_tf.python.quoting import shortened

# het::Code -> the corresponding exception of Python.
_EXCEPTIONS: dict[int, type[BaseException]] = {
    1: KeyboardInterrupt,  # cancelled: Ctrl-C ended a wait
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


def check(path: Path) -> None:
    """Raises ImportError if a library is missing, or built for another CPU."""
    if not path.exists():
        raise ImportError(f"het_tf's native library {path} is missing; run: {versions.build_command()}")
    march = versions.plugin_march(path)
    if lacks := versions.cpu_lacks(march):
        raise ImportError(
            f"het_tf's native library is built for {march}, but this CPU lacks {', '.join(lacks)}; "
            f"run: {versions.build_command('HET_MARCH=')}"
        )


def load(path: Path) -> ctypes.CDLL:
    """Returns the handle of a library that does not need TensorFlow.

    Raises:
      ImportError: The library is missing, built for another CPU, or does not load.
    """
    check(path)
    try:
        handle = ctypes.CDLL(str(path))
    except OSError as error:
        raise unloadable(error) from None
    handle.HetText.restype = ctypes.c_char_p
    return handle


def unloadable(error: Exception) -> ImportError:
    """Returns the error of a library that does not load."""
    why = (str(error).strip() or "unknown error").splitlines()[0]
    return ImportError(f"het_tf's native library does not load ({why}); run: {versions.build_command()}")


def caller(handle: ctypes.CDLL) -> Callable[..., str]:
    """Returns a library's function `call`, which calls a C function by name and returns its text."""

    def call(function: str, *arguments: Any) -> str:
        """Calls a C function (capi/management.h, inputs/capi.h) and returns its text.

        Args:
          function: Its name.
          *arguments: str become UTF-8, int become int64 or size_t, arrays of numpy become pointers.

        Raises:
          ValueError, LookupError, RuntimeError, MemoryError, NotImplementedError, TimeoutError,
          ConnectionError, OSError or KeyboardInterrupt, by the code of the error.
        """
        converted = [_to_c(argument) for argument in arguments]
        code = getattr(handle, function)(*converted)
        text = _text(handle)
        if code != 0:
            raise _error(code, text)
        return text

    return call


def bound(handle: ctypes.CDLL, name: str, *types: Any) -> Callable[..., None]:
    """Returns a C function of what a step calls: with the types of its arguments, and without a text.

    It raises as `call` does. An address is an int, an array of ctypes or None.
    """
    function = handle[name]  # an object of its own
    function.argtypes = types

    def call(*arguments: Any) -> None:
        code = function(*arguments)
        if code != 0:
            raise _error(code, _text(handle))

    return call


def _text(handle: ctypes.CDLL) -> str:
    return str((handle.HetText() or b"").decode(errors="replace"))  # a server may send anything


def _error(code: int, text: str) -> BaseException:
    return _EXCEPTIONS.get(code, RuntimeError)(shortened(text))


_PASSWORD = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t)  # HetPassword
_passwords: list[Any] = []  # a server's connections may be made as long as the process lives


def password(ask: Callable[[], str] | None) -> Any:
    """Returns a function that gives the password of new connections as a HetPassword; None: there is none."""
    if ask is None:
        return _PASSWORD()

    def write(out: int, room: int) -> int:
        try:
            text, sign = ask().encode(), 1
            if not text or len(text) > room:
                raise ValueError(f"it has {len(text)} bytes; a password has 1 to {room}")
        except BaseException as error:  # Ctrl-C, too: it must not be lost in the core
            what = (
                "it is no string" if isinstance(error, AttributeError) else f"{type(error).__name__}: {error}"
            )
            text, sign = what.encode(errors="replace")[:room], -1
        ctypes.memmove(out, text, len(text))
        return sign * len(text)

    _passwords.append(_PASSWORD(write))
    return _passwords[-1]


@functools.cache
def tools() -> Callable[..., str]:
    """Returns `call` of libhet_engine.so, whose functions need no TensorFlow."""
    return caller(load(versions.ENGINE))


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
    if hasattr(value, "ctypes"):  # an array of NumPy, which het ps does not load
        return value.ctypes.data_as(ctypes.c_void_p)
    return value
