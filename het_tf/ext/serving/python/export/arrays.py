"""Makes large variables from arrays without a second copy in memory.

TensorFlow copies an array of numpy into a tensor. By DLPack it takes over a buffer that begins
at a multiple of 64 bytes; and a variable made from a tensor shares its buffer.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.session.native import tf

_ALIGNMENT = 64


def zeros(shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    """Returns an array of zeros that `variable` can take over."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + _ALIGNMENT, np.uint8)
    first = -raw.ctypes.data % _ALIGNMENT
    array: npt.NDArray[Any] = raw[first : first + size].view(dtype).reshape(shape)
    return array


def variable(array: npt.NDArray[Any], name: str) -> Any:
    """Makes a variable that takes over an array of `zeros`; do not write to the array afterwards."""
    bfloat16 = tf.bfloat16.as_numpy_dtype
    with tf.device("CPU:0"):
        if array.size == 0:
            return tf.Variable(array, trainable=False, name=name)
        if array.dtype == bfloat16:  # numpy cannot export it
            shared = tf.experimental.dlpack.from_dlpack(array.view(np.uint16).__dlpack__())
            return tf.Variable(tf.bitcast(shared, tf.bfloat16), trainable=False, name=name)
        shared = tf.experimental.dlpack.from_dlpack(array.__dlpack__())
        return tf.Variable(shared, trainable=False, name=name)
