"""Initial values of rows (public as `het_tf.initializers`).

The row of an unwritten id is a pure function of (seed, table, id): every worker, server and
restart agrees on it, and it costs no memory.
"""

from typing import Any

from het_tf.python.table.spec import SpecObject, lookup_by_name


class Initializer(SpecObject):
    """Base class. Instances come from its subclasses."""

    _kind = "initializer"

    def _to_spec(self) -> dict[str, Any]:
        """Returns the core's form."""
        numbers = list(self.arguments.values())
        spec: dict[str, Any] = {"name": self._name}
        for field, number in zip("ab", numbers, strict=False):
            spec[field] = float(number)
        return spec


class Zeros(Initializer):
    """All elements 0."""

    _name = "zeros"

    def __init__(self) -> None:
        super().__init__()


class Constant(Initializer):
    """All elements `value`."""

    _name = "constant"

    def __init__(self, value: float = 0.0) -> None:
        super().__init__(value=value)


class RandomUniform(Initializer):
    """Uniform in `[minval, maxval)`. The default is that of `keras.layers.Embedding`."""

    _name = "uniform"

    def __init__(self, minval: float = -0.05, maxval: float = 0.05) -> None:
        super().__init__(minval=minval, maxval=maxval)


class RandomNormal(Initializer):
    """Normal with mean `mean` and standard deviation `stddev`."""

    _name = "normal"

    def __init__(self, mean: float = 0.0, stddev: float = 0.05) -> None:
        super().__init__(mean=mean, stddev=stddev)


_CLASSES = (Zeros, Constant, RandomUniform, RandomNormal)


def of_keras(initializer: Any) -> Initializer | None:
    """Returns the initializer of het_tf with the same distribution, or None."""
    config = initializer.get_config() if hasattr(initializer, "get_config") else {}
    kind = type(initializer).__name__
    if kind == "RandomUniform":
        return RandomUniform(config["minval"], config["maxval"])
    if kind == "RandomNormal":
        return RandomNormal(config["mean"], config["stddev"])
    if kind == "Zeros":
        return Zeros()
    if kind == "Ones":
        return Constant(1.0)
    if kind == "Constant" and isinstance(config["value"], (int, float)):
        return Constant(float(config["value"]))
    return None


def get(initializer: Any) -> Initializer:
    """Returns an initializer.

    Args:
      initializer: An instance, the name of one ("uniform", "zeros", ...), its `get_config()`, one of Keras
        with the same distribution, or None for `RandomUniform()`.

    Raises:
      ValueError: The name is unknown, or Keras' initializer has no counterpart.
    """
    made = of_keras(initializer) or lookup_by_name(
        initializer, RandomUniform, _CLASSES, "initializer", "het_tf.initializers"
    )
    assert isinstance(made, Initializer)
    return made
