"""Data sets for click-through models; `het_tf.python.data` describes their common shape."""

from het_tf.python.data import *  # noqa: F403
from het_tf.python.data import __all__ as __all__
