"""Callbacks of several workers (public in `het_tf.callbacks`). Every rank must give `fit` the same ones."""

from functools import partial
from typing import Any

import numpy as np

from het_tf.python.horovod import checks, distribute, planned
from het_tf.python.horovod.metrics import global_metrics
from het_tf.python.session import collective, settings
from het_tf.python.session.native import tf
from het_tf.python.table import dense_optimizer, layer_state, optimizers
from het_tf.python.table.table import flush

_Callback: Any = tf.keras.callbacks.Callback
# Types that Horovod can broadcast; others, such as Keras' uint32 seeds, go as Python objects.
_DTYPES = {"uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", "bool"}


def broadcast(model: Any) -> None:
    """Broadcasts the weights of rank 0, and the state of its optimizer. Every rank must call it.

    Tables do not need it: they are shared, and their initial rows are equal everywhere.

    Args:
      model: A built Keras model, compiled or not.

    Raises:
      RuntimeError: It has no weights yet, their number, shapes or types differ from rank 0's (then
        every rank raises), or `het_tf.init(hvd=hvd)` was not called.
    """
    hvd = collective.required("het_tf.horovod.broadcast")
    if not model.built:
        raise RuntimeError(
            f"model {model.name!r} has no weights yet to broadcast; call it on a batch first, or "
            "give it a keras.Input"
        )
    apart = {id(one) for one in layer_state.variables_of(model)}  # always 0
    weights = [one for one in model.weights if id(one) not in apart]
    variables = [*weights, *dense_optimizer.optimizer_variables(model)]
    if hvd.size() == 1:
        return
    # Ranks with another number of them would wait forever.
    checks.compare(
        model, {"weights and optimizer": [[list(one.shape), _dtype_name(one)] for one in variables]}
    )
    for variable in variables:
        # One by one, eagerly: hvd.broadcast_variables would trace a function forevery model.
        value = tf.convert_to_tensor(variable)
        if value.dtype.name in _DTYPES:
            value = hvd.broadcast(value, root_rank=0, name="het_tf.variable")
        else:
            value = hvd.broadcast_object(value.numpy(), root_rank=0, name="het_tf.variable")
        variable.assign(value)


def _dtype_name(variable: Any) -> str:
    return str(tf.as_dtype(variable.dtype).name)


class Broadcast(_Callback):
    """Broadcasts the weights of rank 0 before training, and checks that the ranks agree.

    The ranks must have the same number of batches an epoch (if Keras knows it), and the gradients of the
    model must be reduced. If rows travel on demand (`shard(sync=)`) it flushes on all ranks
    before and after training, and before an evaluation.

    Raises:
      RuntimeError: A check fails, `het_tf.init(hvd=hvd)` was not called, or the model has no weights.
    """

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcasts now, or in the first batch if a subclassed model has no weights before it.

        `distribute` then broadcasts in the first step, before it runs; under `run_eagerly=True` before it
        changes a weight, when its gradients exist. With another reduction the ranks take that step from
        different weights, and continue with rank 0's weights after it: call the model on a batch before
        `fit` to start alike.
        """
        collective.required("het_tf.callbacks.Broadcast")
        distribute.require_reduction(self.model)
        checks.compare_steps((self.params or {}).get("steps"))
        _settle()
        model = self.model
        self._late = False
        if model.built:
            broadcast(model)
        elif hasattr(model, "_het_distributed"):
            model._het_distributed.before_update = partial(broadcast, model)
        else:
            self._late = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcasts the weights that the first step has made, if needed."""
        if self._late:
            broadcast(self.model)
            self._late = False

    def on_test_begin(self, logs: Any = None) -> None:
        """Flushes: an evaluation reads rows whose updates other ranks may hold back."""
        _settle()

    def on_train_end(self, logs: Any = None) -> None:
        """Flushes for readers of rows after `fit`."""
        _settle()


def _settle() -> None:
    """Flushes on all ranks, if a stream has made them hold back rows (`shard(sync="on_demand")`)."""
    if planned.holds_back():
        flush(all_ranks=True)


class MergeMetrics(_Callback):
    """Merges the logs of every epoch over all ranks: metrics of the model exactly, other numbers averaged.

    Exactly means from summed states, as in `het_tf.horovod.global_metrics`, also for AUC and for ranks that
    have seen different numbers of rows. It covers training and validation. Put it before callbacks that read
    the logs (EarlyStopping, ReduceLROnPlateau, Checkpoint), so that all ranks decide the same. The progress
    bar shows only this rank's part during the epoch. `model.evaluate` returns only this rank's result: call
    `global_metrics` after it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._fitting = False
        self._train: dict[str, Any] | None = None
        self._validation: dict[str, Any] = {}

    def on_train_begin(self, logs: Any = None) -> None:
        """Checks that the gradients of the model are reduced."""
        collective.required("het_tf.callbacks.MergeMetrics")
        distribute.require_reduction(self.model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Resets the metrics of the epoch."""
        self._fitting, self._train, self._validation = True, None, {}

    def on_test_begin(self, logs: Any = None) -> None:
        """Takes the metrics of training before validation resets them."""
        if self._fitting:
            self._train = global_metrics(self.model)

    def on_test_end(self, logs: Any = None) -> None:
        """Takes the metrics of validation."""
        if self._fitting:
            self._validation = {f"val_{name}": value for name, value in global_metrics(self.model).items()}

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Puts the merged metrics into the logs."""
        self._fitting = False
        exact = {**(global_metrics(self.model) if self._train is None else self._train), **self._validation}
        logs = {} if logs is None else logs
        others = sorted(name for name in logs if name not in exact and np.ndim(logs[name]) == 0)
        names = collective.gather(others, "logs")
        shared = [name for name in others if all(name in one for one in names)]
        sums = collective.sum_over_ranks([0.0, *(float(logs[name]) for name in shared)], "log_values")[1:]
        logs.update({name: exact[name] for name in logs if name in exact})
        logs.update(
            {name: float(value) / settings.workers() for name, value in zip(shared, sums, strict=True)}
        )


def on_rank_zero(callback: Any) -> Any:
    """Returns the callback on rank 0, and one that does nothing on the other ranks.

        callbacks=[..., het_tf.horovod.on_rank_zero(keras.callbacks.CSVLogger("log.csv"))]

    For callbacks that write or print. Callbacks that change training (learning rate, early stopping) belong
    on every rank, after MergeMetrics.
    """
    hvd = settings.horovod()
    return callback if hvd is None or hvd.rank() == 0 else _Callback()


class LearningRateScaling(_Callback):
    """Multiplies the dense learning rate by the number of ranks, at once or over the first epochs.

    N ranks with batches of B take one step on the mean gradient of N * B rows. For SGD the rate then grows
    with N (Goyal et al., "Accurate, Large Minibatch SGD", 2017), over a few epochs: at the share x of the
    warm-up it is `rate * (1 + (factor - 1) * x)`. A second `fit` does not scale again.

    Args:
      warmup_epochs: Number of epochs of the warm-up, >= 0; if Keras does not know the steps of the first
        epoch, the rate moves at its end.
      factor: The final factor of the rate; None: the number of ranks.

    Raises:
      ValueError: An argument is out of range; when training begins: the rate is a schedule.
    """

    def __init__(self, warmup_epochs: float = 0.0, factor: float | None = None) -> None:
        super().__init__()
        if not warmup_epochs >= 0:
            raise ValueError(f"warmup_epochs is {warmup_epochs}; give a number of epochs >= 0")
        if factor is not None and not factor > 0:
            raise ValueError(f"factor is {factor}; give a number > 0, or None for the number of ranks")
        self.warmup_epochs = float(warmup_epochs)
        self.factor = factor
        self._epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Reads the rate of one rank."""
        collective.required("het_tf.callbacks.LearningRateScaling")
        optimizer = self.model.optimizer
        if optimizers.is_schedule(dense_optimizer.inner(optimizer)._learning_rate):
            raise ValueError(
                "the learning rate is a schedule, which cannot be assigned; multiply its rates by "
                "hvd.size() where it is made, and leave LearningRateScaling out"
            )
        base, reached = getattr(optimizer, "_het_rates", (None, None))
        rate = self._rate()
        if base is None or reached is None or not np.isclose(rate, reached, rtol=1e-5):
            base = rate
        self._base = base
        self._final = base * (settings.workers() if self.factor is None else self.factor)
        self._warm = base == rate
        if not self.warmup_epochs:
            self._set(self._final)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Records the epoch."""
        self._epoch = epoch
        self._warm_up(float(epoch))

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Moves the rate during the warm-up."""
        steps = (self.params or {}).get("steps")
        if steps:
            self._warm_up(self._epoch + batch / steps)

    def _warm_up(self, epochs: float) -> None:
        if self.warmup_epochs and self._warm:
            share = min(epochs / self.warmup_epochs, 1.0)
            self._set(self._base + (self._final - self._base) * share)
            self._warm = share < 1.0

    def _rate(self) -> float:
        return float(np.asarray(self.model.optimizer.learning_rate))

    def _set(self, rate: float) -> None:
        optimizer = self.model.optimizer
        optimizer.learning_rate = rate
        optimizer.__dict__["_het_rates"] = (self._base, rate)
