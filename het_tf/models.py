"""`het_tf.models`: another name of `het_tf.python.models`."""

import importlib
import sys

sys.modules[__name__] = importlib.import_module("het_tf.python.models")
