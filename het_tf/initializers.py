"""What rows begin with: `het_tf.initializers.Uniform(-0.05, 0.05)`.

A function of seed, table name and id. `get` makes one of a name or of a configuration.
"""

from het_tf.python.table.initializers import (
    Constant,
    Initializer,
    Normal,
    ScaledNormal,
    ScaledUniform,
    TruncatedNormal,
    Uniform,
    Zeros,
    get,
)

__all__ = [
    "Constant",
    "Initializer",
    "Normal",
    "ScaledNormal",
    "ScaledUniform",
    "TruncatedNormal",
    "Uniform",
    "Zeros",
    "get",
]
