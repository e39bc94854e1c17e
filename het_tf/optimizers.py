"""The optimizers of tables: `het_tf.optimizers.Adam(1e-3)`.

Each table is trained by one of its own, which keeps its state in the rows. `get` makes one of a
name or of a configuration.
"""

from het_tf.python.table.optimizers import (
    SGD,
    Adagrad,
    Adam,
    Ftrl,
    Optimizer,
    RMSprop,
    RowWiseAdagrad,
    get,
)

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "Ftrl",
    "Optimizer",
    "RMSprop",
    "RowWiseAdagrad",
    "get",
]
