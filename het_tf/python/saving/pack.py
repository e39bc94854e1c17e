"""A directory of rows, as arrays under names, and back: how rows get into a file that holds arrays.

`arrays` takes apart what `checkpoint.rows.write_tables` has written: the manifest, and of each row file the
header and the columns, in slices of some megabytes. `directory` puts the same bytes together again, so that
the manifest's checksums hold for what went through the other format. Names, for a table "item":

    layout                              JSON: version, rows of a slice
    manifest                            manifest.json
    rows/00000/header                   bytes before the first column of the file
    rows/00000/item.keys/00000          int64 [n]: the first slice of the column; clocks likewise
    rows/00000/item.values/00000        float32 [n, dim]; slots likewise; last_used uint32, counts uint16
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.saving import rowfile

MANIFEST = "manifest.json"
_VERSION = 1
_SLICE_BYTES = 32 << 20
_MAX_SLICES = 512  # of all columns: formats with a file for each do not get more than that, about

Array = npt.NDArray[Any]


def arrays(directory: Path) -> Iterator[tuple[str, Array]]:
    """Names and arrays of a directory of rows; one array is in memory at a time.

    Args:
      directory: A checkpoint of tables, with its manifest.
    """
    text = (directory / MANIFEST).read_bytes()
    files = [one["name"] for one in json.loads(text)["files"]]
    total = sum((directory / name).stat().st_size for name in files)
    slice_bytes = max(_SLICE_BYTES, total // _MAX_SLICES)
    yield "layout", _bytes(json.dumps({"version": _VERSION, "slice_bytes": slice_bytes}).encode())
    yield "manifest", _bytes(text)
    for number, name in enumerate(files):
        header = rowfile.read_header(directory / name)
        yield f"rows/{number:05d}/header", _bytes(header)
        for tensor in rowfile.parse(header):
            column = rowfile.view(directory / name, tensor)
            for key, begin, end in _slices(number, tensor, slice_bytes):
                yield key, np.array(column[begin:end])


def directory(get: Callable[[str, Any], Array], path: Path) -> None:
    """The inverse: writes the files into the directory `path`, which is there and empty.

    Args:
      get: Gives the array of a name; its second argument is the dtype that the array has.
      path: Where to.

    Raises:
      ValueError: The layout is a newer one, or an array has not the shape that it should have.
    """
    layout = json.loads(get("layout", np.uint8).tobytes())
    if layout["version"] > _VERSION:
        raise ValueError(
            f"the rows of a table are in layout {layout['version']}, and this het_tf reads {_VERSION}; read "
            "them with the het_tf that wrote them, or a newer one"
        )
    text = get("manifest", np.uint8).tobytes()
    for number, file in enumerate(json.loads(text)["files"]):
        with (path / Path(file["name"]).name).open("xb") as out:
            header = get(f"rows/{number:05d}/header", np.uint8).tobytes()
            out.write(header)
            for tensor in rowfile.parse(header):
                for key, begin, end in _slices(number, tensor, layout["slice_bytes"]):
                    part = np.ascontiguousarray(get(key, tensor.dtype), tensor.dtype)
                    if part.shape != (end - begin, *tensor.shape[1:]):
                        raise ValueError(
                            f"{key} has shape {part.shape}; the header says {(end - begin, *tensor.shape[1:])}"
                        )
                    out.write(part.data)
    (path / MANIFEST).write_bytes(text)


def _slices(number: int, tensor: rowfile.Tensor, slice_bytes: int) -> Iterator[tuple[str, int, int]]:
    """Name, first and last row + 1 of each slice of a column; none of an empty one."""
    rows = tensor.shape[0]
    step = max(1, slice_bytes // max(1, tensor.row_bytes))
    for count, begin in enumerate(range(0, rows, step)):
        yield f"rows/{number:05d}/{rowfile.as_key(tensor.name)}/{count:05d}", begin, min(begin + step, rows)


def _bytes(text: bytes) -> Array:
    return np.frombuffer(text, np.uint8)
