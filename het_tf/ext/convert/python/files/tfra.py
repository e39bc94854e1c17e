"""Tables saved by TensorFlow Recommenders Addons (`tfra.dynamic_embedding`, 0.8).

`Variable.save_to_file_system` and `FileSystemSaver` write two headerless little-endian files for each shard
of a table: int64 [N] and float32 [N, dim].

    item_mht_1of2_rank0_size1-keys      shard 1 of 2 of the table "item", rank 0 of 1 process
    item_mht_1of2_rank0_size1-values
    item_look_m_mht_1of2_...            the slot m of its optimizer, a separate table

A `tf.train.Checkpoint` has the same data as tensors:

    item/tables_of_item/0/.ATTRIBUTES/table-keys        and table-values: shard 0
"""

import re
from pathlib import Path

import numpy as np

from het_tf.ext.convert.python.files.arrays import Arrays
from het_tf.ext.convert.python.files.rows import Array, Rows, checked_parts
from het_tf.python.files import open_file

_FILE = re.compile(r"(?P<table>.+?)(?:_mht_\d+of\d+_rank\d+_size\d+)?-keys")
_TENSOR = re.compile(r"(?P<table>.+)/\d+/\.ATTRIBUTES/table-keys")


def tables_of_directory(path: Path) -> dict[str, list[Path]]:
    """Returns the tables in a directory: name -> the files of keys."""
    found: dict[str, list[Path]] = {}
    for file in sorted(path.glob("*-keys")):
        if match := _FILE.fullmatch(file.name):
            found.setdefault(match["table"], []).append(file)
    return found


def tables_of_checkpoint(arrays: Arrays) -> dict[str, list[str]]:
    """Returns the tables in a checkpoint: name -> the tensors of keys."""
    found: dict[str, list[str]] = {}
    for name in sorted(arrays.shapes):
        if match := _TENSOR.fullmatch(name):
            found.setdefault(match["table"], []).append(name)
    return found


def read_files(table: str, files: list[Path]) -> Rows:
    """Returns the rows of a table from its files, mapped into memory.

    Raises:
      FileNotFoundError: A file of values is missing.
      ValueError: The sizes of two files do not match.
    """
    keys, values = [], []
    for file in files:
        other = file.with_name(file.name[: -len("keys")] + "values")
        sizes = []
        for path in (file, other):
            with open_file(path) as opened:
                sizes.append(opened.seek(0, 2))
        number, rest = divmod(sizes[0], 8)
        width, more = divmod(sizes[1], 4 * number) if number else (0, sizes[1])
        if rest or more or (number and not width):
            raise ValueError(
                f"{other} has {sizes[1]} bytes and {file.name} {sizes[0]}: no whole rows of float32 for keys "
                "of int64; copy both again"
            )
        if number:
            keys.append(np.fromfile(file, "<i8"))
            values.append(np.memmap(other, "<f4", "r", shape=(number, width)))
    where = f"{files[0].parent}: table {table!r}"
    return Rows(where, _joined(keys), checked_parts(where, list(values)))


def read_tensors(table: str, names: list[str], arrays: Arrays) -> Rows:
    """Returns the rows of a table from a checkpoint. ValueError: a tensor of values is missing."""
    keys, values = [], []
    for name in names:
        other = name[: -len("keys")] + "values"
        if other not in arrays.shapes:
            raise ValueError(f"{arrays.path} has {name!r} but not {other!r}; copy the whole checkpoint")
        if arrays.shapes[name] != (0,):
            keys.append(arrays.read(name))
            values.append(arrays.read(other))
    where = f"{arrays.path}: table {table!r}"
    return Rows(where, _joined(keys), checked_parts(where, values))


def _joined(keys: list[Array]) -> Array:
    return np.concatenate(keys) if keys else np.empty(0, np.int64)
