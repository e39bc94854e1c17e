"""Maps initializers of Keras to initializers of rows, which make the rows of later ids."""

from typing import Any

from het_tf.python.session.native import tf
from het_tf.python.table import initializers
from het_tf.python.table.initializers import Initializer

keras: Any = tf.keras


def of_keras(initializer: Any) -> Initializer | None:
    """Returns the initializer of het_tf with the same distribution, or None."""
    config = initializer.get_config() if hasattr(initializer, "get_config") else {}
    kind = type(initializer).__name__
    if kind == "RandomUniform":
        return initializers.RandomUniform(config["minval"], config["maxval"])
    if kind == "RandomNormal":
        return initializers.RandomNormal(config["mean"], config["stddev"])
    if kind == "TruncatedNormal":
        return initializers.TruncatedNormal(config["mean"], config["stddev"])
    if kind == "Zeros":
        return initializers.Zeros()
    if kind == "Ones":
        return initializers.Constant(1.0)
    if kind == "Constant" and isinstance(config["value"], (int, float)):
        return initializers.Constant(float(config["value"]))
    return None
