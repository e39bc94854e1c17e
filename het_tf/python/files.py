"""Paths of arguments. Reads untrusted files: without blocking, up to a size limit, with the reason of errors.

Opening a FIFO waits for its writer, and a device has no end. So every reader opens files here first, which
accepts only regular ones. Nothing here imports TensorFlow.
"""

import contextlib
import json
import math
import os
import re
import secrets
import stat
from argparse import ArgumentTypeError
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from het_tf.python.show import size

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # Path("gs://a") is "gs:/a"
_DEEPEST = 32  # nesting of a JSON text; ours have 6 levels at most

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def local_path(argument: str, value: Any) -> Path:
    """Returns an argument as a path of this machine's files; "~" is the home directory.

    Every path that het_tf itself reads or writes passes here: "gs://bucket/a" would name a directory "gs:".

    Raises:
      TypeError: It is not a path.
      ValueError: It is empty, or the address of another storage.
    """
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{argument} is {value!r}; give a path")
    text = os.fspath(value)
    scheme = _SCHEME.match(text)
    if scheme and scheme[1].lower() == "file":
        raise ValueError(f"{argument} is {text!r}; give the path without 'file://'")
    if scheme:
        raise ValueError(
            f"{argument} is {text!r}, and het_tf reads and writes only files of this machine and its mounts: "
            f"give such a path, and copy between it and {scheme[1]}:// by that storage's own tool"
        )
    if not text:
        raise ValueError(f"{argument} is ''; give a path")
    return Path(os.path.expanduser(text))


def local(text: str) -> Path:
    """`local_path` as a type of argparse."""
    try:
        return local_path("the path", text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a regular file for reading.

    Raises:
      ValueError: It is not a regular file.
      OSError: It cannot be opened.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO returns at once
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise ValueError(
            f"{os.fspath(path)} is {_KINDS.get(stat.S_IFMT(mode), 'no file')}, not a regular file"
        )
    return open(handle, "rb")


def sync(path: Path) -> None:
    """Waits until a file, or a directory's entries, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a path beside `path` to write a file to, which then takes its name: whole, or not at all."""
    beside, target = pair_of(path)
    try:
        yield beside
        rename(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def pair_of(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Returns a new path beside `path`, to write a file to, and that of the file."""
    target = Path(os.path.realpath(path))
    return target.with_name(f".het_tf-{secrets.token_hex(8)}-{target.name}"), target


def rename(written: Path, target: Path) -> None:
    """Gives a file, or a directory whose files are on disk, its name, when it is on disk itself."""
    sync(written)
    written.replace(target)
    sync(target.parent)


def read_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """Reads a regular file.

    Raises:
      ValueError: It is larger than `most` bytes, or not a regular file.
      OSError: It cannot be read.
    """
    with open_file(path) as file:
        there = os.fstat(file.fileno()).st_size
        content = file.read(min(there, most) + 1)  # `read` allocates its argument first
    if len(content) > most:
        raise ValueError(f"{os.fspath(path)} has more than {size(most)}, the limit for this file")
    return content


def parse_json(content: bytes) -> Any:
    """Parses a JSON text in UTF-8.

    Raises:
      ValueError: It is not JSON, has NaN or an out-of-range number, or is nested too deeply. The message has
        only the reason.
    """
    try:
        value = json.loads(content.decode(), parse_float=_finite, parse_constant=_finite)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise ValueError(f"it is nested deeper than {_DEEPEST} times") from None
    if _deeper(value, _DEEPEST):
        raise ValueError(f"it is nested deeper than {_DEEPEST} times")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a number of JSON")
    return number


def _deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return bool(inner) and (levels == 0 or any(_deeper(one, levels - 1) for one in inner))


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8; JSON may have halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
