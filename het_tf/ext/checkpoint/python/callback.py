"""`het_tf.callbacks.Checkpoint`, a ModelCheckpoint that also writes het_tf's checkpoints; `RestoreBest`."""

import math
import os
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np

from het_tf.ext.checkpoint.python import direction
from het_tf.ext.checkpoint.python import directory as directories
from het_tf.ext.checkpoint.python.model.restore import restore
from het_tf.ext.checkpoint.python.model.save import save
from het_tf.ext.checkpoint.python.ranks import Ranks
from het_tf.ext.checkpoint.python.saving import workers
from het_tf.python import backend
from het_tf.python.backend import keras
from het_tf.python.checks import one_of, whole, whole_or_none
from het_tf.python.files import local_path, replaced
from het_tf.python.session import collective, settings
from het_tf.python.table.table import flush


class Checkpoint(keras.callbacks.ModelCheckpoint):
    """Saves tables, dense weights and the optimizer's state at one moment while `fit` runs.

        model.fit(..., callbacks=[het_tf.callbacks.Checkpoint("ckpts", keep=3)])
        het_tf.checkpoint.restore("ckpts", model)

    With a directory it calls `het_tf.checkpoint.save` with the optimizer's steps as `step`: every rank
    writes, and a crash leaves the last checkpoint intact. With a path that ends in .keras or .h5, or with
    save_weights_only=True, rank 0 writes Keras' own file. Under Horovod every rank must have the callback;
    with `save_best_only` rank 0's value decides for all.

    Args:
      filepath: A directory; or a path of `keras.callbacks.ModelCheckpoint`.
      keep: Number of checkpoints that the directory keeps; None: all.
      full_every: Every `full_every`-th save to the directory writes all rows; the others are increments.
      **options: Arguments of `keras.callbacks.ModelCheckpoint`: monitor, save_best_only, mode, save_freq, ...
        mode "auto": the metric decides. One that het_tf and Keras do not know needs "min" or "max".

    Raises:
      ValueError: An argument is out of range, or needs a directory. While `fit` runs, with `save_best_only`:
        the logs lack `monitor`, or its mode is unknown.
      Further errors, while `fit` runs, as in `het_tf.checkpoint.save`.
    """

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        *,
        keep: int | None = None,
        full_every: int = 1,
        **options: Any,
    ) -> None:
        if not isinstance(filepath, (str, os.PathLike)):
            raise TypeError(f"filepath is {filepath!r}; give a path")
        path = os.path.expanduser(filepath)
        self._het_directory = not path.endswith((".keras", ".h5")) and not options.get("save_weights_only")
        if self._het_directory or "://" not in path:
            local_path("filepath", path)
        elif backend.TENSORFLOW:  # Keras' file, which TensorFlow writes
            from het_tf.python.session.native import tf

            try:
                tf.io.gfile.exists(path)
            except tf.errors.UnimplementedError as error:
                raise ValueError(f"filepath is {path!r}: {error.message}; give another storage") from None
        if self._het_directory and "{" in path:
            raise ValueError(
                f"filepath is {path!r}; checkpoints in it are named by the step: give it without {{}}"
            )
        if not self._het_directory and (keep is not None or full_every != 1):
            raise ValueError(f"filepath is {path!r}; keep and full_every need a directory")
        whole_or_none("keep", keep)
        whole("full_every", full_every)
        self._het_mode = options.get("mode", "auto")
        one_of("mode", self._het_mode, ("auto", "min", "max"))
        super().__init__(f"{path}.keras" if self._het_directory else path, **options)
        self.filepath, self._het_threshold = path, options.get("initial_value_threshold")
        self._het_keep, self._het_full_every, self._het_saves = keep, full_every, 0
        self._het_last: Path | None = None
        self._het_decided = self._het_missed = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Refuses a directory with checkpoints of later steps now, before the first save is due."""
        super().on_epoch_begin(epoch, logs)
        if not self._het_directory or self._het_saves:
            return
        newest = directories.latest(self.filepath)
        steps = int(self.model.optimizer.iterations)
        if newest is not None and directories.number_of(newest) > steps:
            raise ValueError(
                f"{newest} exists, but the optimizer has made {steps} steps: a checkpoint saved now would "
                "come before it. Restore it first, remove unwanted checkpoints, or "
                "give another directory"
            )

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves, with `save_best_only` only if the epoch is the best so far."""
        logs = dict(logs or {})
        if self.save_best_only and self.save_freq == "epoch":
            value = Ranks().first("read the monitored value", lambda: self._value(logs))
            if value is None or not math.isfinite(value):
                self._het_missed = True
                return
            logs[self.monitor] = value
        super().on_epoch_end(epoch, logs)

    def on_train_end(self, logs: Any = None) -> None:
        """Raises ValueError if no epoch had the monitored value, so that nothing was saved."""
        super().on_train_end(logs)
        if self._het_missed and not self._het_decided:
            raise ValueError(
                f"monitor is {self.monitor!r}, which no epoch had as a number: nothing is saved; give "
                "`fit` validation_data, or monitor 'loss'"
            )

    def _value(self, logs: dict[str, Any]) -> float | None:
        if self.monitor in logs:
            return float(logs[self.monitor])
        if self.monitor.startswith("val_") and not any(name.startswith("val_") for name in logs):
            return None
        raise ValueError(f"monitor is {self.monitor!r}; give one of {', '.join(sorted(logs))}")

    def _set_monitor_op(self) -> None:
        """Decides which of two values is better, in place of Keras: its versions differ (direction.py)."""
        sign = {"min": -1, "max": 1}.get(self._het_mode, -1)
        if self._het_mode == "auto" and self.save_best_only:
            sign = direction.sign(self.model, self.monitor)
        self.monitor_op = np.greater if sign > 0 else np.less
        self.best = -sign * math.inf if self._het_threshold is None else self._het_threshold
        self._het_decided = True

    def _save_model(self, *args: Any, **kwargs: Any) -> None:
        if not self._het_decided:  # early Keras has, in its constructor
            self._set_monitor_op()
        if self._het_directory:
            self._save_by(self._save_here, args, kwargs)
            return
        # Rank 0 writes while the others wait: dense weights and tables are of one moment.
        flush(all_ranks=True)
        with collective.together("checkpoint", "write the checkpoint"):
            if settings.workers().rank == 0:
                with workers.have_met():
                    self._save_by(self._write_file, args, kwargs)

    def _write_file(self, path: str, **options: Any) -> None:
        """Writes a file of Keras, whole or not at all."""
        model = self.model.of
        write = model.save_weights if self.save_weights_only else model.save
        if "://" in path or not path.endswith((".keras", ".h5")):
            write(path, **options)
            return
        with replaced(path) as beside:
            write(str(beside), **options)

    def _save_by(self, action: Any, args: Any, kwargs: Any) -> None:
        """Keras decides whether to save, and calls `save` of the stand-in for the model."""
        model = self.model
        self.set_model(_Saved(model, action))
        try:
            super()._save_model(*args, **kwargs)
        finally:
            self.set_model(model)

    def _save_here(self, *_: Any, **__: Any) -> None:
        model = self.model.of
        since = "latest" if self._het_saves % self._het_full_every else None
        step = int(model.optimizer.iterations)
        self._het_last = save(self.filepath, model, step=step, keep=self._het_keep, since=since)
        self._het_saves += 1


class RestoreBest(Checkpoint):
    """Restores the model's best epoch at the end of `fit`: tables, dense weights and optimizer.

        stop = keras.callbacks.EarlyStopping(patience=2)
        model.fit(..., validation_data=valid, callbacks=[stop, het_tf.callbacks.RestoreBest()])

    Each epoch that is better than all before replaces the saved checkpoint (`het_tf.checkpoint.save`), which
    is restored at the end. Under Horovod every rank must have the callback; rank 0's
    value decides for all.

    Args:
      monitor: Name of the value in an epoch's logs; an epoch without it is not better.
      mode: "min" or "max" is best; "auto": the metric decides. One that het_tf and Keras do not know needs
        "min" or "max".
      directory: Directory of the checkpoint, which stays; ranks on several hosts must share it. None: a
        temporary directory, removed at the end of `fit`.

    Raises:
      ValueError: The mode is unknown. While `fit` runs: the logs lack `monitor` in all epochs.
      TypeError: `directory` is not a path.
      Further errors, while `fit` runs, as in `het_tf.checkpoint.save` and `restore`.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        mode: Literal["auto", "min", "max"] = "auto",
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        if directory is not None:
            directory = local_path("directory", directory)
        super().__init__("best", keep=1, monitor=monitor, mode=mode, save_best_only=True)
        self._het_place = directory
        self._het_temporary: tempfile.TemporaryDirectory[str] | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Makes the directory, and forgets an earlier `fit`."""
        super().on_train_begin(logs)
        self._het_decided, self._het_missed, self.monitor_op = False, False, None  # type: ignore[assignment]
        self._het_saves, self._het_last = 0, None
        self.filepath = Ranks().first("make a directory", self._make_directory)

    def _make_directory(self) -> str:
        if self._het_place is not None:
            return os.fspath(self._het_place)
        self._het_temporary = tempfile.TemporaryDirectory(prefix="het_tf-best-")
        return self._het_temporary.name

    def on_train_end(self, logs: Any = None) -> None:
        """Restores it."""
        super().on_train_end(logs)
        if self._het_last is not None:
            restore(self._het_last, self.model)
        self._het_temporary = None  # removes the directory, if this rank made it


class _Saved:
    """Stands in for a model; saves it by `action`."""

    def __init__(self, model: Any, action: Any) -> None:
        self.of, self.save, self.save_weights = model, action, action

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)
