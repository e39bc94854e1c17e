"""Draws the ids of a Criteo-like stream: any row of any seed by itself, without the rows before it.

A row's random bits are hashes of (seed, row number, field), so rows are independent, any range of them can
be made anywhere, and workers that take disjoint ranges see disjoint parts of one stream.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from het_tf.python.data.criteo_curves import CELL_BITS, Curve, criteo_like_parameters, curve
from het_tf.python.data.hashing import GAMMA, UInt64Array, mix, salt

BLOCK = 1 << 14
"""Rows worked on at once: their columns and a field's table stay in the processor's cache."""

_FRACTION = (1 << CELL_BITS) - 1
_WIDTH = 0xFFFF


@functools.cache
def field_names() -> tuple[str, ...]:
    """Returns the names of the fields, "C1" to "C26"."""
    return tuple(field["name"] for field in criteo_like_parameters()["fields"])


@functools.cache
def links() -> dict[str, tuple[str, float]]:
    """Returns `{child: (parent, share of the rows in which the parent determines the child)}`."""
    result = {}
    for chain in criteo_like_parameters()["chains"]:
        names = [entry.split(" ")[0] for entry in chain]
        for parent, child, entry in zip(names[:-1], names[1:], chain[1:], strict=True):
            result[child] = (parent, 0.8 if "80 %" in entry else 1.0)
    return result


def row_bits(rows: npt.NDArray[np.int64], seed: int, purpose: str) -> UInt64Array:
    """Returns 64 random bits a row, uint64 `[N]`, for the row numbers `rows` (int64 `[N]`)."""
    return mix(rows.view(np.uint64) * GAMMA + salt(purpose, seed))


def draw_ids(rows: int, seed: int = 0, start: int = 0) -> dict[str, npt.NDArray[np.int64]]:
    """Returns the ids of rows `[start, start + rows)` of the stream `seed`.

    Returns:
      int64 `[rows]` by field name; ids are in `[0, cardinality)`.
    """
    result = {name: np.empty(rows, np.int64) for name in field_names()}
    for begin in range(0, rows, BLOCK):
        end = min(begin + BLOCK, rows)
        numbers = np.arange(start + begin, start + end, dtype=np.int64)
        _draw_block(numbers, seed, {name: ids[begin:end] for name, ids in result.items()})
    return result


def _draw_block(numbers: npt.NDArray[np.int64], seed: int, out: dict[str, npt.NDArray[np.int64]]) -> None:
    """Fills `out` (int64 `[N]` by field) for the rows `numbers`."""
    parents = {parent for parent, _ in links().values()}
    scratch = np.empty_like(numbers)
    places: dict[str, npt.NDArray[np.int64]] = {}
    for name in _order():
        table = curve(name)
        parent, share = links().get(name, ("", 0.0))
        if share == 1.0:
            place = places[parent]
        else:
            bits = row_bits(numbers, seed, name)
            place = np.right_shift(bits, np.uint64(32)).view(np.int64)
            if share:
                follows = (bits & np.uint64(0xFFFF)) < np.uint64(round(share * 0x10000))
                place = np.where(follows, places[parent], place)
        places[name] = _look_up(table, place, out[name], scratch, name in parents)


def _look_up(
    table: Curve,
    place: npt.NDArray[np.int64],
    out: npt.NDArray[np.int64],
    scratch: npt.NDArray[np.int64],
    is_parent: bool,
) -> npt.NDArray[np.int64]:
    """Writes the ids at `place` (units of 2^-32 of the CDF) to `out`; returns a parent's own places."""
    cell = place >> CELL_BITS
    np.take(table.packed, cell, out=out, mode="clip")
    offset = place & _FRACTION
    np.bitwise_and(out, _WIDTH, out=scratch)
    offset *= scratch
    offset >>= CELL_BITS
    own = place
    if is_parent:
        own = np.take(table.place, cell, mode="clip")
        np.bitwise_and(own, 0xFFFF, out=scratch)
        scratch *= offset
        own >>= 16
        own += scratch
    out >>= 16
    out += offset
    _scatter(table, out, scratch)
    return own


def _scatter(table: Curve, ranks: npt.NDArray[np.int64], scratch: npt.NDArray[np.int64]) -> None:
    """Turns ranks into ids, in place: `(rank * factor + shift) % cardinality`, with a cheap division."""
    ranks *= table.factor
    ranks += table.shift
    np.floor_divide(ranks.view(np.uint64), np.uint64(table.cardinality), out=scratch.view(np.uint64))
    scratch *= table.cardinality
    ranks -= scratch


@functools.cache
def _order() -> tuple[str, ...]:
    """Returns the fields, every parent before its children."""
    chained = [entry.split(" ")[0] for chain in criteo_like_parameters()["chains"] for entry in chain]
    return tuple(name for name in field_names() if name not in chained) + tuple(chained)
