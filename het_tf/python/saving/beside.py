"""Writes Keras' files atomically: under another name beside their place, then renamed.

Keras opens the target file itself, which empties an existing one. So Keras' callback gets the model as a
`Beside`, which saves it under another name first.
"""

import os
from pathlib import Path
from typing import Any

_FILES = (".keras", ".h5")  # Keras' other formats are several files, or a directory


class Beside:
    """A model whose `save` and `save_weights` replace a file atomically."""

    def __init__(self, model: Any) -> None:
        self._of = model

    def save(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """As `keras.Model.save`."""
        _write(self._of.save, path, args, kwargs)

    def save_weights(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """As `keras.Model.save_weights`."""
        _write(self._of.save_weights, path, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)


def _write(save: Any, path: Any, args: Any, kwargs: Any) -> None:
    text = os.fspath(path)
    if "://" in text or not text.endswith(_FILES):
        save(path, *args, **kwargs)
        return
    place = Path(text)
    beside = place.with_name(f".het_tf-{os.getpid()}-{place.name}")
    try:
        save(str(beside), *args, **kwargs)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, place)
    finally:
        beside.unlink(missing_ok=True)
