"""Which optimizer of rows has the formula of an optimizer of Keras, and where the state of a row goes.

    keras.optimizers          het_tf.optimizers   state of Keras           slots of a row
    SGD                       SGD
    SGD(momentum=...)         Momentum            momentums                momentum
    RMSprop                   RMSprop             velocities               velocity
    Adagrad                   Adagrad             accumulators             accumulator
    Adam, AdamW               Adam                momentums, velocities    m, v, step = iterations
    Ftrl                      FTRL                linears, accumulators    z, n, last learning rate

The formulas are equal with epsilon where it stands (inside of the root for RMSprop and Adagrad, behind it for
Adam), checked step by step in tests/python/convert. What differs is which rows move in a step: all of a
variable whose gradient Keras makes dense or whose averages decay, and here those that occur.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from het_tf.python.convert import state
from het_tf.python.session import native
from het_tf.python.session.native import tf
from het_tf.python.table import optimizers
from het_tf.python.table.optimizers import MODEL, Optimizer

keras: Any = tf.keras
Parts = list[native.FloatArray]


@dataclass(frozen=True)
class Formula:
    """What het_tf has in place of an optimizer of Keras.

    Attributes:
      optimizer: Of rows, with the learning rate of the model; None: there is none of that formula.
      notes: What differs, for the user.
      slots: From the index of a variable to its slots in the order of a row, float32 [N, dim] or [N, 1];
        None: the optimizer has trained nothing.
    """

    optimizer: Optimizer | None
    notes: list[str] = field(default_factory=list)
    slots: Callable[[int], Parts] | None = None


def formula_of(optimizer: Any) -> Formula:
    """What has the formula of a compiled optimizer of Keras (without a LossScaleOptimizer around it)."""
    kind = type(optimizer).__name__
    rule = _RULES.get(kind) if type(optimizer).__module__.startswith(("keras", "tf_keras")) else None
    if rule is None or state.is_legacy(optimizer):
        what = "legacy optimizers" if state.is_legacy(optimizer) else kind
        return Formula(
            None, [f"tables have no formula of {what}: they have {optimizers.get(None)!r}, with new slots"]
        )
    made, notes, slots = rule(optimizer)
    trained = getattr(optimizer, "built", False) or getattr(optimizer, "_built", False)
    return Formula(made, notes + _beside(optimizer), slots if made is not None and trained else None)


def _beside(optimizer: Any) -> list[str]:
    """Settings of the compiled optimizer that do not reach tables."""
    notes = []
    for name in ("clipnorm", "global_clipnorm", "clipvalue"):
        if getattr(optimizer, name, None):
            notes.append(f"{name} of the compiled optimizer does not reach tables; TableConfig has max_norm")
    if getattr(optimizer, "weight_decay", None):
        notes.append("weight_decay of the compiled optimizer does not reach tables; TableConfig has l2")
    if getattr(optimizer, "use_ema", False):
        notes.append("use_ema of the compiled optimizer averages no rows")
    if getattr(optimizer, "gradient_accumulation_steps", None):
        notes.append(
            "gradient_accumulation_steps is refused by tables when the model is trained: leave it out"
        )
    return notes


Made = tuple[Optimizer | None, list[str], Callable[[int], Parts]]


def _attribute(optimizer: Any, name: str) -> Callable[[int], native.FloatArray]:
    """A slot of all variables: `momentums`, which other classes and versions of Keras call `_momentums`."""

    def read(index: int) -> native.FloatArray:
        variables = getattr(optimizer, name) if hasattr(optimizer, name) else getattr(optimizer, f"_{name}")
        return np.asarray(variables[index], np.float32)

    return read


def _sgd(optimizer: Any) -> Made:
    if not optimizer.momentum:
        return optimizers.SGD(MODEL), [], lambda index: []
    made = optimizers.Momentum(MODEL, float(optimizer.momentum), bool(optimizer.nesterov))
    velocity = _attribute(optimizer, "momentums")
    note = "Momentum is lazy: a row moves in steps in which it occurs, and no longer after them"
    return made, [note], lambda index: [velocity(index)]


def _rmsprop(optimizer: Any) -> Made:
    if optimizer.momentum or optimizer.centered:
        argument = "momentum" if optimizer.momentum else "centered"
        why = f"tables have no RMSprop with {argument}: they have {optimizers.get(None)!r}, with new slots"
        return None, [why], lambda index: []
    made = optimizers.RMSprop(MODEL, float(optimizer.rho), float(optimizer.epsilon))
    velocity = _attribute(optimizer, "velocities")
    note = "RMSprop is lazy: the average of a row decays in steps in which it occurs"
    return made, [note], lambda index: [velocity(index)]


def _adagrad(optimizer: Any) -> Made:
    made = optimizers.Adagrad(MODEL, float(optimizer.initial_accumulator_value), float(optimizer.epsilon))
    accumulator = _attribute(optimizer, "accumulators")
    return made, [], lambda index: [accumulator(index)]


def _adam(optimizer: Any) -> Made:
    if optimizer.amsgrad:
        why = f"tables have no Adam with amsgrad: they have {optimizers.get(None)!r}, with new slots"
        return None, [why], lambda index: []
    made = optimizers.Adam(MODEL, float(optimizer.beta_1), float(optimizer.beta_2), float(optimizer.epsilon))
    m, v = _attribute(optimizer, "momentums"), _attribute(optimizer, "velocities")

    def slots(index: int) -> Parts:
        first = m(index)
        step = np.full((len(first), 1), float(np.asarray(optimizer.iterations)), np.float32)
        return [first, v(index), step]

    note = "Adam is lazy: a row moves, and its averages decay, in steps in which it occurs"
    return made, [note], slots


def _ftrl(optimizer: Any) -> Made:
    if optimizer.learning_rate_power != -0.5:
        why = (
            f"tables have no Ftrl with learning_rate_power={optimizer.learning_rate_power}: they have "
            f"{optimizers.get(None)!r}, with new slots"
        )
        return None, [why], lambda index: []
    made = optimizers.FTRL(
        MODEL,
        l1=float(optimizer.l1_regularization_strength),
        l2=float(optimizer.l2_regularization_strength),
        beta=float(optimizer.beta),
        l2_shrinkage=float(optimizer.l2_shrinkage_regularization_strength),
        initial_accumulator=float(optimizer.initial_accumulator_value),
    )
    z, n = _attribute(optimizer, "linears"), _attribute(optimizer, "accumulators")

    def slots(index: int) -> Parts:
        linear = z(index)
        # A rate of 0 is that of a row without an update, whose value stands as it is.
        touched = np.any(linear != 0, axis=1, keepdims=True)
        rate = np.where(touched, np.float32(state.last_rate(optimizer)), np.float32(0))
        return [linear, n(index), rate]

    note = (
        "FTRL is lazy: the value of a row is computed from its sums in steps in which it occurs, and that of "
        "a row without one stays"
    )
    return made, [note], slots


_RULES: dict[str, Callable[[Any], Made]] = {
    "SGD": _sgd,
    "RMSprop": _rmsprop,
    "Adagrad": _adagrad,
    "Adam": _adam,
    "AdamW": _adam,
    "Ftrl": _ftrl,
}


def same_slots(one: Optimizer, other: Optimizer) -> bool:
    """Whether the slots of one are those of the other: equal formula and parameters, not how they begin."""
    begins = "initial_accumulator"
    parts = [
        {name: value for name, value in each.to_spec()["params"].items() if name != begins}
        for each in (one, other)
    ]
    return one.name == other.name and parts[0] == parts[1]
