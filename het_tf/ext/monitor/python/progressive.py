"""`het_tf.callbacks.ProgressiveEvaluation`: evaluates each sample's prediction before training on it."""

import csv
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from het_tf.ext.monitor.python.observer import Observer
from het_tf.ext.monitor.python.programs import exact, wide
from het_tf.ext.workers.python.metrics import global_states, variables_of
from het_tf.python.backend import keras
from het_tf.python.checks import whole
from het_tf.python.files import local_path
from het_tf.python.session import collective, settings


class ProgressiveEvaluation(keras.callbacks.Callback):
    """Computes metrics of `fit`'s predictions before training on them, by windows of batches and overall.

        progressive = het_tf.callbacks.ProgressiveEvaluation(
            [keras.metrics.AUC(from_logits=True)], window=1000, path="progressive.csv")
        model.fit(stream, callbacks=[progressive])

    A training step predicts a batch and then updates the model, so it predicts samples that the model has not
    seen (prequential evaluation, Dawid 1984; progressive validation, Blum et al., COLT 1999). The metrics
    take these predictions from the step, without a second forward pass. Samples are unseen only in the first
    pass over the data, and the model is in training mode, with dropout and the batch's own statistics in
    BatchNormalization.

    After every `window` batches the metrics are computed and reset: `windows` gets the results, and the file
    `path` a line of them. The logs of every epoch (and so History and the progress bar) get
    `progressive_NAME`, over all predictions of `fit` so far, across epochs. With `steps_per_execution` a
    window ends with the execution that fills it. The compiled metrics are not touched.

    On several ranks each must have the callback; results cover all ranks' samples exactly, and rank 0 writes
    the file.

    Args:
      metrics: Keras metrics of the model's output, with one number each, used only by the callback. For
        several outputs: a mapping of output (name or number) to metrics.
      window: Batches (of each rank), >= 1.
      path: A CSV file with columns window (1, 2, ..., and "all" at the end), epoch, batches, samples and the
        metrics. An existing file is replaced. None: no file.
      overall: Whether to keep the state of metrics over all windows. False: no `progressive_NAME`.

    Attributes:
      windows: A dict of the columns of the file for each window of the newest `fit`; the last one may be
        shorter.

    Raises:
      ValueError: An argument is out of range. When training begins: the file cannot be written.
      RuntimeError: The model's train_step does not call `compute_metrics`.
    """

    def __init__(
        self,
        metrics: Sequence[Any] | Mapping[Any, Sequence[Any]],
        window: int = 1000,
        path: str | None = None,
        overall: bool = True,
    ) -> None:
        super().__init__()
        self.window = whole("window", window, what="a number of batches")
        self._outputs: dict[Any, list[Any]] = (
            {key: list(one) for key, one in metrics.items()}
            if isinstance(metrics, Mapping)
            else {None: list(metrics)}
        )
        self._metrics = _checked([one for of_output in self._outputs.values() for one in of_output])
        self.path = None if path is None else local_path("path", path)
        self._overall = [type(one).from_config(one.get_config()) for one in self._metrics if overall]
        self.windows: list[dict[str, Any]] = []
        self._observer: Observer | None = None
        with wide(), keras.device("cpu:0"):
            self._seen = keras.Variable([0, 0], dtype="int64", trainable=False)  # batches, samples

    def set_model(self, model: Any) -> None:
        """Installs the observer before Keras makes the function of a step."""
        super().set_model(model)
        self._remove()
        self._observer = Observer(model, self._tell)

    def _tell(self, y: Any, y_pred: Any, sample_weight: Any) -> None:
        for key, metrics in self._outputs.items():
            labels, predictions = (y, y_pred) if key is None else (_of(y, key), _of(y_pred, key))
            weights = (
                _of(sample_weight, key) if isinstance(sample_weight, (dict, list, tuple)) else sample_weight
            )
            if isinstance(predictions, (dict, list, tuple)):
                raise ValueError(
                    "the model has several outputs; give ProgressiveEvaluation a dict: output -> metrics"
                )
            for metric in metrics:
                metric.update_state(labels, predictions, sample_weight=weights)
        batch = keras.ops.shape(keras.tree.flatten(y_pred)[0])[0]
        self._count(keras.ops.stack([1, batch]))

    @exact
    def _count(self, more: Any) -> None:
        self._seen.assign(self._seen + keras.ops.cast(more, "int64"))

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins anew."""
        self.windows, self._epoch = [], 0
        self._begun = np.zeros(2, np.int64)  # begin of the window
        self._count(-self._seen.value)
        for metric in (*self._metrics, *self._overall):
            metric.reset_state()
        with collective.together("progressive", "write the file of ProgressiveEvaluation"):
            self._write(["window", "epoch", "batches", "samples", *self._names], begin=True)

    @property
    def _names(self) -> list[str]:
        return [metric.name for metric in self._metrics]

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Remembers the epoch."""
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Ends a window if it is full."""
        if not self._observer or not self._observer.told:
            raise RuntimeError(
                f"train_step of model {self.model.name!r} did not call compute_metrics(x, y, y_pred, "
                "sample_weight), where ProgressiveEvaluation looks; call it there, after the update"
            )
        self._observer.settle()
        if keras.ops.convert_to_numpy(self._seen.value)[0] - self._begun[0] >= self.window:
            self._end_window()

    def _end_window(self) -> None:
        seen = keras.ops.convert_to_numpy(self._seen.value)
        with global_states(self._metrics):
            results = {metric.name: float(metric.result()) for metric in self._metrics}
        batches, samples = (int(one) for one in seen - self._begun)
        samples = int(collective.sum_over_ranks([float(samples)], "progressive_samples")[0])
        counts = {"window": len(self.windows) + 1, "epoch": self._epoch, "batches": batches}
        self.windows.append({**counts, "samples": samples, **results})
        self._write(list(self.windows[-1].values()))
        if self._overall:
            _add(self._overall, self._metrics)
        for metric in self._metrics:
            metric.reset_state()
        self._begun = seen

    def _so_far(self) -> dict[str, float]:
        """Results over all windows, including the running one."""
        if not self._overall:
            return {}
        all_of_it = [type(one).from_config(one.get_config()) for one in self._overall]
        for part in (self._overall, self._metrics):
            _add(all_of_it, part)
        with global_states(all_of_it):
            return {one.name: float(one.result()) for one in all_of_it}

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the results so far to the logs."""
        if logs is not None:
            logs.update({f"progressive_{name}": value for name, value in self._so_far().items()})

    def on_train_end(self, logs: Any = None) -> None:
        """Ends the last window, and removes the observer."""
        if keras.ops.convert_to_numpy(self._seen.value)[0] > self._begun[0]:
            self._end_window()
        results = self._so_far()
        batches, samples = (sum(one[name] for one in self.windows) for name in ("batches", "samples"))
        if results and self.windows:
            self._write(["all", self._epoch, batches, samples, *(results[name] for name in self._names)])
        self._remove()

    def _remove(self) -> None:
        if self._observer is not None:
            self._observer.remove()
            self._observer = None

    def _write(self, values: Sequence[Any], begin: bool = False) -> None:
        if self.path is None or settings.workers().rank != 0:
            return
        try:
            with self.path.open("w" if begin else "a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow(values)
        except OSError as error:
            raise ValueError(
                f"path {str(self.path)!r} of ProgressiveEvaluation cannot be written: {error.strerror}; give "
                "a file in a directory that exists"
            ) from error


def _add(into: Sequence[Any], metrics: Sequence[Any]) -> None:
    """Adds the states of metrics, which are sums, to those of others of the same classes; eagerly."""
    for total, variable in zip(variables_of(into), variables_of(metrics), strict=True):
        total.assign(np.asarray(total.numpy()) + np.asarray(variable.numpy()))


def _of(values: Any, key: Any) -> Any:
    try:
        return values[key]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(
            f"ProgressiveEvaluation has metrics of output {key!r}, which the labels and predictions lack; "
            "give an output of the model"
        ) from error


def _checked(metrics: list[Any]) -> list[Any]:
    names = [getattr(one, "name", None) for one in metrics]
    if not metrics or not all(isinstance(one, keras.metrics.Metric) for one in metrics):
        raise ValueError(f"metrics are {metrics!r}; give Keras metrics as objects, keras.metrics.AUC()")
    if len(set(names)) != len(names):
        raise ValueError(f"metrics have the names {names}; give each a different one, name=...")
    return metrics
