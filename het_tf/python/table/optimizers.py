"""Optimizers of rows (public as `het_tf.optimizers`).

A table has its own optimizer, separate from the dense variables': it runs where the row is cached, once
per distinct id and step, with the sum of the id's gradients ("lazy": rows that do not occur in a step do not
move). Clipping by norm and weight decay of the model's optimizer do not reach tables; `TableConfig(l2=...,
max_norm=...)` does.

`learning_rate` is a float, a `keras.optimizers.schedules.LearningRateSchedule` (its step counts the updates
of the table), a `tf.Variable` or Keras variable (read at every update), or "model": the rate of the model's
compiled optimizer. None means an argument's default, which the core fills in.
"""

from typing import Any

from het_tf.python import backend
from het_tf.python.backend import keras
from het_tf.python.table.spec import SpecObject, check_number, lookup_by_name

MODEL = "model"

Default = float | None  # None: the core's default


class Optimizer(SpecObject):
    """Base class.

    Args:
      learning_rate: float, schedule, variable, or "model".
      **parameters: Numbers of the table's spec.
    """

    _kind = "optimizer"

    def __init__(self, learning_rate: Any, **parameters: Any) -> None:
        super().__init__(**parameters)
        self.learning_rate = _checked_rate(learning_rate)

    def _to_spec(self) -> dict[str, Any]:
        """Returns the core's form: without the learning rate, which comes with every update."""
        return {
            "name": self._name,
            "params": {name: float(value) for name, value in self.arguments.items() if value is not None},
        }

    def get_config(self) -> dict[str, Any]:
        """Returns JSON, an input of `get`. A variable becomes its present value."""
        rate = self.learning_rate
        if is_schedule(rate):
            rate = keras.optimizers.schedules.serialize(rate)
        elif not isinstance(rate, (float, str)):
            rate = float(rate.numpy())
        return {"name": self._name, "learning_rate": rate, **self.arguments}

    def __repr__(self) -> str:
        parameters = "".join(f", {name}={value!r}" for name, value in self.arguments.items())
        return f"{type(self).__name__}({self.learning_rate!r}{parameters})"


def is_schedule(rate: Any) -> bool:
    """Whether `rate` is a learning-rate schedule of Keras."""
    return isinstance(rate, keras.optimizers.schedules.LearningRateSchedule)


def is_variable(rate: Any) -> bool:
    """Whether `rate` is a variable of TensorFlow or Keras."""
    if backend.TENSORFLOW:
        from het_tf.python.library import tf

        if isinstance(rate, tf.Variable):
            return True
    return isinstance(rate, keras.Variable)


def _checked_rate(rate: Any) -> Any:
    if rate == MODEL if isinstance(rate, str) else is_schedule(rate) or is_variable(rate):
        return rate
    if isinstance(rate, dict):
        return keras.optimizers.schedules.deserialize(rate)
    if isinstance(rate, (str, bool)) or rate is None:
        raise ValueError(
            f"learning_rate is {rate!r}; give a number, a Keras schedule or variable, or 'model' for the "
            "rate of the compiled optimizer"
        )
    check_number(rate, "learning_rate")
    if float(rate) < 0:
        raise ValueError(f"learning_rate is {rate!r}; it must be >= 0")
    return float(rate)


class SGD(Optimizer):
    """Gradient descent, as `keras.optimizers.SGD`: `value -= learning_rate * g`.

    Args:
      learning_rate: float, schedule, variable, or "model".
      momentum: 0 (default): no slots; above 0: one slot of dim floats, the velocity.
      nesterov: Whether momentum is Nesterov's; needs a momentum.
    """

    _name = "sgd"

    def __init__(self, learning_rate: Any = 0.01, momentum: float = 0.0, nesterov: bool = False) -> None:
        super().__init__(learning_rate, momentum=momentum, nesterov=bool(nesterov))

    def _to_spec(self) -> dict[str, Any]:
        """Returns the core's form, where momentum is a separate optimizer."""
        spec = super()._to_spec()
        if spec["params"].get("momentum"):
            return {**spec, "name": "momentum"}
        return {"name": self._name, "params": {}}


class RMSprop(Optimizer):
    """RMSProp (Tieleman and Hinton 2012), as `keras.optimizers.RMSprop`. One slot of dim floats.

    Defaults: rho 0.9, epsilon 1e-7.
    """

    _name = "rmsprop"

    def __init__(self, learning_rate: Any = 0.001, rho: Default = None, epsilon: Default = None) -> None:
        super().__init__(learning_rate, rho=rho, epsilon=epsilon)


class Adam(Optimizer):
    """Lazy Adam (Kingma and Ba 2015): rows that do not occur stay. Two slots of dim floats and a step.

    With `beta_1=0` there is no momentum, and no slot for it: dim floats and a step. Defaults: beta_1 0.9,
    beta_2 0.999, epsilon 1e-7.
    """

    _name = "adam"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: Default = None,
        beta_2: Default = None,
        epsilon: Default = None,
    ) -> None:
        super().__init__(learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon)


class Adagrad(Optimizer):
    """AdaGrad (Duchi, Hazan and Singer 2011), as `keras.optimizers.Adagrad`. One slot of dim floats.

    Defaults: initial_accumulator 0, epsilon 1e-10, decay_steps 1, which is AdaGrad; see `RowWiseAdagrad`.
    """

    _name = "adagrad"

    def __init__(
        self,
        learning_rate: Any = 0.05,
        initial_accumulator: Default = None,
        epsilon: Default = None,
        decay_steps: float = 1,
    ) -> None:
        super().__init__(
            learning_rate, initial_accumulator=initial_accumulator, epsilon=epsilon, decay_steps=decay_steps
        )


class RowWiseAdagrad(Optimizer):
    """AdaGrad with one accumulator a row: mean squared gradients (Mudigere et al. 2022). One float a row.

    A row that was updated n times, with the mean v of its mean squared gradients, moves by

        learning_rate / sqrt(1 + n / decay_steps) * g / sqrt(v)

    With `decay_steps=1` that is AdaGrad, whose first steps are the largest. With more, a row's first
    `decay_steps` steps or so have a root mean square of about the learning rate, and later ones shrink as
    AdaGrad's at the rate learning_rate * sqrt(decay_steps) do; with 1e9 they do not shrink. n is the row's
    clock, so the row needs no other float.

    Defaults: initial_accumulator 0, epsilon 1e-10, decay_steps 20 (docs/optimizers.md).
    """

    _name = "row_wise_adagrad"

    def __init__(
        self,
        learning_rate: Any = 0.02,
        initial_accumulator: Default = None,
        epsilon: Default = None,
        decay_steps: float = 20,
    ) -> None:
        super().__init__(
            learning_rate, initial_accumulator=initial_accumulator, epsilon=epsilon, decay_steps=decay_steps
        )


class Ftrl(Optimizer):
    """FTRL-Proximal (McMahan et al. 2013), as `keras.optimizers.Ftrl`: sparse weights for wide, linear parts.

    Two slots of dim floats and the last learning rate. Defaults: all 0.
    """

    _name = "ftrl"

    def __init__(
        self,
        learning_rate: Any = 0.05,
        l1: Default = None,
        l2: Default = None,
        beta: Default = None,
        l2_shrinkage: Default = None,
        initial_accumulator: Default = None,
    ) -> None:
        super().__init__(
            learning_rate,
            l1=l1,
            l2=l2,
            beta=beta,
            l2_shrinkage=l2_shrinkage,
            initial_accumulator=initial_accumulator,
        )


_CLASSES = (SGD, RMSprop, Adam, Adagrad, RowWiseAdagrad, Ftrl)


def get(optimizer: str | dict[str, Any] | Optimizer | None) -> Optimizer:
    """Returns an optimizer.

    Args:
      optimizer: An instance, the name of one ("adam", "row_wise_adagrad", ...), its `get_config()`, or None
        for `RowWiseAdagrad()`.

    Raises:
      ValueError: The name is unknown, or it is an optimizer of Keras.
    """
    made = lookup_by_name(optimizer, RowWiseAdagrad, _CLASSES, "optimizer", "het_tf.optimizers")
    assert isinstance(made, Optimizer)
    return made
