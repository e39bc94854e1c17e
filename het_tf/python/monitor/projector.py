"""Rows of a table for TensorBoard's embedding projector."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.monitor import log_dir as directory
from het_tf.python.session.native import tf
from het_tf.python.table.table import Table

_CONFIG = "projector_config.pbtxt"


def write_projector(
    table: Table | str,
    log_dir: Any,
    labels: Mapping[Any, Any] | None = None,
    ids: npt.ArrayLike | None = None,
    rows: int = 10_000,
) -> int:
    """Writes rows of a table, with labels, for TensorBoard's projector.

        het_tf.write_projector("item", "logs", labels={1: "Toy Story (1995)", 2: "GoldenEye (1995)"})

    and `tensorboard --logdir logs`, tab *Projector*. Files are LOG_DIR/TABLE_tensors.tsv (a row a line),
    LOG_DIR/TABLE_metadata.tsv (its id, its number of updates, its labels) and LOG_DIR/projector_config.pbtxt,
    which keeps other tables; files of the same table are replaced. With several ranks call it on one, after
    `het_tf.flush(all_ranks=True)` on all.

    Args:
      table: The table, or its name in the current namespace.
      log_dir: TensorBoard's directory; made if it is missing.
      labels: id -> text; or, for several columns, name of the column -> (id -> text). Ids without one get an
        empty label. Tabs and ends of lines become spaces.
      ids: Integers, the rows to write, in this order; untrained rows have their initial values. None: the
        rows with the most updates, for which the whole table is read once.
      rows: Without `ids`: the most rows to write, >= 1. The projector takes about 100,000 of 16 floats.

    Returns:
      The number of rows written.

    Raises:
      LookupError: The table does not exist.
      ValueError: An argument is out of range, the table has no rows yet, or log_dir cannot be written.
    """
    found = Table(table) if isinstance(table, str) else table
    if not isinstance(found, Table):
        raise ValueError(f"table is {table!r}; give a het_tf.Table, or the name of one")
    keys, values, updates = _given(found, ids) if ids is not None else _most_updated(found, rows)
    columns = _columns(labels)
    path = directory.made(log_dir, "projector")
    stem = re.sub(r"[^\w.-]", "_", found.name)
    lines = ["\t".join(format(number, ".9g") for number in row) for row in values]
    _write(path, f"{stem}_tensors.tsv", lines)
    header = ["id", *(["updates"] if updates is not None else []), *columns]
    lines = ["\t".join(header)]
    for place, key in enumerate(keys.tolist()):
        count = [] if updates is None else [str(updates[place])]
        lines.append("\t".join([str(key), *count, *(_text(one.get(key, "")) for one in columns.values())]))
    _write(path, f"{stem}_metadata.tsv", lines)
    _configure(path, found.name, stem)
    return len(keys)


def _given(table: Table, ids: npt.ArrayLike) -> tuple[Any, Any, Any]:
    keys = np.asarray(ids)
    if keys.ndim != 1 or not keys.size or keys.dtype.kind not in "iuOSU":
        raise ValueError(
            f"ids are {keys.dtype} of shape {keys.shape}; give integers or strings [N], at least one"
        )
    return keys, table.lookup(keys), None


def _most_updated(table: Table, rows: int) -> tuple[Any, Any, Any]:
    if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)) or rows < 1:
        raise ValueError(f"rows is {rows!r}; give an integer of 1 or more")
    scan = table.scan()
    if not scan["ids"].size:
        raise ValueError(f"table {table.name!r} has no rows yet; train it first, or give ids=")
    chosen = np.argsort(-scan["counts"].astype(np.int64), kind="stable")[:rows]
    return scan["ids"][chosen], scan["rows"][chosen, : table.dim], scan["counts"][chosen]


def _columns(labels: Mapping[Any, Any] | None) -> dict[str, Mapping[Any, Any]]:
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        raise ValueError(f"labels are {type(labels).__name__}; give a dict: id -> text")
    if labels and all(isinstance(one, Mapping) for one in labels.values()):
        columns = {_text(name): one for name, one in labels.items()}
        taken = {"id", "updates"} & set(columns)
        if taken:
            raise ValueError(f"labels have a column {min(taken)!r}, which exists already; give another name")
        return columns
    return {"label": labels}


def _text(value: Any) -> str:
    return re.sub(r"\s", " ", str(value))


def _write(path: str, name: str, lines: list[str]) -> None:
    with tf.io.gfile.GFile(tf.io.gfile.join(path, name), "w") as file:
        file.write("".join(f"{line}\n" for line in lines))


def _configure(path: str, name: str, stem: str) -> None:
    """Puts the table into the projector's configuration (text format of ProjectorConfig)."""
    where = tf.io.gfile.join(path, _CONFIG)
    before = ""
    if tf.io.gfile.exists(where):
        with tf.io.gfile.GFile(where) as file:
            before = file.read()
    quoted = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    # Blocks of other tables stay; a block ends with a brace in the first column.
    blocks = re.findall(r"^embeddings \{\n.*?^\}\n", before, re.MULTILINE | re.DOTALL)
    others = before
    for block in blocks:
        if f"  tensor_name: {quoted}\n" in block:
            others = others.replace(block, "")
    block = (
        f'embeddings {{\n  tensor_name: {quoted}\n  tensor_path: "{stem}_tensors.tsv"\n'
        f'  metadata_path: "{stem}_metadata.tsv"\n}}\n'
    )
    _write(path, _CONFIG, [*others.splitlines(), *block.splitlines()])
