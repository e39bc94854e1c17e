"""Writes a SavedModel beside its path, and moves it there when all of it is on disk."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from het_tf.python.files import sync


@contextlib.contextmanager
def staging_of(target: Path) -> Iterator[tuple[Path, Path]]:
    """Yields two temporary directories beside the target: for the SavedModel, and for its assets."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        base = tempfile.TemporaryDirectory(
            prefix=f".tmp-{target.name}-", dir=target.parent, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise type(error)(
            error.errno, f"{target} cannot be written: {error.strerror}; give a directory where you may write"
        ) from None
    with base as place:
        work = Path(place, "work")
        work.mkdir()
        yield Path(place, "model"), work


def replace(staging: Path, target: Path, overwrite: bool) -> None:
    """Waits until all files are on disk, and renames the directory."""
    for file in staging.rglob("*"):
        sync(file)
    sync(staging)
    if overwrite and target.exists():
        old = staging.with_name("old")
        target.rename(old)
        try:
            staging.rename(target)
        except OSError:
            old.rename(target)
            raise
    else:
        if os.path.lexists(target):
            raise FileExistsError(f"{target} exists; it was made while the model was being exported")
        staging.rename(target)
    sync(target.parent)
