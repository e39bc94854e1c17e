"""Files of Keras are replaced at once: written under another name beside their place, then renamed.

Keras opens the file itself, which empties an existing one. A save that a layer refuses would leave it so, and
open: another save under its name would fail.
"""

import functools
import os
from pathlib import Path
from typing import Any

from het_tf.python.backend import keras
from het_tf.python.table import layer_state

_FILES = (".keras", ".h5")  # Keras' other formats are several files, or a directory


def of_models() -> None:
    """Makes `save` and `save_weights` of models with tables replace their file, or leave it as it was."""
    for name in ("save", "save_weights"):
        setattr(keras.Model, name, _replacing(getattr(keras.Model, name)))


def _replacing(save: Any) -> Any:
    @functools.wraps(save)
    def replace(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> None:
        text = os.fspath(filepath) if isinstance(filepath, (str, os.PathLike)) else "://"
        asks = not kwargs.get(
            "overwrite", args[0] if args else True
        )  # Keras does, about the path that it gets
        if asks or "://" in text or not text.endswith(_FILES) or not layer_state.layers_of(self):
            save(self, filepath, *args, **kwargs)
            return
        place = Path(os.path.realpath(text))
        beside = place.with_name(f".het_tf-{os.getpid()}-{place.name}")
        try:
            save(self, str(beside), *args, **kwargs)
            with beside.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(beside, place)
        finally:
            beside.unlink(missing_ok=True)

    return replace
