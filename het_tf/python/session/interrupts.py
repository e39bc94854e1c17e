"""Ctrl-C while TensorFlow runs an op that waits for a server.

The core (core/base/interrupt.h) ends the wait with `CancelledError` and holds the signal back: TensorFlow
makes the exception in C++ by calling its class. If Python turned the signal into KeyboardInterrupt within
that call, pybind11 would fail with a RuntimeError, "MISMATCH of original and normalized active exception
types". So the signal is passed on in the moment in which the call returns.
"""

import ctypes
import functools
from typing import Any

from het_tf.python.session.native import library, tf

_pass_on = ctypes.cast(library.HetPassInterruptOn, ctypes.c_void_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


@functools.cache
def prepare() -> None:
    """Lets `CancelledError` pass a held signal on, from now on in this process."""
    make = tf.errors.CancelledError.__init__

    @functools.wraps(make)
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        # Its destructor, a C function, runs when this frame ends. A call would be too early: Python handles
        # signals behind every call, which here is still within TensorFlow's.
        _ = _new_capsule(_pass_on, None, _pass_on)

    tf.errors.CancelledError.__init__ = init
