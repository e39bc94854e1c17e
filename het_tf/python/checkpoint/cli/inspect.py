"""`het-ckpt inspect`: shows the contents of a checkpoint."""

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from het_tf.python.checkpoint.cli.view import TableView, View
from het_tf.python.checkpoint.rowfile import TensorFile
from het_tf.python.show import date, number, size

_WIDTH = 80
_MANY = 8  # lines of files and of dense tensors, without --all


def take(view: View, table: str | None, advance: Callable[[int], None]) -> dict[str, Any]:
    """Returns everything about a checkpoint, in the form of --json.

    Args:
        view: The checkpoint.
        table: The only table to look at; None: all.
        advance: Called with the number of rows just read.

    Raises:
        ValueError: The table does not exist, or a file is damaged.
    """
    document = view.manifest.document
    return {
        "path": str(view.manifest.path),
        **{key: document[key] for key in ("id", "created", "step", "namespace", "base", "store", "version")},
        "bytes": view.manifest.bytes,
        "chain": [
            {
                "path": str(one.path),
                "id": one.id,
                "step": one.step,
                "bytes": one.bytes,
                "rows": one.rows,
                "removed": sum(of["removed"] for of in one.tables.values()),
            }
            for one in view.chain
        ],
        "tables": [_table(of, advance) for of in view.select(table)],
        "files": [
            {
                "name": file.path.name,
                "bytes": file.bytes,
                "partitions": sorted(group.partitions),
                "rows": {name: of.rows for name, of in file.tables.items()},
            }
            for group, file in view.levels[-1].files
        ],
        "dense": _dense(view),
    }


def _dense(view: View) -> dict[str, Any] | None:
    entry = view.manifest.dense
    if entry is None:
        return None
    file = TensorFile(view.manifest.path / entry["name"])
    return {
        "name": entry["name"],
        "bytes": file.bytes,
        "tensors": {one.name: {"dtype": one.code, "shape": list(one.shape)} for one in file.tensors.values()},
    }


def _table(table: TableView, advance: Callable[[int], None]) -> dict[str, Any]:
    rows, updates = 0, 0
    ranges: dict[str, list[int]] = {}
    for block in table.blocks(("clocks", "last_used", "counts")):
        rows += len(block["keys"])
        updates += int(block["counts"].sum(dtype=np.int64))
        for column, name in (("keys", "ids"), ("clocks",) * 2, ("last_used",) * 2, ("counts",) * 2):
            low, high = int(block[column].min()), int(block[column].max())
            known = ranges.get(name, [low, high])
            ranges[name] = [min(known[0], low), max(known[1], high)]
        advance(len(block["keys"]))
    document = table.document
    return {
        "name": table.name,
        "spec": document["spec"],
        "limits": document.get("limits", {}),
        "slots": document["slots"],
        "applies": document["applies"],
        "rows": rows,
        "bytes": rows * table.row_bytes,
        "row_bytes": table.row_bytes,
        "complete": document["complete"],
        "own_rows": document["rows"],
        "own_removed": document["removed"],
        "clock_floor": document["clock_floor"],
        **{name: ranges.get(name) for name in ("ids", "clocks", "last_used", "counts")},
        "mean_count": updates / rows if rows else None,
    }


def moment(seconds: float) -> str:
    """A date in UTC; "never" for 0."""
    return date(seconds) if seconds else "never"


def render(found: dict[str, Any], everything: bool, one_table: bool) -> Group:
    """Formats it for people.

    Args:
        found: The result of `take`.
        everything: Whether to list all files and dense tensors.
        one_table: Whether to show all details of a single chosen table.
    """
    parts: list[Any] = [_head(found), Text(), *map(Text, _tables(found["tables"]))]
    if one_table:
        for line in _details(found["tables"][0]):
            parts += map(Text, textwrap.wrap(line, _WIDTH, subsequent_indent="    ") or [""])
    if len(found["chain"]) > 1:
        parts += [Text(), _chain(found["chain"])]
    parts += [Text(), _files(found["files"], everything)]
    if found["dense"]:
        parts += [Text(), _dense_tensors(found["dense"], everything)]
    return Group(*parts)


def _head(found: dict[str, Any]) -> Text:
    kind = f"increment on {found['base']['name']}" if found["base"] else "full"
    step = "no step" if found["step"] is None else f"step {found['step']}"
    space = f", namespace {found['namespace']!r}" if found["namespace"] else ""
    return Text(
        f"{found['path']}\n{kind}, {step}, of {moment(found['created'])}{space}\n"
        f"{size(found['bytes'])} in {len(found['files'])} files of {found['store']['partitions']} partitions"
        f"\nid {found['id']}"
    )


def _grid(titles: str, right: str) -> Table:
    """A table without lines; the columns named in `right` are numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles.split("|"):
        table.add_column(title, justify="right" if title in right.split("|") else "left", no_wrap=True)
    return table


def _between(pair: list[int] | None, show: Callable[[float], str] = number) -> str:
    if pair is None:
        return "-"
    low, high = show(pair[0]), show(pair[1])
    return low if low == high else f"{low} to {high}"


def _tables(tables: list[dict[str, Any]]) -> Iterator[str]:
    for one in tables:
        own = "" if one["complete"] else f" ({number(one['own_rows'])} its own)"
        if one["own_removed"]:
            own = own[:-1] + f", {number(one['own_removed'])} removed)"
        optimizer = one["spec"].get("optimizer", {}).get("name", "?")
        yield f"{one['name']}: dim {one['spec']['dim']}, {optimizer}"
        yield f"    {number(one['rows'])} rows{own}, {size(one['bytes'])}"
        yield f"    clocks {_between(one['clocks'])}, updates {_between(one['counts'])}"
        yield f"    last used {_between(one['last_used'], moment)}"


def _details(table: dict[str, Any]) -> list[str]:
    lines = [f"{key}: {value}" for key, value in table["spec"].items() if key not in ("name", "dim")]
    slots = ", ".join(f"{name} [{floats}]" for name, floats in table["slots"]) or "none"
    mean = "" if table["mean_count"] is None else f"; updates of a row: {table['mean_count']:.3g} on average"
    ids = "" if table["ids"] is None else f"; ids from {table['ids'][0]} to {table['ids'][1]}"
    return [
        "",
        *lines,
        f"slots: {slots}",
        f"limits: {table['limits'] or 'none'}",
        f"applies: {table['applies']}; clock floor: {table['clock_floor']}{mean}{ids}",
        f"bytes of a row: {table['row_bytes']}",
    ]


def _chain(chain: list[dict[str, Any]]) -> Table:
    out = _grid("chain|step|rows|removed|bytes", "step|rows|removed|bytes")
    for one in chain:
        step = "-" if one["step"] is None else str(one["step"])
        name = Text(Path(one["path"]).name)  # all are in one directory
        out.add_row(name, step, number(one["rows"]), number(one["removed"]), size(one["bytes"]))
    return out


def _files(files: list[dict[str, Any]], everything: bool) -> Table:
    out = _grid("file|partitions|rows|bytes", "rows|bytes")
    for one in files if everything else files[:_MANY]:
        out.add_row(
            one["name"], _runs(one["partitions"]), number(sum(one["rows"].values())), size(one["bytes"])
        )
    if len(files) > _MANY and not everything:
        out.add_row(f"and {len(files) - _MANY} more (--all)")
    return out


def _runs(numbers: list[int]) -> str:
    """Formats [0, 1, 2, 5] as "0-2, 5"."""
    runs: list[list[int]] = []
    for one in numbers:
        if runs and one == runs[-1][1] + 1:
            runs[-1][1] = one
        else:
            runs.append([one, one])
    text = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs[:4])
    return text + (", ..." if len(runs) > 4 else "")


def _dense_tensors(dense: dict[str, Any], everything: bool) -> Table:
    tensors = list(dense["tensors"].items())
    out = _grid(f"{dense['name']}: {len(tensors)} tensors, {size(dense['bytes'])}|type|shape", "")
    for name, one in tensors if everything else tensors[:_MANY]:
        out.add_row(Text(name), one["dtype"], str(one["shape"]))
    if len(tensors) > _MANY and not everything:
        out.add_row(f"and {len(tensors) - _MANY} more (--all)")
    return out
