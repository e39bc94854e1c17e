"""`het_tf.data`: another name of `het_tf.python.data`."""

import sys

from het_tf.python import data

sys.modules[__name__] = data
