"""Observes predictions of a Keras model's training steps without a second forward pass."""

from collections import deque
from collections.abc import Callable
from typing import Any

from het_tf.ext.monitor.python.programs import later
from het_tf.python import backend


class Observer:
    """Calls a function with labels and predictions of every training step.

    Keras' steps, and those of users, predict, update, and then call `compute_metrics(x, y, y_pred,
    sample_weight)`. The observer overrides that method and `train_step` by attributes of the model until
    `remove`; it ignores steps of evaluation. It calls the function inside the step; on JAX in `settle`.

    Args:
      model: A compiled Keras model.
      tell: Called with y, y_pred and sample_weight (or None).

    Attributes:
      told: Whether a step traced since then has called `tell`.
    """

    def __init__(self, model: Any, tell: Callable[[Any, Any, Any], None]) -> None:
        self._model, self._tell, self.told = model, tell, False
        self._training = False
        self._batches: deque[Any] = deque()  # of steps on JAX that have run
        self._step, self._metrics = model.train_step, model.compute_metrics
        self._before = {name: vars(model).get(name) for name in ("train_step", "compute_metrics")}
        model.train_step, model.compute_metrics = self._run, self._compute
        model.train_function = None  # functions traced before do not call `tell`

    def remove(self) -> None:
        """Restores the model."""
        for name, value in self._before.items():
            if value is None:
                vars(self._model).pop(name, None)
            else:
                setattr(self._model, name, value)
        self._model.train_function = None

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        self._training = True
        try:
            return self._step(*args, **kwargs)
        finally:
            self._training = False

    def _compute(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, **kwargs: Any) -> Any:
        if self._training:
            self.told = True
            if not later(self._batches, (y, y_pred, sample_weight)):
                self._tell(y, y_pred, sample_weight)
        return self._metrics(x, y, y_pred, sample_weight, **kwargs)

    def settle(self) -> None:
        """Calls the function for all steps that have begun."""
        backend.settle()
        while self._batches:
            self._tell(*self._batches.popleft())
