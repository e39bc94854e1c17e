"""Ranking and retrieval: `het_tf.models.WideDeep(description)`; `het_tf.python.models` describes them."""

from het_tf.python.models import *  # noqa: F403
from het_tf.python.models import __all__ as __all__
