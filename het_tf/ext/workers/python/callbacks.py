"""What brings ranks together in `fit` of a distributed model."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from het_tf.ext.workers.python import checks
from het_tf.ext.workers.python.backends import ops
from het_tf.ext.workers.python.metrics import global_metrics
from het_tf.python.backend import keras
from het_tf.python.session import collective, settings
from het_tf.python.table import dense_layers, dense_optimizer, layer_state

_Callback: Any = keras.callbacks.Callback
_PLACE = 5  # of `callbacks` among the arguments of Model.fit


def broadcast(model: Any) -> None:
    """Broadcasts the weights of rank 0, what its layers keep, and its optimizer's state. All ranks call it.

    Tables do not need it: they are shared, and their initial rows are equal everywhere.

    Args:
      model: A built Keras model, compiled or not.

    Raises:
      RuntimeError: It has no weights yet, their number, shapes or types differ from rank 0's (then
        every rank raises), or `het_tf.init` was not called on every rank.
    """
    collective.require_init()
    if not model.built:
        raise RuntimeError(
            f"model {model.name!r} has no weights yet to broadcast; call it on a batch first, or "
            "give it a keras.Input"
        )
    apart = {id(one) for one in layer_state.variables_of(model)}  # always 0
    weights = [one for one in model.weights if id(one) not in apart]
    variables = [*weights, *dense_optimizer.optimizer_variables(model)]
    if settings.workers().size == 1:
        return
    # Ranks with another number of them would wait forever.
    layers = list(dense_layers.layers_of(model))
    mine = {
        "weights and optimizer": [[list(one.shape), _dtype_name(one)] for one in variables],
        "layers that keep a state": [type(one).__name__ for one in layers],
    }
    checks.compare(model, mine)
    for variable in variables:
        variable.assign(settings.workers().broadcast(ops.value(variable), "het_tf.variable"))
    for layer in layers:
        dense_layers.give(layer, _of_first_rank(dense_layers.take(layer)))


def _of_first_rank(state: dense_layers.State) -> dense_layers.State:
    """Returns rank 0's state of a layer, such as a vocabulary."""
    workers = settings.workers()
    assets = {name: np.frombuffer(content, np.uint8) for name, content in state.assets.items()}
    parts = [
        {name: (str(one.dtype), list(one.shape)) for name, one in arrays.items()}
        for arrays in (state.arrays, assets)
    ]
    found = []
    for mine, specs in zip((state.arrays, assets), workers.broadcast(parts, "het_tf.parts"), strict=True):
        of_first = {
            name: workers.broadcast(
                mine[name] if workers.rank == 0 else np.empty(shape, dtype), "het_tf.part"
            )
            for name, (dtype, shape) in specs.items()
        }
        found.append(of_first)
    contents = {name: one.tobytes() for name, one in found[1].items()}
    return dataclasses.replace(state, arrays=found[0], assets=contents)


def _dtype_name(variable: Any) -> str:
    return str(keras.backend.standardize_dtype(variable.dtype))


def fits(model: Any, fit: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `fit` of a distributed model, with `_Together` before the callbacks."""
    parameters = inspect.signature(fit).parameters.values()
    takes = any(one.name == "callbacks" or one.kind is one.VAR_KEYWORD for one in parameters)

    @functools.wraps(fit)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not takes or settings.workers().size == 1:
            return fit(*args, **kwargs)
        given = args[_PLACE] if len(args) > _PLACE else kwargs.pop("callbacks", None)
        if isinstance(given, keras.callbacks.CallbackList):
            given = given.callbacks
        together = [_Together(model), *keras.tree.flatten(given or [])]
        if len(args) > _PLACE:
            return fit(*args[:_PLACE], together, *args[_PLACE + 1 :], **kwargs)
        return fit(*args, callbacks=together, **kwargs)

    return run


class _Together(_Callback):
    """Brings the ranks together in `fit` of a distributed model, before the callbacks of the user.

    They begin with the weights of rank 0, and callbacks find the logs of all ranks: so EarlyStopping,
    ReduceLROnPlateau and Checkpoint decide the same everywhere.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model
        self._train: dict[str, Any] | None = None
        self._validation: dict[str, Any] = {}

    def on_train_begin(self, logs: Any = None) -> None:
        """Compares the steps; broadcasts now, or in the first step if no weights exist before it."""
        checks.compare_steps((self.params or {}).get("steps"))
        ops.settle()
        step = self._model._het_distributed
        step.before_update = functools.partial(broadcast, self._model)
        if self._model.built:
            broadcast(self._model)
            step.before_update = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Forgets the metrics of the epoch before."""
        self._train, self._validation = None, {}

    def on_test_begin(self, logs: Any = None) -> None:
        """Takes the metrics of training before validation resets them; flushes what other ranks hold back."""
        self._train = global_metrics(self._model)
        ops.settle()

    def on_test_end(self, logs: Any = None) -> None:
        """Takes the metrics of validation."""
        self._validation = {f"val_{name}": value for name, value in global_metrics(self._model).items()}

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Puts the metrics of all ranks into the logs, and the means of other numbers."""
        exact = {**(global_metrics(self._model) if self._train is None else self._train), **self._validation}
        logs = {} if logs is None else logs
        others = sorted(name for name in logs if name not in exact and np.ndim(logs[name]) == 0)
        names = collective.gather(others, "logs")
        shared = [name for name in others if all(name in one for one in names)]
        sums = collective.sum_over_ranks([0.0, *(float(logs[name]) for name in shared)], "log_values")[1:]
        logs.update({name: exact[name] for name in logs if name in exact})
        logs.update(
            {name: float(value) / settings.workers().size for name, value in zip(shared, sums, strict=True)}
        )

    def on_train_end(self, logs: Any = None) -> None:
        """Flushes for readers of rows after `fit`, whose iterators are gone then."""
        ops.settle()
        ops.end_passes()
