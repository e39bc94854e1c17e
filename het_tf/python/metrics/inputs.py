"""Gives metrics access to a model's inputs: for example the users of a batch's predictions."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from het_tf.python import backend, ids
from het_tf.python.backend import keras

_current: contextvars.ContextVar[Any] = contextvars.ContextVar("inputs", default=None)


def with_inputs(model: Any) -> Any:
    """Shows the metrics of a model its inputs, in `fit`, `evaluate` and their like.

        model = het_tf.metrics.with_inputs(model)
        model.compile("adam", "binary_crossentropy", metrics=[het_tf.metrics.GAUC(by="user")])

    It changes the model in place: an attribute overrides its method `compute_metrics`. Saved models lack it:
    call this again after loading. Call it before or after `compile`; a second call does
    nothing.

    Args:
      model: A Keras model whose train_step, Keras' or yours, calls `compute_metrics(x, y, y_pred, ...)`.

    Returns:
      `model`.

    Raises:
      TypeError: It is not a Keras model.
    """
    if not isinstance(model, keras.Model):
        raise TypeError(f"model is {model!r}; give a Keras model")
    inner = model.compute_metrics
    if isinstance(getattr(inner, "__self__", None), _Shown):
        return model
    model.compute_metrics = _Shown(model, inner).compute_metrics
    # A fit before this call has traced the old method.
    model.train_function = model.test_function = None
    return model


class _Shown:
    def __init__(self, model: Any, inner: Any) -> None:
        self._model, self._inner = model, inner

    def compute_metrics(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the model's own method while the inputs are visible."""
        with showing(self._model, x):
            return self._inner(x, *args, **kwargs)


@contextlib.contextmanager
def showing(model: Any, x: Any) -> Iterator[None]:
    """While open, `current` finds these inputs of this model."""
    token = _current.set((model, x))
    try:
        yield
    finally:
        _current.reset(token)


def current(by: str | int, who: str) -> Any:
    """Returns the input `by`, a name or number, of the batch whose metrics are computed.

    Raises:
      ValueError: No inputs are visible, `by` is not one of them or JAX has cut its numbers, or XLA compiles
        the model of TensorFlow.
    """
    shown = _current.get()
    if shown is None:
        raise ValueError(
            f"{who}(by={by!r}) cannot see the inputs of the model; call het_tf.metrics.with_inputs(model) "
            "before fit and evaluate, or give update_state groups="
        )
    model, x = shown
    if backend.TENSORFLOW and getattr(model, "jit_compile", False) and not model.run_eagerly:
        raise ValueError(
            f"model {model.name!r} is compiled by XLA, which cannot keep the samples of {who}; give compile "
            "jit_compile=False"
        )
    declared = ""
    with contextlib.suppress(AttributeError, ValueError, LookupError):  # a model that declares no inputs
        declared = _of(model.input, by).dtype
    try:
        found = _of(x, by)
    except LookupError:
        if isinstance(x, dict):
            there = "names " + ", ".join(map(repr, x))
        else:
            there = f"numbers below {len(x) if isinstance(x, (list, tuple)) else 1}"
        raise ValueError(
            f"{who}(by={by!r}): the model has no such input; its inputs have the {there}"
        ) from None
    ids.refuse_wide(declared, f"{who}(by={by!r}): the groups")
    return found


def _of(inputs: Any, by: str | int) -> Any:
    """Returns an input. LookupError: there is none with this name or number."""
    if isinstance(inputs, dict) != isinstance(by, str):
        raise KeyError(by)
    return (inputs if isinstance(inputs, (dict, list, tuple)) else (inputs,))[by]  # type: ignore[index]
