"""`het-ckpt to-parquet`: writes rows for other programs."""

import contextlib
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from het_tf.python.checkpoint import manifest as manifests
from het_tf.python.checkpoint.cli.view import TableView
from het_tf.python.checkpoint.rowfile import Array

_GROUP_ROWS, _GROUP_BYTES = 1 << 17, 64 << 20  # of a row group, at most

Advance = Callable[[int], None]


@contextlib.contextmanager
def appearing(path: Path, force: bool) -> Iterator[Path]:
    """Yields a temporary file beside `path` that replaces it if the block succeeds.

    Raises:
        FileExistsError: `path` exists, and `force` is false or it is not a plain file.
        FileNotFoundError: Its directory is missing.
    """
    if path.is_dir():
        raise FileExistsError(f"{path} is a directory; give the name of a file")
    if path.exists() and not path.is_file():
        raise FileExistsError(f"{path} is not a plain file and would be replaced; give another name")
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already; --force overwrites it")
    if not path.parent.exists():
        raise FileNotFoundError(f"the directory {path.parent} for {path.name} does not exist; make it")
    temporary = path.with_name(f".tmp-{path.name}-{secrets.token_hex(4)}")
    try:
        with manifests.naming(path):
            yield temporary
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def pyarrow() -> Any:
    """Returns the module pyarrow with pyarrow.parquet loaded.

    Raises:
        ValueError: It is missing.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ValueError(
            f"to-parquet needs pyarrow ({error}); run: {sys.executable} -m pip install pyarrow, or install"
            " het_tf[parquet]"
        ) from None
    return pyarrow


def parquet_path(path: Path, tables: list[TableView], table: TableView) -> Path:
    """Returns a table's file: `path` itself if that is *.parquet, else a file in the directory `path`.

    Raises:
        ValueError: `path` is one file, for several tables.
    """
    if path.suffix != ".parquet":
        return path / (quote(table.name, safe=" ") + ".parquet")
    if len(tables) > 1:
        names = ", ".join(repr(one.name) for one in tables)
        raise ValueError(
            f"one file cannot hold the tables {names}: choose one by --table, or give a directory"
        )
    return path


def to_parquet(path: Path, table: TableView, slots: bool, force: bool, advance: Advance) -> int:
    """Writes a table as a Parquet file, a row group at a time.

    Columns: id int64, clock int64, last_used timestamp (UTC), count uint16, value and slots as lists of fixed
    length. The file's metadata has the spec under "het_tf".

    Args:
        path: The file.
        table: The table to write.
        slots: Whether to write slots, too.
        force: Whether an existing file may be overwritten.
        advance: Called with the number of rows just written.

    Returns:
        The number of rows.

    Raises:
        ValueError: pyarrow is missing.
    """
    pa = pyarrow()
    types = {
        "keys": ("id", pa.int64()),
        "clocks": ("clock", pa.int64()),
        "last_used": ("last_used", pa.timestamp("ms", tz="UTC")),
        "counts": ("count", pa.uint16()),
        "values": ("value", pa.list_(pa.float32(), table.dim)),
        "slots": ("slots", pa.list_(pa.float32(), table.slot_floats)),
    }
    columns = [name for name in types if name != "slots" or (slots and table.slot_floats)]
    schema = pa.schema(
        [types[column] for column in columns], {"het_tf": json.dumps({"spec": table.document["spec"]})}
    )

    def convert(column: str, array: Array) -> Any:
        kind = types[column][1]
        if array.ndim == 2:
            return pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), type=kind)
        if column == "last_used":
            return pa.array(array.astype(np.int64) * 1000).cast(kind)
        return pa.array(array, kind)

    rows = 0
    with (
        appearing(path, force) as temporary,
        pa.OSFile(str(temporary), "wb") as out,
        # A dictionary of values that hardly repeat only costs time and memory.
        pa.parquet.ParquetWriter(out, schema, use_dictionary=False) as writer,
    ):
        group = max(1, min(_GROUP_ROWS, _GROUP_BYTES // table.row_bytes))
        for block in _regrouped(table.blocks(columns[1:]), group):
            arrays = [convert(column, block[column]) for column in columns]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema), row_group_size=group)
            rows += len(block["keys"])
            advance(len(block["keys"]))
    return rows


def _regrouped(blocks: Iterator[dict[str, Array]], size: int) -> Iterator[dict[str, Array]]:
    """Yields the same rows, `size` per block except the last: small row groups are slow to read."""
    waiting: list[dict[str, Array]] = []
    count = 0
    for block in blocks:
        waiting.append(block)
        count += len(block["keys"])
        while count >= size:
            joined = {name: np.concatenate([one[name] for one in waiting]) for name in block}
            yield {name: column[:size] for name, column in joined.items()}
            waiting = [{name: column[size:] for name, column in joined.items()}]
            count -= size
    if count:
        yield {name: np.concatenate([one[name] for one in waiting]) for name in waiting[0]}
