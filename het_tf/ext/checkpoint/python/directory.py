"""A directory of checkpoints: names, atomic publication, and removal of old ones.

    DIR/ckpt-00000012/               complete: all its files were on disk before it got this name
    DIR/.tmp-ckpt-00000013-XXXXXXXX/ being written, or left by a process that died; the next save removes it

A checkpoint appears by one rename and disappears by one (to a temporary name, before its files are removed).
So a process that dies at any point leaves only complete checkpoints and leftovers. A saving process holds a
lock on DIR, so any leftover it finds there belongs to a dead process.
"""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Iterable
from pathlib import Path

from het_tf.ext.checkpoint.python import manifest as manifests
from het_tf.ext.checkpoint.python.manifest import Manifest, read_manifest
from het_tf.python.files import local_path, rename, sync
from het_tf.python.table.notes import HetWarning

_NAME = re.compile(r"ckpt-(\d{8,})")
_TEMPORARY = ".tmp-"
_LEFTOVER = ".tmp-ckpt-"  # left by a save into the directory; other programs may write beside it
# Errors of file systems without locks.
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def path_of(argument: str, value: object) -> Path:
    """Returns an argument as an absolute path.

    Raises:
      TypeError, ValueError: It is not a path of this machine.
    """
    return Path(os.path.abspath(local_path(argument, value)))


def name_of(number: int) -> str:
    """Name of the checkpoint of a step."""
    return f"ckpt-{number:08d}"


def number_of(path: Path) -> int:
    """The step, or counter, in the name of a checkpoint."""
    found = _NAME.fullmatch(path.name)
    if found is None:
        raise ValueError(f"{path} does not have the name of a checkpoint")
    return int(found[1])


def checkpoints(directory: str | os.PathLike[str]) -> list[Path]:
    """Returns the complete checkpoints of a directory, oldest first.

    Args:
      directory: The argument of `save`. The result is empty if it does not exist.

    Raises:
      NotADirectoryError: It is a file.
    """
    try:
        found = [
            path
            for path in local_path("directory", directory).iterdir()
            if _NAME.fullmatch(path.name) and (path / manifests.FILE).is_file()
        ]
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise NotADirectoryError(f"{directory} is a file; give a directory of checkpoints") from None
    return sorted(found, key=number_of)


def latest(directory: str | os.PathLike[str]) -> Path | None:
    """Returns the newest complete checkpoint of a directory, or None.

    Args:
      directory: The argument of `save`; it need not exist yet.

    Raises:
      NotADirectoryError: It is a file.
    """
    found = checkpoints(directory)
    return found[-1] if found else None


def resolve(path: str | os.PathLike[str]) -> Path:
    """Returns the checkpoint at `path`, or the newest one of the directory `path`.

    Raises:
      FileNotFoundError, NotADirectoryError: No checkpoint is there.
    """
    given = local_path("path", path)
    if (given / manifests.FILE).exists():
        return given
    if not given.exists():
        raise FileNotFoundError(f"there is no checkpoint {given}")
    newest = latest(given)
    if newest is None:
        raise FileNotFoundError(
            f"{given} has no {manifests.FILE}, and no checkpoint in it: it is neither a checkpoint nor a "
            "directory of checkpoints"
        )
    return newest


def chain(path: Path) -> list[Manifest]:
    """Returns the manifests of a checkpoint: the full one, then each increment on it, up to `path`.

    Raises:
      FileNotFoundError: A base is missing.
      ValueError: A manifest is damaged, or another checkpoint has the name of a base.
    """
    found = [read_manifest(path)]
    while (base := found[-1].base) is not None:
        here = found[-1].path
        place = here.parent / base["name"]
        if any(place == one.path for one in found):
            raise ValueError(f"{place} is among its own bases and cannot be read; restore another checkpoint")
        try:
            found.append(read_manifest(place))
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{here} holds the changes since {base['name']}, but {place} is missing; put it back, "
                "or restore another checkpoint"
            ) from None
        if found[-1].id != base["id"]:
            raise ValueError(
                f"{here} builds on the {base['name']} with the id {base['id']}, but {place} is another one "
                f"(its id is {found[-1].id})"
            )
    return found[::-1]


def make(directory: Path) -> None:
    """Makes a directory and its parents if they are missing.

    Raises:
      OSError: It cannot be made; FileExistsError or NotADirectoryError if a file is in the way.
    """
    missing = []
    place = directory.absolute()
    while not place.exists() and not place.is_symlink():
        missing.append(place)
        place = place.parent
    if not place.is_dir():
        raise NotADirectoryError(f"{place} is a file; give a directory for checkpoints, not {directory}")
    for one in reversed(missing):
        one.mkdir(exist_ok=True)  # another process may make it too
        sync(one.parent)


class Pending:
    """A checkpoint being written: its temporary directory, and the lock on the directory of checkpoints.

    Args:
      directory: The directory of checkpoints, which exists.
      number: Number of the new one; None: the newest's plus one.

    Attributes:
      path: The temporary directory, empty.
      target: Its final path.

    Raises:
      ValueError: The directory has a checkpoint with this number or a later one.
      RuntimeError: Another process saves in this directory.
      OSError: The directory cannot be written to.
    """

    def __init__(self, directory: Path, number: int | None) -> None:
        self._lock = _lock(directory)
        try:
            remove(path for path in directory.glob(f"{_LEFTOVER}*") if path.is_dir())
            self.target = directory / name_of(_next(directory, number))
            self.path = _temporary(self.target)
            self.path.mkdir()
        except BaseException:
            self._unlock()
            raise

    def publish(self) -> Path:
        """Renames it to its target once all of it is on disk. Returns its path."""
        with manifests.naming(self.target):
            rename(self.path, self.target)
        self._unlock()
        return self.target

    def abandon(self) -> None:
        """Removes the temporary directory unless it was published."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            # Closing is not enough: a process forked meanwhile has the file open, too.
            with contextlib.suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
        self._lock = None


def _next(directory: Path, number: int | None) -> int:
    """Returns the number of a new checkpoint, larger than all: `latest` relies on names in order of time."""
    newest = max(
        (number_of(path) for path in directory.iterdir() if _NAME.fullmatch(path.name)), default=None
    )
    if number is None:
        return 1 if newest is None else newest + 1
    if newest is not None and number <= newest:
        raise ValueError(
            f"step is {number}, and {directory} has {name_of(newest)}; give a later step, remove "
            "unwanted checkpoints, or save into another directory"
        )
    return number


def _lock(directory: Path) -> int | None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
            raise RuntimeError(
                f"another process, or another thread, is saving in {directory}; save there one at a time"
            ) from None
        if error.errno not in _NO_LOCKS:
            raise
        warnings.warn(
            f"the file system of {directory} has no locks: two processes that save there at once destroy "
            "each other's work, and nothing stops them",
            HetWarning,
            stacklevel=5,
        )
        return None
    return handle


def _temporary(target: Path) -> Path:
    return target.with_name(f"{_TEMPORARY}{target.name}-{secrets.token_hex(4)}")


def keep_newest(directory: Path, keep: int) -> None:
    """Removes all checkpoints except the newest `keep` and their bases.

    Failures are only warnings: the checkpoint that was just saved is complete anyway.
    """
    paths = checkpoints(directory)
    kept, rest = paths[-keep:], paths[:-keep]
    if not rest:
        return
    needed: set[str] = set()
    try:
        for path in kept:
            if path.name not in needed:
                needed.update(one.path.name for one in chain(path))
    except (OSError, ValueError) as error:
        warnings.warn(
            f"no checkpoint of {directory} was removed, since the bases that others need are unknown: "
            f"{error}",
            HetWarning,
            stacklevel=3,
        )
        return
    try:
        # The newest first: an increment goes before its base, so that all that remain can be read.
        remove(path for path in reversed(rest) if path.name not in needed)
    except OSError as error:
        warnings.warn(f"an old checkpoint could not be removed: {error}", HetWarning, stacklevel=3)


def remove(paths: Iterable[Path]) -> None:
    """Removes directories; each gets a temporary name before its first file is removed."""
    for path in list(paths):
        hidden = path
        if not path.name.startswith(_TEMPORARY):
            hidden = _temporary(path)
            rename(path, hidden)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(hidden)
