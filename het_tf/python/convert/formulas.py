"""Which optimizer of rows has the formula of an optimizer of Keras, and where the state of a row goes.

    keras.optimizers          het_tf.optimizers   state of Keras           slots of a row
    SGD                       SGD
    SGD(momentum=...)         SGD(momentum=...)   momentums                momentum
    RMSprop                   RMSprop             velocities               velocity
    Adagrad                   Adagrad             accumulators             accumulator
    Adam, AdamW               Adam                momentums, velocities    m, v, step = iterations
    Ftrl                      Ftrl                linears, accumulators    z, n, last learning rate

The formulas are equal with epsilon where it stands (inside of the root for RMSprop and Adagrad, behind it for
Adam), checked step by step in tests/python/convert. Of `keras.optimizers.legacy` (Keras 2) SGD, Adam and Ftrl
have these formulas, too; Adagrad and RMSprop have epsilon behind the root there.

What differs is which rows move in a step: all of a variable whose gradient Keras makes dense or whose
averages decay, and here those that occur. Legacy SGD and Ftrl move those that occur, too.
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
      slots: From a variable to its slots in the order of a row, float32 [N, dim] or [N, 1]; None: the
        optimizer has trained nothing.
    """

    optimizer: Optimizer | None
    notes: list[str] = field(default_factory=list)
    slots: Callable[[Any], Parts] | None = None


def formula_of(optimizer: Any) -> Formula:
    """What has the formula of a compiled optimizer of Keras (without a LossScaleOptimizer around it)."""
    kind, legacy = type(optimizer).__name__, state.is_legacy(optimizer)
    rules = _LEGACY_RULES if legacy else _RULES
    rule = rules.get(kind) if type(optimizer).__module__.startswith(("keras", "tf_keras")) else None
    if rule is None:
        made, notes, slots = _none(f"formula of {'legacy ' * legacy}{kind}{_WHY.get(kind, '') * legacy}")
    else:
        made, notes, slots = rule(_Compiled(optimizer, optimizer.get_config()))
    trained = made is not None and state.has_trained(optimizer)
    return Formula(made, notes + _beside(optimizer), slots if trained else None)


@dataclass(frozen=True)
class _Compiled:
    """An optimizer of Keras with its arguments."""

    optimizer: Any
    config: dict[str, Any]

    def __getitem__(self, name: str) -> float:
        return float(self.config[name])

    @property
    def lazy(self) -> bool:
        """Whether it moves the rows of the batch alone; of those that have such a choice."""
        return state.is_legacy(self.optimizer)

    def slot(self, variable: Any, name: str) -> native.FloatArray:
        """The slot of a variable, by its name in Keras 3."""
        return state.slot(self.optimizer, variable, name)


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


Made = tuple[Optimizer | None, list[str], Callable[[Any], Parts]]
_WHY = dict.fromkeys(("Adagrad", "RMSprop"), ", whose epsilon stands behind the root")


def _none(what: str) -> Made:
    """There is no table of this kind."""
    note = f"tables have no {what}: they have {optimizers.get(None)!r}, with new slots"
    return None, [note], lambda variable: []


def _sgd(of: _Compiled) -> Made:
    if not of["momentum"]:
        return optimizers.SGD(MODEL), [], lambda variable: []
    made = optimizers.SGD(MODEL, of["momentum"], bool(of.config["nesterov"]))
    note = "SGD with momentum is lazy: a row moves in steps in which it occurs, and no longer after them"
    return made, [] if of.lazy else [note], lambda variable: [of.slot(variable, "momentums")]


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
        m = of.slot(variable, "momentums")
        step = np.full((len(m), 1), float(np.asarray(of.optimizer.iterations)), np.float32)
        return [m, of.slot(variable, "velocities"), step]

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
        # A rate of 0 is that of a row without an update, whose value stands as it is.
        touched = np.any(z != 0, axis=1, keepdims=True)
        rate = np.where(touched, np.float32(state.last_rate(of.optimizer)), np.float32(0))
        return [z, of.slot(variable, "accumulators"), rate]

    note = (
        "Ftrl is lazy: the value of a row is computed from its sums in steps in which it occurs, and that of "
        "a row without one stays"
    )
    return made, [] if of.lazy else [note], slots


_RULES: dict[str, Callable[[_Compiled], Made]] = {
    "SGD": _sgd,
    "RMSprop": _rmsprop,
    "Adagrad": _adagrad,
    "Adam": _adam,
    "AdamW": _adam,
    "Ftrl": _ftrl,
}
_LEGACY_RULES = {name: _RULES[name] for name in ("SGD", "Adam", "Ftrl")}


def same_slots(one: Optimizer, other: Optimizer) -> bool:
    """Whether the slots of one are those of the other: equal formula and parameters, not how they begin."""
    begins = "initial_accumulator"
    parts = [
        {name: value for name, value in each.to_spec()["params"].items() if name != begins}
        for each in (one, other)
    ]
    return one.name == other.name and parts[0] == parts[1]
