"""`het_tf.data`: another name of `het_tf.python.data`."""

import importlib
import sys

sys.modules[__name__] = importlib.import_module("het_tf.python.data")
