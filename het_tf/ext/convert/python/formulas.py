"""Maps optimizers of Keras to optimizers of rows with the same formula, and their state to slots.

    keras.optimizers          het_tf.optimizers   state of Keras           slots of a row
    SGD                       SGD
    SGD(momentum=...)         SGD(momentum=...)   momentums                momentum
    RMSprop                   RMSprop             velocities               velocity
    Adagrad                   Adagrad             accumulators             accumulator
    Adam, AdamW               Adam                momentums, velocities    m, v, step = iterations
    Ftrl                      Ftrl                linears, accumulators    z, n, last learning rate

The formulas are equal including epsilon (inside the root for RMSprop and Adagrad, after it for Adam), checked
step by step in tests/convert.

The rows that move in a step differ: Keras moves all rows of a variable with a dense gradient or decaying
averages; tables move only rows that occur.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from het_tf.ext.convert.python import state
from het_tf.python.layer import unreached
from het_tf.python.session import native
from het_tf.python.table import optimizers
from het_tf.python.table.optimizers import MODEL, Optimizer

_SLOW = 0.005  # a rate below it was chosen for Keras' Adam
Parts = list[native.FloatArray]


@dataclass(frozen=True)
class Formula:
    """The counterpart in het_tf of an optimizer of Keras.

    Attributes:
      optimizer: The optimizer of rows, with the model's learning rate; None: het_tf lacks the formula.
      notes: Differences, for the user.
      slots: Returns a variable's slots in the order of a row, float32 [N, dim] or [N, 1]; None: the
        optimizer has not trained yet.
      too_slow: A note for tables that follow the model's learning rate; "": the rate suits them.
    """

    optimizer: Optimizer | None
    notes: list[str] = field(default_factory=list)
    slots: Callable[[Any], Parts] | None = None
    too_slow: str = ""


def formula_of(optimizer: Any) -> Formula:
    """Returns the counterpart of a compiled optimizer of Keras, without its LossScaleOptimizer."""
    kind = type(optimizer).__name__
    rule = _RULES.get(kind) if type(optimizer).__module__.startswith("keras") else None
    if rule is None:
        made, notes, slots = _none(f"formula of {kind}")
    else:
        made, notes, slots = rule(_Compiled(optimizer, optimizer.get_config()))
    trained = made is not None and state.has_trained(optimizer)
    return Formula(made, notes + _beside(optimizer), slots if trained else None, _too_slow(made, optimizer))


def _too_slow(made: Optimizer | None, optimizer: Any) -> str:
    """Advises ten times the rate where rows that do not occur stay, unlike Keras' (docs/optimizers.md)."""
    if not isinstance(made, (optimizers.Adam, optimizers.RMSprop)):
        return ""
    rate = state.last_rate(optimizer)
    if rate >= _SLOW:
        return ""
    better = {**made.get_config(), "learning_rate": float(f"{10 * rate:.6g}")}
    return (
        f"the tables follow its learning rate, {rate:g}, which is about ten times too small for rows that "
        f"move only when they occur: give convert optimizer=het_tf.optimizers.{optimizers.get(better)!r}, "
        "which keeps the slots"
    )


@dataclass(frozen=True)
class _Compiled:
    """An optimizer of Keras with its arguments."""

    optimizer: Any
    config: dict[str, Any]

    def __getitem__(self, name: str) -> float:
        return float(self.config[name])

    def slot(self, variable: Any, name: str) -> native.FloatArray:
        """Returns the slot of a variable, by its name in Keras."""
        return state.slot(self.optimizer, variable, name)


def _beside(optimizer: Any) -> list[str]:
    """Notes on settings of the compiled optimizer that do not reach tables."""
    return [
        f"{name} of the compiled optimizer does not reach tables; in its place: {unreached.INSTEAD[name]}"
        for name in unreached.options(optimizer)
    ]


Made = tuple[Optimizer | None, list[str], Callable[[Any], Parts]]


def _none(what: str) -> Made:
    """The result for a formula that het_tf lacks."""
    note = f"tables have no {what}: they have {optimizers.get(None)!r}, with new slots"
    return None, [note], lambda variable: []


def _sgd(of: _Compiled) -> Made:
    if not of["momentum"]:
        return optimizers.SGD(MODEL), [], lambda variable: []
    made = optimizers.SGD(MODEL, of["momentum"], bool(of.config["nesterov"]))
    note = "SGD with momentum is lazy: a row moves only in steps in which it occurs"
    return made, [note], lambda variable: [of.slot(variable, "momentums")]


def _rmsprop(of: _Compiled) -> Made:
    if of["momentum"] or of.config["centered"]:
        return _none(f"RMSprop with {'momentum' if of['momentum'] else 'centered'}")
    made = optimizers.RMSprop(MODEL, of["rho"], of["epsilon"])
    note = "RMSprop is lazy: the average of a row decays in steps in which it occurs"
    return made, [note], lambda variable: [of.slot(variable, "velocities")]


def _adagrad(of: _Compiled) -> Made:
    made = optimizers.Adagrad(MODEL, of["initial_accumulator_value"], of["epsilon"])
    return made, [], lambda variable: [of.slot(variable, "accumulators")]


def _adam(of: _Compiled) -> Made:
    if of.config["amsgrad"]:
        return _none("Adam with amsgrad")
    made = optimizers.Adam(MODEL, of["beta_1"], of["beta_2"], of["epsilon"])

    def slots(variable: Any) -> Parts:
        v = of.slot(variable, "velocities")
        step = np.full((len(v), 1), float(np.asarray(of.optimizer.iterations)), np.float32)
        momentum = [of.slot(variable, "momentums")] if of["beta_1"] else []  # without it rows have no slot
        return [*momentum, v, step]

    note = "Adam is lazy: a row moves, and its averages decay, in steps in which it occurs"
    return made, [note], slots


def _ftrl(of: _Compiled) -> Made:
    if of["learning_rate_power"] != -0.5:
        return _none(f"Ftrl with learning_rate_power={of['learning_rate_power']}")
    made = optimizers.Ftrl(
        MODEL,
        l1=of["l1_regularization_strength"],
        l2=of["l2_regularization_strength"],
        beta=of["beta"],
        l2_shrinkage=of["l2_shrinkage_regularization_strength"],
        initial_accumulator=of["initial_accumulator_value"],
    )

    def slots(variable: Any) -> Parts:
        z = of.slot(variable, "linears")
        # A rate of 0 marks a row without updates, whose value stays.
        touched = np.any(z != 0, axis=1, keepdims=True)
        rate = np.where(touched, np.float32(state.last_rate(of.optimizer)), np.float32(0))
        return [z, of.slot(variable, "accumulators"), rate]

    note = (
        "Ftrl is lazy: the value of a row is computed from its sums only in steps in which it occurs, and "
        "otherwise stays"
    )
    return made, [note], slots


_RULES: dict[str, Callable[[_Compiled], Made]] = {
    "SGD": _sgd,
    "RMSprop": _rmsprop,
    "Adagrad": _adagrad,
    "Adam": _adam,
    "AdamW": _adam,
    "Ftrl": _ftrl,
}


def same_slots(one: Optimizer, other: Optimizer) -> bool:
    """Whether two optimizers have equal slots: formula and parameters, but not initial values."""
    begins = "initial_accumulator"
    parts = [
        {name: value for name, value in each._to_spec()["params"].items() if name != begins}
        for each in (one, other)
    ]
    return type(one) is type(other) and parts[0] == parts[1]
