"""Writes a SavedModel beside its path, and moves it there when all of it is on disk."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from het_tf.python.files import sync


@contextlib.contextmanager
def staging_of(target: Path) -> Iterator[tuple[Path, Path]]:
    """Yields two temporary directories beside the target: for the SavedModel, and for its assets."""
    base = target.parent / f".tmp-{target.name}-{secrets.token_hex(4)}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        base.mkdir()
    except OSError as error:
        raise type(error)(
            error.errno, f"{target} cannot be written: {error.strerror}; give a directory where you may write"
        ) from None
    try:
        work = base / "work"
        work.mkdir()
        yield base / "model", work
    finally:
        shutil.rmtree(base, ignore_errors=True)


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
