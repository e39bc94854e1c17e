"""manifest.json: the contents of a checkpoint, and the checksums that reveal damage.

It is written last: a directory with a manifest is a complete checkpoint. Its own checksum is that of its
canonical JSON (keys sorted, no spaces, ASCII) without the field "xxh3". All checksums are XXH3-64, 16 hex
digits.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

from het_tf.python import files
from het_tf.python.checks import is_whole
from het_tf.python.show import size

FILE = "manifest.json"
FORMAT = "het_tf checkpoint"
VERSION = 5  # raise it with Layout::kRule too, the rule of a key's partition
MOST_BYTES = 128 << 20  # limit of manifest.json: some ten thousand tables
_CHUNK = 8 << 20  # bytes per read
AGAIN = "; restore another checkpoint, or get this file again"


@dataclass(frozen=True)
class Manifest:
    """The contents of a checkpoint.

    Attributes:
      path: Its directory.
      document: manifest.json as parsed; docs/checkpoints.md has every field.
      only_in_checkpoint: Set by `restore(..., strict=False)`: tables that it skipped for want of a live table
        of the name.
      only_live: Likewise: live tables that the checkpoint lacks; they are unchanged.
      dense_left_out: Likewise: variables that were not restored, each with the reason.
    """

    path: Path
    document: dict[str, Any] = field(repr=False)
    only_in_checkpoint: tuple[str, ...] = ()
    only_live: tuple[str, ...] = ()
    dense_left_out: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """32 hex digits, unique to the checkpoint."""
        return str(self.document["id"])

    @property
    def created(self) -> float:
        """Seconds since 1970."""
        return float(self.document["created"])

    @property
    def step(self) -> int | None:
        """The argument `step` of `save`."""
        return None if self.document["step"] is None else int(self.document["step"])

    @property
    def namespace(self) -> str:
        """The namespace that was saved."""
        return str(self.document["namespace"])

    @property
    def base(self) -> dict[str, str] | None:
        """The "name" and "id" of an increment's base."""
        return None if self.document["base"] is None else dict(self.document["base"])

    @property
    def partitions(self) -> int:
        """Partitions of the store that was saved."""
        return int(self.document["store"]["partitions"])

    @property
    def store(self) -> dict[str, int]:
        """The shape of the store: "partitions" and "hash_seed"."""
        return {"partitions": self.partitions, "hash_seed": int(self.document["store"]["hash_seed"])}

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """Tables by name: "spec", "limits", "applies", "rows", "removed", "complete", and more."""
        return {table["name"]: table for table in self.document["tables"]}

    @property
    def files(self) -> list[dict[str, Any]]:
        """The files of rows: "name", "bytes", "partitions", "tensors", and more."""
        return list(self.document["files"])

    @property
    def dense(self) -> dict[str, Any] | None:
        """The file of dense weights: "name", "bytes", "xxh3", and "tables" and "apart" (model/order.py)."""
        return None if self.document["dense"] is None else dict(self.document["dense"])

    @property
    def bytes(self) -> int:
        """Bytes of all its files except the manifest."""
        dense = self.document["dense"]
        return int(sum(one["bytes"] for one in self.files) + (0 if dense is None else dense["bytes"]))

    @property
    def rows(self) -> int:
        """Rows in its own files, all tables together."""
        return sum(table["rows"] for table in self.document["tables"])


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the file's name to an OSError that lacks it."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise


def open_part(path: Path) -> BinaryIO:
    """Opens a file that a manifest names.

    Raises:
      FileNotFoundError: It does not exist.
      ValueError: It is a directory, a FIFO, or the like.
      OSError: It cannot be opened.
    """
    try:
        return files.open_file(path)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is missing, but the manifest of the checkpoint names it; copy all of the checkpoint "
            "again, or restore another one"
        ) from None
    except ValueError as error:
        raise ValueError(f"{error}{AGAIN}") from None


def verify(path: Path, entry: dict[str, Any], advance: Callable[[int], None] = lambda _: None) -> None:
    """Checks size and checksum of the file of dense weights.

    Args:
      path: The file.
      entry: Its entry in the manifest.
      advance: Called with the number of bytes just read.

    Raises:
      FileNotFoundError: It does not exist.
      ValueError: It is damaged.
    """
    with open_part(path) as file:
        found = os.fstat(file.fileno()).st_size
        if found != entry["bytes"]:
            raise ValueError(
                f"{path} is damaged: it has {found} bytes, and the manifest says {entry['bytes']}{AGAIN}"
            )
        running = xxhash.xxh3_64()
        while chunk := file.read(_CHUNK):
            running.update(chunk)
            advance(len(chunk))
    if running.hexdigest() != entry["xxh3"]:
        raise ValueError(
            f"{path} is damaged: its checksum is {running.hexdigest()}, and the manifest says "
            f"{entry['xxh3']}{AGAIN}"
        )


def checksum(document: dict[str, Any]) -> str:
    """Returns the checksum of a manifest's canonical JSON."""
    rest = {name: value for name, value in document.items() if name != "xxh3"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return xxhash.xxh3_64_hexdigest(text.encode())


def write(directory: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Writes manifest.json with its checksum, and waits until it is on disk. Returns its content.

    Raises:
      ValueError: It would be larger than `read_manifest` accepts.
      OSError: It cannot be written.
    """
    complete = {**document, "xxh3": checksum(document)}
    path = directory / FILE
    content = json.dumps(complete, indent=1, allow_nan=False).encode() + b"\n"
    if len(content) > MOST_BYTES:
        raise ValueError(
            f"the manifest of {len(document['tables'])} tables would have {size(len(content))}, and at most "
            f"{size(MOST_BYTES)} are read; save fewer tables in one namespace"
        )
    with naming(path), path.open("xb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    return complete


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Reads the manifest of a checkpoint, and no other file.

    Args:
      path: Directory of the checkpoint.

    Raises:
      FileNotFoundError, NotADirectoryError: `path` does not exist, or is not a checkpoint.
      ValueError: The manifest is damaged, or was written by a newer het_tf.
    """
    directory = files.local_path("path", path)
    file = directory / FILE
    if not directory.is_dir():
        if directory.exists():
            raise NotADirectoryError(f"{directory} is a file; give the directory of a checkpoint")
        raise FileNotFoundError(f"there is no checkpoint {directory}")
    try:
        content = files.read_bytes(file, MOST_BYTES)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{directory} has no {FILE}: it is not a checkpoint, or an incomplete one"
        ) from None
    except ValueError as error:
        raise ValueError(f"{error}{AGAIN}") from None
    try:
        document = files.parse_json(content)
    except ValueError as error:
        raise ValueError(f"{file} is damaged: it is not JSON ({error}){AGAIN}") from None
    _check(document, file)
    return Manifest(directory, document)


def _check(document: Any, file: Path) -> None:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f'{file} is not a manifest of het_tf: it has no "format": "{FORMAT}"')
    version = document.get("version")
    if version != VERSION:
        raise ValueError(
            f"{file} has version {version!r}, and this het_tf reads version {VERSION}; read it with the "
            "het_tf that wrote it"
        )
    found, said = checksum(document), document.get("xxh3")
    if found != said:
        raise ValueError(f"{file} is damaged: its checksum is {found}, and it says {said!r}{AGAIN}")
    problem = _problem(document)
    if problem:
        raise ValueError(f"{file} is not a valid manifest: {problem}")


def _whole(value: Any) -> bool:
    return is_whole(value, 0, (1 << 63) - 1)


def _text(value: Any) -> bool:
    return isinstance(value, str) and files.is_utf8(value)


def _file_name(value: Any) -> bool:
    """Whether it names a file inside the checkpoint: a path must not lead out of it."""
    return _text(value) and value not in ("", ".", "..") and "/" not in value and "\0" not in value


def _list_of(check: Any) -> Any:
    return lambda value: isinstance(value, list) and all(check(one) for one in value)


def _or_null(check: Any) -> Any:
    return lambda value: value is None or check(value)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _object_with(**fields: Any) -> Any:
    return lambda value: (
        isinstance(value, dict) and all(check(value.get(name)) for name, check in fields.items())
    )


_FIELDS: dict[str, dict[str, Any]] = {
    "manifest": {
        "id": _text,
        "created": lambda value: isinstance(value, (int, float)) and 0 <= value < 1 << 53,
        "step": _or_null(_whole),
        "namespace": _text,
        "base": _or_null(_object_with(name=_file_name, id=_text)),
        "store": _object_with(
            partitions=lambda value: is_whole(value, 1, 65536),
            hash_seed=lambda value: _text(value) and value.isdecimal() and int(value) < 1 << 64,
        ),
        "tables": _list_of(_object),
        "files": _list_of(_object),
        "dense": _or_null(_object),
    },
    "table": {
        "name": _text,
        "spec": _object_with(dim=_whole),
        "slots": _list_of(lambda one: isinstance(one, list) and len(one) == 2 and _whole(one[1])),
        "applies": _whole,
        "rows": _whole,
        "removed": _whole,
        "complete": lambda value: isinstance(value, bool),
        "clock_floor": _whole,
        "positions": _list_of(_text),
    },
    "file": {
        "name": _file_name,
        "bytes": _whole,
        "partitions": _list_of(_whole),
        "header_xxh3": _text,
        "tensors": _object,
    },
    "dense": {
        "name": _file_name,
        "bytes": _whole,
        "xxh3": _text,
        "tables": _list_of(_object_with(table=_text, name=_or_null(_text))),
        "apart": _list_of(_text),
    },
}


def _parts(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the document and its parts, each with its kind."""
    yield "manifest", document
    yield from (("table", one) for one in document["tables"])
    yield from (("file", one) for one in document["files"])
    if document["dense"] is not None:
        yield "dense", document["dense"]


def _problem(document: dict[str, Any]) -> str:
    """Returns the first field that is missing or has the wrong type; "" if all are right."""
    for kind, part in _parts(document):
        for name, check in _FIELDS[kind].items():
            if name not in part:
                return f"a {kind} has no {name!r}" if kind != "manifest" else f"{name!r} is missing"
            if not check(part[name]):
                text = json.dumps(part[name])
                return f"{name!r} of a {kind} is {text if len(text) < 80 else text[:80] + '...'}"
    count = document["store"]["partitions"]
    listed = sorted(one for file in document["files"] for one in file["partitions"])
    if listed != list(range(count)) and (listed or document["tables"]):
        return f"its store has {count} partitions, and its files have {str(listed)[:80]}"
    return ""
