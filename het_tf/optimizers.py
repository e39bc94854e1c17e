"""The optimizers of tables: `het_tf.optimizers.Adam(1e-3)`.

Each table has its own optimizer, which keeps its state in the rows.
"""

from het_tf.python.gone import refuse
from het_tf.python.table.optimizers import SGD, Adagrad, Adam, Ftrl, RMSprop, RowWiseAdagrad

__getattr__ = refuse(__name__)
__all__ = ["SGD", "Adagrad", "Adam", "Ftrl", "RMSprop", "RowWiseAdagrad"]
