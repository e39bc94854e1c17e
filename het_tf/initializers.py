"""What rows begin with: `het_tf.initializers.RandomUniform(-0.05, 0.05)`.

A function of seed, table name and id. `get` makes one of a name or of a configuration.
"""

from het_tf.python.table.initializers import (
    Constant,
    Initializer,
    RandomNormal,
    RandomUniform,
    ScaledNormal,
    ScaledUniform,
    TruncatedNormal,
    Zeros,
    get,
)

__all__ = [
    "Constant",
    "Initializer",
    "RandomNormal",
    "RandomUniform",
    "ScaledNormal",
    "ScaledUniform",
    "TruncatedNormal",
    "Zeros",
    "get",
]
