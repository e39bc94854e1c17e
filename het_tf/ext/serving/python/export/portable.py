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

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from het_tf.ext.serving.python.export import quantise, redirect
from het_tf.ext.serving.python.export.formats import Portable
from het_tf.ext.serving.python.export.index import Index
from het_tf.ext.serving.python.export.initial import Form, InitialRows, rounded
from het_tf.ext.serving.python.export.rows import Source
from het_tf.python.session.native import tf


class _Group:
    """Tables that are read together."""

    def __init__(self, members: list[tuple[Source, Form | None]], row_dtype: str, work: Path) -> None:
        self.sources = [source for source, _ in members]
        self.number = {source.key: number for number, source in enumerate(self.sources)}
        self.dim = self.sources[0].table.dim
        read = [source.read(work) for source in self.sources]
        self.bytes = [len(keys) * quantise.row_bytes(row_dtype, self.dim) for keys, _ in read]
        self.initial: InitialRows | None = None
        forms = [form for _, form in members if form is not None]
        constants = np.zeros(len(members), np.float32)
        if forms and forms[0].kind == "constant":
            constants = np.array([form.a for form in forms], np.float32)
        elif forms:
            self.initial = InitialRows(forms, self.dim)
        self.index = Index([keys for keys, _ in read])
        self.values = quantise.RowArray(row_dtype, self.index.slots + len(read), self.dim)
        for source, first, region in zip(self.sources, self.index.first, self.index.regions, strict=True):
            self.values.put(first + region.slot_of, read.pop(0)[1], source.table.name)
        # After the last slot: the row of each table's unknown ids.
        unknown = np.repeat(constants[:, None], self.dim, axis=1)
        if forms:
            unknown = rounded(tf.constant(unknown), forms[0].stored).numpy()
        self.values.put(self.index.slots + np.arange(len(members)), unknown, self.sources[0].table.name)
        self.index.forget_regions()
        self.values.freeze("rows")

    def read(self, ids: Any, tables: Any) -> Any:
        """Returns float32 `ids.shape + [dim]`, as ops; tables: int32 of the ids' shape, None if only one."""
        with tf.device("CPU:0"):
            return self._read(ids, tables)

    def _read(self, ids: Any, tables: Any) -> Any:
        slots, found = self.index.find(ids, tables)
        if self.initial is None:
            behind = self.index.slots if tables is None else self.index.slots + tf.cast(tables, tf.int64)
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
        alike: dict[tuple[int, str, str], list[tuple[Source, Form | None]]] = {}
        for source in self.sources.values():
            form = Form(source.table) if format.unknown == "initial" else None
            kind, stored = ("zeros", "") if form is None else (form.kind, form.stored)
            alike.setdefault((source.table.dim, kind, stored), []).append((source, form))
        self._groups = [_Group(members, format.row_dtype, directory) for members in alike.values()]
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

    def trackables(self) -> Any:
        """See `redirect.Backend`."""
        return [group.variables for group in self._groups]

    def row_bytes(self) -> dict[tuple[str, str], int]:
        """See `redirect.Backend`."""
        return {key: group.bytes[number] for group in self._groups for key, number in group.number.items()}


def _repeat(numbers: list[int], ids: list[Any]) -> Any:
    """Returns int32: for each id of `redirect.join(ids)` the number of its tensor."""
    if len(ids) == 1:
        return tf.fill(tf.shape(ids[0]), numbers[0])
    ends = tf.cumsum(tf.stack([tf.size(one) for one in ids]))
    return tf.gather(tf.constant(numbers), tf.searchsorted(ends, tf.range(ends[-1]), side="right"))
