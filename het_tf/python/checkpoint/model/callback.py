"""`het_tf.callbacks.Checkpoint`: Keras' ModelCheckpoint, also for a directory of het_tf's checkpoints."""

import os
from typing import Any

from het_tf.python.checkpoint import directory as directories
from het_tf.python.checkpoint.model.save import save
from het_tf.python.horovod import callbacks


class Checkpoint(callbacks.Checkpoint):
    """Saves while `fit` runs: tables, dense weights and the optimizer's state of the same moment.

        model.fit(..., callbacks=[het_tf.callbacks.Checkpoint("ckpts", keep=3)])
        het_tf.checkpoint.restore("ckpts", model)

    With a directory this is `het_tf.checkpoint.save` with the optimizer's steps as `step`: every rank writes,
    and a crash leaves the last one whole. With a path that ends in .keras or .h5, or with
    save_weights_only=True, it is Keras' own file, which rank 0 writes. Under Horovod every rank must have the
    callback; with `save_best_only` put MetricAverage before it, so that all decide the same.

    Args:
      filepath: A directory; or a path as `keras.callbacks.ModelCheckpoint` takes it.
      keep: Of a directory: how many checkpoints it keeps; None: all.
      full_every: Of a directory: every how many saves all rows are written; those between are increments.
      **options: Those of `keras.callbacks.ModelCheckpoint`: monitor, save_best_only, mode, save_freq, ...

    Raises:
      ValueError: An argument is out of range, or goes with a directory alone.
      Further errors, while `fit` runs, as of `het_tf.checkpoint.save`.
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
        path = os.fspath(filepath)
        self._het_directory = not path.endswith((".keras", ".h5")) and not options.get("save_weights_only")
        if self._het_directory and "{" in path:
            raise ValueError(
                f"filepath is {path!r}; checkpoints in it are named by the step: give it without {{}}"
            )
        if not self._het_directory and (keep is not None or full_every != 1):
            raise ValueError(f"filepath is {path!r}; keep and full_every go with a directory")
        for name, value in (("keep", 1 if keep is None else keep), ("full_every", full_every)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} is {value!r}; give an integer from 1")
        super().__init__(f"{path}.keras" if self._het_directory else path, **options)
        self.filepath = path
        self._het_keep, self._het_full_every, self._het_saves = keep, full_every, 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Refuses a directory whose checkpoints are of later steps now, not when the first save is due."""
        super().on_epoch_begin(epoch, logs)
        if not self._het_directory or self._het_saves:
            return
        newest = directories.latest(self.filepath)
        steps = int(self.model.optimizer.iterations)
        if newest is not None and directories.number_of(newest) > steps:
            raise ValueError(
                f"{newest} is there, and the optimizer has made {steps} steps: what training saves now would "
                "come before it. Restore it first, remove the checkpoints that are not wanted any more, or "
                "give another directory"
            )

    def _save_model(self, *args: Any, **kwargs: Any) -> None:
        if not self._het_directory:
            super()._save_model(*args, **kwargs)
            return
        # Keras decides whether to save, and calls `save` of what it takes for the model.
        model = self.model
        self.set_model(_Saved(model, self._save_here))
        try:
            super(callbacks.Checkpoint, self)._save_model(*args, **kwargs)
        finally:
            self.set_model(model)

    def _save_here(self, *_: Any, **__: Any) -> None:
        model = self.model.of
        since = "latest" if self._het_saves % self._het_full_every else None
        step = int(model.optimizer.iterations)
        save(self.filepath, model, step=step, keep=self._het_keep, since=since)
        self._het_saves += 1


class _Saved:
    """A model that is saved in another way."""

    def __init__(self, model: Any, action: Any) -> None:
        self.of, self.save = model, action

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)
