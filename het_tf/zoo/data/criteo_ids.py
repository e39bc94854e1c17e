"""Draws the ids of a Criteo-like stream: any row of any seed, without the rows before it.

A row's random bits are hashes of (seed, row number, field), so rows are independent, any range of them can
be made anywhere, and workers with disjoint ranges see disjoint parts of one stream.

Fields depend on each other in two ways. Within a *chain* a field's id determines the next one's (see
criteo_curves.py). Between chains there is a *context*, a place in [0, 1) that every row draws, such as the
page with the advertisement: it is the place of the chain C15, C18, C2 in the CDF, so C2 is its coarsest view.
Other fields use it as their own place in some of the rows, and draw one in the others. Either way the
place is uniform, so a field keeps its distribution.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np
import numpy.typing as npt

from het_tf.python.hashing import GAMMA, UInt64Array, mix, salt
from het_tf.zoo.data.criteo_curves import CELL_BITS, Curve, criteo_like_parameters, curve

BLOCK = 1 << 14
"""Rows per block: their columns and a field's table fit in the processor's cache."""

_FRACTION = (1 << CELL_BITS) - 1
_WIDTH = 0xFFFF


@functools.cache
def field_names() -> tuple[str, ...]:
    """Returns the names of the fields, "C1" to "C26"."""
    return tuple(field["name"] for field in criteo_like_parameters()["fields"])


CONTEXT = "context"

STRONG = 0.86
WEAK = 0.62
TURN = 0.62
"""Fitted to the savings of placement by each field on real rows (tools/criteo_excerpt.py).

The longest chain is turned: its frequent ids come in contexts of middling frequency, not in the most
frequent ones.
"""


@dataclasses.dataclass(frozen=True)
class Link:
    """The source of a field's place in its CDF.

    Attributes:
      source: a field or `CONTEXT`.
      share: share of the rows that use the source's place; the others draw one.
      turn: added to the source's place, modulo 1.
    """

    source: str
    share: float = 1.0
    turn: float = 0.0


@functools.cache
def links() -> dict[str, Link]:
    """Returns the sources of the fields' places; a field without one draws its own."""
    result = {
        "C15": Link(CONTEXT),
        "C3": Link(CONTEXT, STRONG, TURN),
        "C25": Link(CONTEXT, STRONG),
        **{name: Link(CONTEXT, WEAK) for name in ("C7", "C10", "C14", "C23")},
    }
    for chain in criteo_like_parameters()["chains"]:
        names = [entry.split(" ")[0] for entry in chain]
        result |= {child: Link(parent) for parent, child in itertools.pairwise(names)}
    return {**result, "C26": Link("C24", 0.84, 0.04)}


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
    parents = {link.source for link in links().values()}
    scratch = np.empty_like(numbers)
    places = {CONTEXT: _uniform(row_bits(numbers, seed, CONTEXT))}
    for name in _order():
        link = links().get(name)
        if link is not None and link.share == 1.0:
            place = places[link.source]
        else:
            bits = row_bits(numbers, seed, name)
            place = _uniform(bits)
            if link is not None:
                follows = bits.astype(np.uint16) < round(link.share * 0x10000)  # the bits below the place's
                place = np.where(follows, _turned(places[link.source], link.turn), place)
        places[name] = _look_up(curve(name), place, out[name], scratch, name in parents)


def _uniform(bits: UInt64Array) -> npt.NDArray[np.int64]:
    """Returns the upper half of the bits: places in a CDF, in units of 2^-32."""
    return np.right_shift(bits, np.uint64(32)).view(np.int64)


def _turned(place: npt.NDArray[np.int64], turn: float) -> npt.NDArray[np.int64]:
    """Returns `place + turn` modulo 1."""
    return (place + round(turn * 2**32)) & 0xFFFFFFFF if turn else place


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
