"""Initial values of rows: `het_tf.initializers.RandomUniform(-0.05, 0.05)`.

They are a function of seed, table name and id.
"""

from het_tf.python.gone import refuse
from het_tf.python.table.initializers import Constant, RandomNormal, RandomUniform, Zeros

__getattr__ = refuse(__name__)
__all__ = ["Constant", "RandomNormal", "RandomUniform", "Zeros"]
