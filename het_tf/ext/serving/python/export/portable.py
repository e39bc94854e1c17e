"""The portable format: only TensorFlow's own ops and variables.

Tables with equal dim and the same ops for unknown rows form a group: one perfect hash with
a region for each table (index.py), and one array of rows in the order of its slots. So one or two series of
ops usually read all features of a model, for any number of tables:

    ids [n], tables [n] ─► Index.find ─► slots [n] ─► RowArray.gather ─► rows [n, dim]
                                      └► found [n] ─► unknown ids: a row of the table after the last
                                                      slot (zeros, constants), else InitialRows for these few

Rows are variables in the SavedModel's variable files: only the disk limits their size, and the
graph stays small.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from het_tf.ext.checkpoint.python import tensors
from het_tf.ext.checkpoint.python.model import dense
from het_tf.ext.serving.python.export import quantise, redirect
from het_tf.ext.serving.python.export.formats import Portable
from het_tf.ext.serving.python.export.index import Index
from het_tf.ext.serving.python.export.initial import Form, InitialRows
from het_tf.ext.serving.python.export.rows import Source
from het_tf.python.session.native import FloatArray, tf


def arrays_of(
    read: list[Any], names: Sequence[str], row_dtype: str, dim: int, unknown: FloatArray
) -> tuple[Index, quantise.RowArray]:
    """Returns index and rows of a group of tables, as variables.

    Args:
      read: For each table an object with `keys`, int64 [n], and `values`, float32 [n, dim]; each is removed
        from the list when it is stored.
      names: Of the tables, for messages.
      row_dtype: Type of stored rows.
      dim: Floats of a row.
      unknown: float32 [tables, dim]: the rows after the last slot, of each table's unknown ids.
    """
    index = Index([one.keys for one in read])
    values = quantise.RowArray(row_dtype, index.slots + len(read), dim)
    for number, (first, region) in enumerate(zip(index.first, index.regions, strict=True)):
        values.put(first + region.slot_of, read[number].values, names[number])
        read[number] = None
    values.put(index.slots + np.arange(len(names)), unknown, names[0])
    index.forget_regions()
    values.freeze("rows")
    return index, values


class _Group:
    """Tables that are read together."""

    def __init__(self, members: list[tuple[Source, Form | None]], row_dtype: str, work: Path) -> None:
        self.sources = [source for source, _ in members]
        self.number = {source.key: number for number, source in enumerate(self.sources)}
        self.dim = self.sources[0].table.dim
        read = [source.read(work) for source in self.sources]
        self.bytes = [len(one.keys) * quantise.row_bytes(row_dtype, self.dim) for one in read]
        self.initial: InitialRows | None = None
        forms = [form for _, form in members if form is not None]
        self.constants = [0.0] * len(members)
        if forms and forms[0].kind == "constant":
            self.constants = [float(form.a) for form in forms]
        elif forms:
            self.initial = InitialRows(forms, self.dim)
        unknown = np.repeat(np.array(self.constants, np.float32)[:, None], self.dim, axis=1)
        names = [source.table.name for source in self.sources]
        self.index, self.values = arrays_of(read, names, row_dtype, self.dim, unknown)

    def read(self, ids: Any, tables: Any) -> Any:
        """Returns float32 `ids.shape + [dim]`, as ops; tables: int32 of the ids' shape, None if only one."""
        with tf.device("CPU:0"):
            return self._read(ids, tables)

    def _read(self, ids: Any, tables: Any) -> Any:
        slots, found, behind = self.index.find(ids, tables)
        if self.initial is None:
            if tables is not None:
                behind += tf.cast(tables, tf.int64)
            return self.values.gather(tf.where(found, slots, behind))
        rows = self.values.gather(slots)
        initial = self.initial

        def with_initial() -> Any:
            at = tf.where(tf.logical_not(found))
            made = initial.make(tf.gather_nd(ids, at), None if tables is None else tf.gather_nd(tables, at))
            return tf.tensor_scatter_nd_update(rows, at, made)

        return tf.cond(tf.reduce_all(found), lambda: rows, with_initial)

    @property
    def variables(self) -> dict[str, Any]:
        made = {"index": self.index.variables, "rows": self.values.variables}
        return made if self.initial is None else {**made, "initial": self.initial.variables}


class Backend(redirect.Backend):
    """See the module, and `redirect.Backend`."""

    def __init__(self, sources: Sequence[Source], format: Portable, directory: Path) -> None:
        super().__init__(sources, format, directory)
        alike: dict[tuple[int, str], list[tuple[Source, Form | None]]] = {}
        for source in self.sources.values():
            form = Form(source.table) if format.unknown == "initial" else None
            kind = "zeros" if form is None else form.kind
            alike.setdefault((source.table.dim, kind), []).append((source, form))
        self._groups = [_Group(members, format.row_dtype, directory) for members in alike.values()]
        self._weights: list[dense.Entry] = []  # names and variables
        self._group_of = {key: group for group in self._groups for key in group.number}

    def lookup(self, requests: Sequence[redirect.Request]) -> list[Any]:
        """Makes one series of ops for each group of tables."""
        members: dict[int, list[int]] = {}
        for number, request in enumerate(requests):
            group = self._group_of[request.key]
            members.setdefault(self._groups.index(group), []).append(number)
        results: list[Any] = [None] * len(requests)
        for of_group, numbers in members.items():
            group = self._groups[of_group]
            flat, split = redirect.join([requests[number].ids for number in numbers])
            tables = None
            if len(group.sources) > 1:
                tables = _repeat(
                    [group.number[requests[number].key] for number in numbers],
                    [requests[number].ids for number in numbers],
                )
            rows = group.read(flat, tables)
            for number, part in zip(numbers, split(rows, group.dim), strict=True):
                results[number] = part
        return results

    @contextlib.contextmanager
    def around(self, model: Any) -> Iterator[None]:
        """Notes the model's weights, to which a published version can be assigned (refresh.py)."""
        try:
            self._weights = dense.weights_of(model)
        except TypeError:  # of a type that no version has
            self._weights = []
        yield

    def trackables(self) -> Any:
        """See `redirect.Backend`."""
        variables = [one.variable._value for one in self._weights]
        return {"groups": [group.variables for group in self._groups], "dense": variables}

    def record(self) -> dict[str, Any]:
        """What refresh.py needs."""
        groups = [
            {
                "dim": group.dim,
                "tables": [source.table.name for source in group.sources],
                "unknown": group.constants,
            }
            for group in self._groups
        ]
        signature = tensors.signature(one.spec for one in self._weights)
        names = [one.name for one in self._weights]
        return {"groups": groups, "dense": {"names": names, "signature": signature}}

    def row_bytes(self) -> dict[tuple[str, str], int] | None:
        """See `redirect.Backend`."""
        return {key: group.bytes[number] for group in self._groups for key, number in group.number.items()}


def _repeat(numbers: list[int], ids: list[Any]) -> Any:
    """Returns int32: for each id of `redirect.join(ids)` the number of its tensor."""
    if len(ids) == 1:
        return tf.fill(tf.shape(ids[0]), numbers[0])
    ends = tf.cumsum(tf.stack([tf.size(one) for one in ids]))
    return tf.gather(tf.constant(numbers), tf.searchsorted(ends, tf.range(ends[-1]), side="right"))
