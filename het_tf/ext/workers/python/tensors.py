"""The operations of the rules of placed streams, on tensors."""

from typing import Any

from het_tf.ext.placement.python.placement import Numpy
from het_tf.python.session.native import tf


class Tensors(Numpy):
    """`Numpy` on tensors."""

    bitwise_xor = staticmethod(tf.bitwise.bitwise_xor)
    concat = staticmethod(tf.concat)
    cumprod = staticmethod(tf.math.cumprod)
    cumsum = staticmethod(tf.cumsum)
    mask = staticmethod(tf.boolean_mask)
    minimum = staticmethod(tf.minimum)
    reshape = staticmethod(tf.reshape)
    right_shift = staticmethod(tf.bitwise.right_shift)
    sort = staticmethod(tf.sort)
    take = staticmethod(tf.gather)

    @staticmethod
    def arange(size: Any) -> Any:
        """Returns 0, 1, ... as int64."""
        return tf.range(tf.cast(size, tf.int64))

    @staticmethod
    def full(size: Any, value: Any) -> Any:
        """A vector of one value."""
        return tf.fill([size], tf.constant(value))

    @staticmethod
    def is_text(values: Any) -> bool:
        """Whether the values are strings."""
        return bool(values.dtype == tf.string)

    @staticmethod
    def row_sums(values: Any) -> Any:
        """Sums over the last axis."""
        return tf.reduce_sum(values, axis=-1)

    @staticmethod
    def searchsorted(values: Any, wanted: Any, side: str = "left") -> Any:
        """Insertion points of values, int64."""
        return tf.searchsorted(values, wanted, side=side, out_type=tf.int64)

    @staticmethod
    def signed(words: Any) -> Any:
        """Words below 2^63 as int64."""
        return tf.cast(words, tf.int64)

    @staticmethod
    def size(values: Any) -> Any:
        """The number of elements."""
        return tf.size(values, tf.int64)

    @staticmethod
    def text(values: Any) -> tuple[Any, Any]:
        """The bytes of strings, padded by 0, and their lengths."""
        lengths = tf.strings.length(values)
        longest = tf.maximum(tf.reduce_max(lengths), 1)
        letters = tf.io.decode_raw(values, tf.uint8, fixed_length=longest)
        return tf.cast(letters, tf.uint64), tf.cast(lengths, tf.uint64)

    @staticmethod
    def width(values: Any) -> Any:
        """The size of the last of two axes."""
        return tf.shape(values)[1]

    @staticmethod
    def words(values: Any) -> Any:
        """Integers as uint64, modulo 2^64."""
        return tf.bitcast(tf.cast(values, tf.int64), tf.uint64)
