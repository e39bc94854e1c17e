"""`het-ckpt diff`: which rows two checkpoints have in common, and how far these differ."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from het_tf.python.checkpoint.cli.view import Group, TableView, View
from het_tf.python.checkpoint.rowfile import Array, RowFile

_GROUP_ROWS = 4 << 20  # rows of a side that are compared at a time, roughly
_BLOCK_BYTES = 2 << 20  # of a side


@dataclass
class Example:
    """One row that differs."""

    id: int
    what: str  # "added", "removed" or "changed"
    difference: float  # largest absolute one of its value; infinite, too, where one side is NaN
    clocks: list[int]  # of both sides; of one, if the other has none


@dataclass
class TableDiff:
    """What has become of one table."""

    table: str
    before: int = 0
    after: int = 0
    added: int = 0
    removed: int = 0
    changed: int = 0
    equal: int = 0
    largest: float = 0.0  # absolute difference of a float of a value
    largest_slot: float = 0.0
    specs: str = ""  # what differs in the specs; "" if nothing
    examples: list[Example] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        """Whether anything does."""
        return bool(self.added or self.removed or self.changed or self.specs)

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def diff(
    one: View,
    other: View,
    table: str | None,
    examples: int,
    begin: Callable[[int], None],
    advance: Callable[[int], None],
) -> list[TableDiff]:
    """Compares the rows of two checkpoints, table by table.

    A row has changed if a bit of its value, its slots or its clock has. If the slots of the tables differ in
    width, they are not compared.

    Args:
        one: The first.
        other: The second; rows that only it has are added.
        table: The only table to be compared; None: all of both.
        examples: How many rows to show, those that differ most first.
        begin: Told how many rows both have together.
        advance: Told how many of them more were looked at.

    Raises:
        ValueError: Neither has the table.
    """
    names = list(dict.fromkeys([*one.tables, *other.tables]))
    if table is not None:
        if table not in names:
            one.select(table)
        names = [table]
    begin(sum(view.tables[name].count() for view in (one, other) for name in names if name in view.tables))
    return [
        diff_tables(name, one.tables.get(name), other.tables.get(name), one.groups, examples, advance)
        for name in names
    ]


def diff_tables(
    name: str,
    a: TableView | None,
    b: TableView | None,
    groups: list[Group],
    examples: int,
    advance: Callable[[int], None],
) -> TableDiff:
    """Compares two tables; None stands for one without rows. See `diff`.

    Args:
        name: What the result says.
        a: The first.
        b: The second.
        groups: The partitions of each file of the first one's checkpoint.
        examples: How many rows to show.
        advance: Told how many rows more were looked at.
    """
    out = TableDiff(name)
    specs = [side.document["spec"] if side else {} for side in (a, b)]
    if a and b:
        out.specs = "; ".join(
            f"{key}: {specs[0].get(key)} -> {specs[1].get(key)}"
            for key in sorted({*specs[0], *specs[1]})
            if specs[0].get(key) != specs[1].get(key)
        )
    found: list[Example] = []
    for group in _groups(groups, max(side.count() for side in (a, b) if side)):
        left, right = _Rows.of(a, group), _Rows.of(b, group)
        advance(len(left.keys) + len(right.keys))
        out.before += len(left.keys)
        out.after += len(right.keys)
        common, left_at, right_at = np.intersect1d(left.keys, right.keys, True, return_indices=True)
        for side, at, what in ((left, left_at, "removed"), (right, right_at, "added")):
            rest = np.setdiff1d(np.arange(len(side.keys)), at, True)
            setattr(out, what, getattr(out, what) + len(rest))
            for row in rest[:examples]:
                clock = int(side.columns(np.array([row]), "clocks")[0])
                found.append(Example(int(side.keys[row]), what, 0.0, [clock]))
        if a and b and a.dim == b.dim:
            slots = a.slot_floats == b.slot_floats > 0
            found += _common(out, left, right, left_at, right_at, slots, a.row_bytes, examples)
            found = _most(found, examples)
        else:
            out.changed += len(common)
    out.examples = _most(found, examples)
    return out


def _most(found: list[Example], examples: int) -> list[Example]:
    """Rows that changed first, those that changed most before others; then the rest."""
    found.sort(
        key=lambda one: (
            one.what != "changed",
            -one.difference if one.difference == one.difference else 0,
            one.id,
        )
    )
    return found[:examples]


def _groups(groups: list[Group], rows: int) -> Iterator[Group]:
    """Partitions by the file, or fewer of them where a file has many rows."""
    for group in groups:
        parts = min(len(group.partitions), -(-rows * len(group.partitions) // group.of // _GROUP_ROWS))
        for part in np.array_split(sorted(group.partitions), max(parts, 1)):
            yield Group(frozenset(map(int, part)), group.of, group.hash_seed)


@dataclass
class _Rows:
    """Where the rows of one side are: keys sorted, and for each the file and the number of the row there."""

    keys: npt.NDArray[np.int64]
    files: list[RowFile]
    file: npt.NDArray[np.int32]
    row: npt.NDArray[np.int64]
    table: str

    @classmethod
    def of(cls, view: TableView | None, group: Group) -> "_Rows":
        files: list[RowFile] = []
        parts: list[tuple[Array, Array, Array]] = []
        for file, rows, block in view.parts((), group) if view else ():
            if not files or files[-1] is not file:
                files.append(file)
            parts.append((block["keys"], np.full(len(rows), len(files) - 1, np.int32), rows))
        empty = (np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
        keys, file_of, row = (np.concatenate(columns) for columns in zip(empty, *parts, strict=True))
        order = np.argsort(keys)
        return cls(keys[order], files, file_of[order], row[order], view.name if view else "")

    def columns(self, at: npt.NDArray[np.int64], column: str) -> Array:
        """A column of the rows with these places in `keys`."""
        out: Array | None = None
        for number in np.unique(self.file[at]):
            of = self.files[number].column(self.table, column)
            if out is None:
                out = np.empty((len(at), *of.shape[1:]), of.dtype)
            here = self.file[at] == number
            out[here] = of[self.row[at[here]]]
        assert out is not None, "at is not empty"
        return out


def _common(
    out: TableDiff,
    left: _Rows,
    right: _Rows,
    left_at: npt.NDArray[np.int64],
    right_at: npt.NDArray[np.int64],
    slots: bool,
    width: int,
    examples: int,
) -> list[Example]:
    """Compares rows that both sides have, in the order of the left file: that reads it from front to back."""
    order = np.lexsort((left.row[left_at], left.file[left_at]))
    found: list[Example] = []
    step = max(1, _BLOCK_BYTES // width)
    for begin in range(0, len(order), step):
        part = order[begin : begin + step]
        at = left_at[part], right_at[part]
        clocks = [side.columns(here, "clocks") for side, here in zip((left, right), at, strict=True)]
        differ = clocks[0] != clocks[1]
        values = _difference(
            *(side.columns(here, "values") for side, here in zip((left, right), at, strict=True))
        )
        differ |= values[0]
        out.largest = _larger(out.largest, values[1])
        if slots:
            of_slots = _difference(
                *(side.columns(here, "slots") for side, here in zip((left, right), at, strict=True))
            )
            differ |= of_slots[0]
            out.largest_slot = _larger(out.largest_slot, of_slots[1])
        rows = np.flatnonzero(differ)
        out.changed += len(rows)
        out.equal += len(part) - len(rows)
        for row in rows[np.argsort(-np.nan_to_num(values[1][rows], nan=np.inf), kind="stable")[:examples]]:
            pair = [int(clock[row]) for clock in clocks]
            apart = float(np.nan_to_num(values[1][row], nan=np.inf))
            found.append(Example(int(left.keys[at[0][row]]), "changed", apart, pair))
    return found


def _difference(a: Array, b: Array) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Of two float32 [N, W]: which rows differ in a bit, and by how much at most."""
    bits = (a.view(np.uint32) != b.view(np.uint32)).any(axis=1)
    largest = np.zeros(len(a))
    if bits.any():
        with np.errstate(invalid="ignore"):
            apart = np.abs(a[bits].astype(np.float64) - b[bits])
        apart[a[bits].view(np.uint32) == b[bits].view(np.uint32)] = 0  # the same Inf or NaN
        largest[bits] = apart.max(axis=1)
    return bits, largest


def _larger(known: float, found: npt.NDArray[np.float64]) -> float:
    return max(known, float(np.nan_to_num(found, nan=np.inf).max(initial=0.0)))


def render(found: list[TableDiff]) -> Lines:
    """As a person reads it."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column("table", no_wrap=True)
    for title in ("a", "b", "added", "removed", "changed", "equal", "largest change", "of slots"):
        grid.add_column(title, justify="right", no_wrap=True)
    lines: list[Text] = []
    for one in found:
        counts = (one.before, one.after, one.added, one.removed, one.changed, one.equal)
        grid.add_row(Text(one.table), *map(str, counts), f"{one.largest:.3g}", f"{one.largest_slot:.3g}")
        if one.specs:
            lines.append(Text(f"{one.table}: the specs differ: {one.specs}"))
        for row in one.examples:
            clocks = " -> ".join(map(str, row.clocks))
            by = f" by up to {row.difference:.3g}" if row.what == "changed" else ""
            lines.append(Text(f"{one.table}: id {row.id} {row.what}{by}, clock {clocks}"))
    return Lines(grid, *([Text()] if lines else []), *lines)
