"""A directory of checkpoints: their names, how one appears in it whole, and which of them stay.

    DIR/ckpt-00000012/               complete: everything below was on disk before it had this name
    DIR/.tmp-ckpt-00000013-XXXXXXXX/ being written, or left by a process that died; the next save removes it

A checkpoint comes by one rename and goes by one (to a temporary name, before its files are removed), so a
process that dies at any point leaves complete checkpoints and leftovers, and nothing between. While a process
saves it holds a lock on DIR: leftovers are then nobody's.
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

from het_tf.python.checkpoint import manifest as manifests
from het_tf.python.checkpoint.manifest import Manifest, read_manifest

_NAME = re.compile(r"ckpt-(\d{8,})")
_TEMPORARY = ".tmp-"
_LEFTOVER = ".tmp-ckpt-"  # of a save into the directory; others may write beside it
# What file systems without locks answer.
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def path_of(argument: str, value: object) -> Path:
    """The absolute path that an argument is.

    Raises:
      TypeError: It is no path.
    """
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{argument} is {value!r}; give a path")
    return Path(os.path.abspath(value))


def name_of(number: int) -> str:
    """Name of the checkpoint of a step."""
    return f"ckpt-{number:08d}"


def number_of(path: Path) -> int:
    """The step, or counter, in the name of a checkpoint."""
    found = _NAME.fullmatch(path.name)
    if found is None:
        raise ValueError(f"{path} is not named as a checkpoint is")
    return int(found[1])


def checkpoints(directory: str | os.PathLike[str]) -> list[Path]:
    """The complete checkpoints of a directory, oldest first.

    Args:
      directory: What `save` was given. One that does not exist has no checkpoints.

    Raises:
      NotADirectoryError: It is a file.
    """
    try:
        found = [
            path
            for path in Path(directory).iterdir()
            if _NAME.fullmatch(path.name) and (path / manifests.FILE).is_file()
        ]
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise NotADirectoryError(f"{directory} is a file; give a directory of checkpoints") from None
    return sorted(found, key=number_of)


def latest(directory: str | os.PathLike[str]) -> Path | None:
    """The newest complete checkpoint of a directory, None if there is none.

    Args:
      directory: What `save` was given; it need not exist yet.

    Raises:
      NotADirectoryError: It is a file.
    """
    found = checkpoints(directory)
    return found[-1] if found else None


def resolve(path: str | os.PathLike[str]) -> Path:
    """A checkpoint by its own path, or the newest one of a directory of checkpoints.

    Raises:
      FileNotFoundError, NotADirectoryError: There is none.
    """
    given = Path(path)
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
    """The manifests that a checkpoint consists of: the full one, then each increment on it, up to `path`.

    Raises:
      FileNotFoundError: A base is missing.
      ValueError: A manifest is damaged, or the checkpoint that has the name of a base is another one.
    """
    found = [read_manifest(path)]
    while (base := found[-1].base) is not None:
        here = found[-1].path
        place = here.parent / base["name"]
        if any(place == one.path for one in found):
            raise ValueError(f"{place} is among what it builds on itself; the checkpoint cannot be read")
        try:
            found.append(read_manifest(place))
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{here} holds what has changed since {base['name']}, and {place} is missing; put it back, "
                "or restore another checkpoint"
            ) from None
        if found[-1].id != base["id"]:
            raise ValueError(
                f"{here} builds on the {base['name']} with the id {base['id']}, and {place} is another one "
                f"(its id is {found[-1].id})"
            )
    return found[::-1]


def sync(path: Path) -> None:
    """Waits until a file, or a directory's entries, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make(directory: Path) -> None:
    """Makes a directory and those above it, where there is none.

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
    """A checkpoint that is being written: a temporary directory, and the lock on the one that it will be in.

    Args:
      directory: Where checkpoints are; it exists.
      number: Of the new one; None: one more than that of the newest.

    Attributes:
      path: The temporary directory, empty.
      target: What it will be called.

    Raises:
      ValueError: There is a checkpoint of that number or of a later one.
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
        """Gives it its name, now that all of it is on disk. Returns its path."""
        publish(self.path, self.target)
        self._unlock()
        return self.target

    def abandon(self) -> None:
        """Removes what was written so far, if it has no name yet."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            # Closing alone would not do where a process was forked meanwhile: it has the file open, too.
            with contextlib.suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
        self._lock = None


def _next(directory: Path, number: int | None) -> int:
    """The number of a new checkpoint: names in order of time are what makes `latest` the newest."""
    newest = max(
        (number_of(path) for path in directory.iterdir() if _NAME.fullmatch(path.name)), default=None
    )
    if number is None:
        return 1 if newest is None else newest + 1
    if newest is not None and number <= newest:
        raise ValueError(
            f"step is {number}, and {directory} has {name_of(newest)}; give a later step, remove the "
            "checkpoints that are not wanted any more, or save into another directory"
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
            RuntimeWarning,
            stacklevel=5,
        )
        return None
    return handle


def _temporary(target: Path) -> Path:
    return target.with_name(f"{_TEMPORARY}{target.name}-{secrets.token_hex(4)}")


def publish(written: Path, target: Path) -> None:
    """Renames a directory whose files are on disk, and waits until the new name is."""
    sync(written)
    with manifests.naming(target):
        os.rename(written, target)
    sync(target.parent)


def beside(target: Path) -> Path:
    """Makes an empty temporary directory next to `target`, which has to be missing; its parent is made.

    Raises:
      FileExistsError: There is something of that name.
      OSError: It cannot be made.
    """
    if target.exists() or target.is_symlink():
        raise FileExistsError(f"{target} is there already; remove it first, or give another name")
    make(target.parent)
    # Not named as a leftover of a save is: a save into this directory removes those.
    path = target.with_name(f"{_TEMPORARY}beside-{target.name}-{secrets.token_hex(4)}")
    path.mkdir()
    return path


def keep_newest(directory: Path, keep: int) -> None:
    """Removes all checkpoints but the newest `keep`, and what those build on.

    What cannot be removed is warned about: the checkpoint that was just saved is complete all the same.
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
            f"no checkpoint of {directory} was removed, since it is not known which ones are still needed: "
            f"{error}",
            RuntimeWarning,
            stacklevel=3,
        )
        return
    try:
        # The newest first: what builds on another goes before that, so that all that are seen can be read.
        remove(path for path in reversed(rest) if path.name not in needed)
    except OSError as error:
        warnings.warn(f"an old checkpoint could not be removed: {error}", RuntimeWarning, stacklevel=3)


def remove(paths: Iterable[Path]) -> None:
    """Removes directories; each is out of sight, by a temporary name, before its first file goes."""
    for path in list(paths):
        hidden = path
        if not path.name.startswith(_TEMPORARY):
            hidden = _temporary(path)
            os.rename(path, hidden)
            sync(path.parent)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(hidden)
