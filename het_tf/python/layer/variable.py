"""The variable that stands for the tables of a layer: an optimizer that applies to it updates their rows.

    HetLookup     rows                         model(ids)
    HetKeepGrad   keeps the rows' gradients    tape.gradient(loss, variables) ─► a ticket
    HetApplyGrad  updates the rows             optimizer.apply(gradients, variables)

A gradient of the variable is a *ticket*: it says which kept gradients are meant, with which factors. It is
linear, so whatever a loop does with gradients (adds, scales, clips by norm, drops) happens to the rows'
gradients (core/engine/kept_gradients.h). Keras hands it to `assign`, unchanged, since the variable has
`overwrite_with_gradient`; all of a table's lookups in one apply make one update of a row.

A table has one variable, made by the first of the living layers that use it; a layer tracks the variables of
all its tables.
"""

import json
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from het_tf.python import backend, callers
from het_tf.python.backend import keras
from het_tf.python.layer import unreached
from het_tf.python.layer.backends import ops
from het_tf.python.session import settings
from het_tf.python.table import optimizers, registry
from het_tf.python.table.layer_state import Update

SLOTS = 64  # KeptGradients::kSlots

_numbers: dict[tuple[str, ...], int] = {}


class TableVariable(keras.Variable):
    """Stands for tables. Its value is a float32 matrix [64, 2] of zeros, and no array of rows.

    Attributes:
      number: By which the ops know it.
      layers: The living layers that use it. It is trainable if one of them is.
    """

    def __init__(self, namespace: str, tables: list[Any], place: str) -> None:
        self.layers: weakref.WeakSet[Any] = weakref.WeakSet()
        # Equal for equal tables: TensorFlow keeps what it knows of an op with these attributes.
        key = (namespace, *(table.name for table in tables))
        self.number = _numbers.setdefault(key, len(_numbers) + 1)
        self.tables = tables
        self._namespace = namespace
        specs = {
            "namespace": namespace,
            "tables": [table.spec for table in tables],
            "features": [{"table": number, "padding_id": None} for number in range(len(tables))],
            "variables": [self.number] * len(tables),
            "place": place,
        }
        self.call = Update([table.name for table in tables], json.dumps(specs), place)
        super().__init__(
            initializer="zeros", shape=(SLOTS, 2), dtype="float32", autocast=False, name="anchor"
        )
        self.overwrite_with_gradient = True

    @property
    def trainable(self) -> bool:
        """Whether one of its layers is; setting it has no effect."""
        return not self.layers or any(layer.trainable for layer in self.layers)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        del value

    @property
    def value(self) -> Any:
        """Its zeros. On JAX a step takes them from Keras' variables, and one that fails keeps them."""
        if backend.NAME != "jax":
            return super().value
        try:
            found = super().value
        except TypeError:  # Keras has none, nor what makes some
            found = None
        return keras.ops.zeros((SLOTS, 2)) if found is None or ops.is_deleted(found) else found

    def _names(self) -> str:
        names = ", ".join(repr(table.name) for table in self.tables)
        return ("table " if len(self.tables) == 1 else "tables ") + names

    # --- what an optimizer does -------------------------------------------------------------------------

    def assign(self, value: Any) -> Any:
        """Updates the rows, if a Keras optimizer calls it with the variable's gradient.

        Raises:
          RuntimeError: Something else calls it, or the value is an array; but Keras may put zeros back.
        """
        if isinstance(value, (np.ndarray, np.generic, list, tuple)):
            raise RuntimeError(_no_array(self._names()))
        applying = _applying_optimizers()
        if not applying and ops.is_state(value):
            return None if value is None else super().assign(value)
        if not applying:
            raise RuntimeError(
                f"the variable of {self._names()} is assigned, but it only stands for rows, which an "
                "optimizer updates by its gradient: call apply_gradients of a Keras optimizer, or "
                "het_tf.apply(gradients_and_variables); het_tf.Table(name).assign(ids, rows) sets rows"
            )
        optimizer = applying[0]
        value = _unscaled(value, optimizer)
        unreached.warn_of_options(optimizer, self)
        if optimizer.use_ema:
            _keep_average(optimizer, self)
        self.apply(value, optimizer)
        return value

    def assign_add(self, value: Any) -> Any:
        """Raises RuntimeError: only an optimizer changes rows by a gradient."""
        del value
        raise RuntimeError(
            f"rows of {self._names()} are not moved by a gradient's multiple: a table has its own optimizer. "
            "Call apply_gradients of a Keras optimizer, or het_tf.apply(gradients_and_variables); leave out "
            "what only dense weights need (SAM's perturbation, an average of weights): "
            "variables of the name 'anchor'"
        )

    assign_sub = assign_add

    def apply(self, ticket: Any, optimizer: Any = None) -> None:
        """Updates the rows by the gradients that a ticket stands for.

        Args:
          ticket: A gradient of this variable, float32 [64, 2].
          optimizer: The Keras optimizer that applies it, for tables with learning_rate="model"; or None.
        """
        rates = self._learning_rates(ticket, optimizer)
        bulk = False
        if settings.several_workers():
            ticket = marked(ticket)
            bulk = any(layer._is_bulk_synchronous for layer in self.layers)
        ops.apply(self.call, ticket, rates, bulk)

    def _learning_rates(self, ticket: Any, optimizer: Any) -> list[Any]:
        """Returns each table's rate for this update."""
        rates: list[Any] = []
        counts = None
        for number, table in enumerate(self.tables):
            entry = registry.find(self._namespace, table.name)
            if entry is None:
                raise RuntimeError(
                    f"het_tf: table {table.name!r} is trained, but no layer of this process has declared it, "
                    "so its learning rate is unknown; build the model's layers (after het_tf.reset(), build "
                    "them again)"
                )
            rate = entry.config.optimizer.learning_rate
            if isinstance(rate, str):  # optimizers.MODEL
                if optimizer is None:
                    raise RuntimeError(
                        f"het_tf: the optimizer of table {table.name!r} has learning_rate='model', but no "
                        "Keras optimizer applies its gradient; give a number, a schedule or a keras.Variable"
                    )
                rate = keras.ops.convert_to_tensor(optimizer.learning_rate)
            elif optimizers.is_schedule(rate):
                if counts is None:
                    counts = ops.updates(self.call, ticket)
                rate = rate(counts[number])
            rates.append(rate)
        return rates

    # --- no array -----------------------------------------------------------------------------------------

    def numpy(self) -> Any:
        """Raises RuntimeError: `het_tf.Table(name)` has the rows."""
        raise RuntimeError(_no_array(self._names()))

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.numpy()


def _no_array(names: str) -> str:
    return (
        f"the weight that stands for {names} is not an array. To keep and restore rows, use "
        "het_tf.callbacks.RestoreBest (in place of EarlyStopping(restore_best_weights=True)), "
        "het_tf.checkpoint, save_weights or model.save; het_tf.Table(name) reads and assigns them; "
        "get_weights and set_weights of other layers work"
    )


def of_tables(layer: Any, namespace: str, entries: list[registry.Entry], place: str) -> list[TableVariable]:
    """Returns the variable of each of the layer's tables; makes one for tables that have none."""
    alive = [entry.variable() if entry.variable is not None else None for entry in entries]
    new = [entry for entry, variable in zip(entries, alive, strict=True) if variable is None]
    if new:
        with keras.name_scope(layer.name, caller=layer):
            made = TableVariable(namespace, [entry.config for entry in new], place)
        for entry in new:
            entry.variable = weakref.ref(made)
    variables = [made if variable is None else variable for variable in alive]
    for variable in variables:
        variable.layers.add(layer)
    return variables


def apply(gradients_and_variables: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Updates the rows of tables by their gradients, in a loop without a Keras optimizer.

        pairs = zip(tape.gradient(loss, variables), variables)
        for gradient, variable in het_tf.apply(pairs):  # the others
            variable.assign_sub(0.1 * gradient)

    Each table has its own optimizer. Every call is an update; a gradient that nobody applies changes nothing.

    Args:
      gradients_and_variables: Pairs of a gradient and its variable, as for a Keras optimizer. A gradient may
        be None.

    Returns:
      The pairs whose variable is not a table's, in order.

    Raises:
      RuntimeError: A table has learning_rate="model".
      tf.errors.InvalidArgumentError: A gradient is NaN or Inf, or was changed in a way that is not linear.
      tf.errors.FailedPreconditionError: A gradient is not kept any more.
    """
    rest = []
    for gradient, variable in gradients_and_variables:
        if not isinstance(variable, TableVariable):
            rest.append((gradient, variable))
        elif gradient is not None:
            variable.apply(gradient)
    return rest


def is_ticket_of(variable: Any) -> bool:
    """Whether the gradient of a variable is a ticket."""
    return isinstance(variable, TableVariable)


def bare(ticket: Any) -> Any:
    """Returns a ticket as a tensor like others, which PyTorch looks at (backends/torch_tickets.py)."""
    return getattr(ticket, "bare", lambda: ticket)()


def marked(ticket: Any) -> Any:
    """Returns a ticket with the mark that the workers have met behind it, or takes the mark off again.

    It is the order of a ticket's two numbers, which scales, sums and norms leave alone.
    """
    return keras.ops.flip(ticket, axis=1)


# --- Keras -------------------------------------------------------------------------------------------------


def _applying_optimizers() -> list[Any]:
    """The Keras optimizers that are applying gradients, the innermost first."""
    return [one for one in callers.of("apply") if isinstance(one, keras.optimizers.Optimizer)]


def _unscaled(value: Any, optimizer: Any) -> Any:
    """Returns a gradient as the loss has it: Keras scales one of this kind, and does not divide it again."""
    divisor = (optimizer.loss_scale_factor or 1) * (optimizer.gradient_accumulation_steps or 1)
    # Keras divides others later, and accumulates those of this kind by a maximum.
    return value if divisor == 1 else value / divisor


def _keep_average(optimizer: Any, variable: TableVariable) -> None:
    """Gives a moving average to Keras, which averages each weight, and has None for one of this kind."""
    averages = optimizer._model_variables_moving_average
    index = optimizer._get_variable_index(variable)
    if averages[index] is None:
        ops.keep_average(optimizer, index, (SLOTS, 2))


def _is_overwritten(self: Any, variable: Any) -> Any:
    """Of LossScaleOptimizer: it divides the gradients of tables by its scale, as it does all others."""
    return not isinstance(variable, TableVariable) and getattr(variable, "overwrite_with_gradient", False)


# On JAX only the optimizer itself knows the scale of a step.
keras.optimizers.LossScaleOptimizer._overwrite_variable_with_gradient = _is_overwritten
