"""`het_tf.models`: another name of `het_tf.python.models`."""

import sys

from het_tf.python import models

sys.modules[__name__] = models
