"""The rows of a table as named arrays, so that they can go into any file of arrays.

`taken` and `put_back` go by way of a directory. `arrays` splits the output of `moment.take`: the manifest,
and the header and columns of each row file, in slices of some megabytes. `directory` restores the same bytes,
so that the manifest's checksums cover the way through the other format. Names, for a table "item":

    layout                              JSON: version, bytes of a slice
    manifest                            manifest.json
    rows/00000/header                   bytes before the first column of the file
    rows/00000/item.keys/00000          int64 [n]: the first slice of the column; clocks likewise
    rows/00000/item.values/00000        float32 [n, dim]; slots likewise; last_used uint32, counts uint16
"""

import contextlib
import json
import os
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.ext.checkpoint.python import manifest as manifests
from het_tf.ext.checkpoint.python.saving import moment
from het_tf.ext.checkpoint.python.tensors import Tensor, TensorFile
from het_tf.python import files

_VERSION = 1
_SLICE_BYTES = 8 << 20
_MAX_SLICES = 1024  # of all columns, about: some formats make a file of each

Array = npt.NDArray[Any]
Get = Callable[[str, Any], Any]  # of a name, and the dtype of its array


@contextlib.contextmanager
def taken(namespace: str, table: str, near: str | None = None) -> Iterator[Iterator[tuple[str, Array]]]:
    """Yields the names and arrays of a table at one moment.

    Args:
      namespace: Namespace of the table.
      table: Its name.
      near: A directory whose disk has room for its rows; None: the system's of temporary files.
    """
    with _workspace(near) as place:
        yield arrays(moment.take(Path(place, "rows"), namespace, table))


def put_back(get: Get, namespace: str, table: str, near: str | None = None) -> None:
    """Restores the table whose arrays `get` returns. Other arguments as in `taken`.

    Raises:
      ValueError: As `directory` and `moment.put_back`.
    """
    with _workspace(near) as place:
        moment.put_back(directory(get, Path(place, "rows")), namespace, table)


def _workspace(near: str | None) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=".het_tf-", dir=near, ignore_cleanup_errors=True)


def arrays(directory: Path) -> Iterator[tuple[str, Array]]:
    """Yields names and arrays of a directory of rows, one array in memory at a time.

    Args:
      directory: A checkpoint of tables, with its manifest.
    """
    opened = [TensorFile(directory / one["name"]) for one in manifests.read_manifest(directory).files]
    slice_bytes = max(_SLICE_BYTES, sum(file.bytes for file in opened) // _MAX_SLICES)
    yield "layout", _bytes(json.dumps({"version": _VERSION, "slice_bytes": slice_bytes}).encode())
    yield "manifest", _bytes((directory / manifests.FILE).read_bytes())
    for number, file in enumerate(opened):
        with file.path.open("rb") as raw:
            start = raw.read(8)
            yield f"rows/{number:05d}/header", _bytes(start + raw.read(int.from_bytes(start, "little")))
        for tensor in file.tensors.values():
            column, step = file.mapped(tensor.name), _step(tensor, slice_bytes)
            for count, begin in enumerate(range(0, len(column), step)):
                yield _name(number, tensor, count), np.array(column[begin : begin + step])


def directory(get: Get, path: Path) -> Path:
    """The inverse of `arrays`: makes the directory `path` with the files, and returns it.

    Args:
      get: Returns the array of a name; its second argument is the array's dtype.
      path: The new directory.

    Raises:
      ValueError: The layout is newer, or the manifest or a header is damaged. Columns are not checked here:
        the manifest has their checksums.
    """
    slice_bytes = _slice_bytes(bytes(get("layout", np.uint8)))
    path.mkdir()
    (path / manifests.FILE).write_bytes(bytes(get("manifest", np.uint8)))
    for number, entry in enumerate(manifests.read_manifest(path).files):
        with (path / entry["name"]).open("xb") as out:
            out.write(bytes(get(f"rows/{number:05d}/header", np.uint8)))
            out.flush()
            os.truncate(out.fileno(), entry["bytes"])  # the rest follows; now the header can be checked
            for tensor in TensorFile(path / entry["name"]).tensors.values():
                _write(out, number, tensor, slice_bytes, get)
    return path


def _slice_bytes(text: bytes) -> int:
    try:
        layout = files.parse_json(text)
        version, slice_bytes = int(layout["version"]), int(layout["slice_bytes"])
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"the rows of a table are damaged: their layout is {text[:80]!r}") from None
    if version > _VERSION:
        raise ValueError(
            f"the rows of a table are in layout {version}, and this het_tf reads {_VERSION}; read them with "
            "the het_tf that wrote them, or a newer one"
        )
    return slice_bytes


def _write(out: Any, number: int, tensor: Tensor, slice_bytes: int, get: Get) -> None:
    """Writes one column, slice by slice."""
    step = _step(tensor, slice_bytes)
    for count in range(-(-tensor.shape[0] // step)):
        array = get(_name(number, tensor, count), tensor.dtype)
        out.write(np.ascontiguousarray(array, tensor.dtype).data)


def _step(tensor: Tensor, slice_bytes: int) -> int:
    """Rows of a slice of a column."""
    return max(1, slice_bytes // max(tensor.bytes // max(1, tensor.shape[0]), 1))


def _name(number: int, tensor: Tensor, count: int) -> str:
    """Name of a slice. Any character is legal in a table's name; a slash would divide this one."""
    table, _, column = tensor.name.rpartition("/")
    return f"rows/{number:05d}/{urllib.parse.quote(table, safe='')}.{column}/{count:05d}"


def _bytes(text: bytes) -> Array:
    return np.frombuffer(text, np.uint8)
