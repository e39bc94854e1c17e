"""Rows like Criteo's, made from a seed: ids, numbers, and labels of a known truth; any row alone.

A row's random bits are hashes of (seed, row number, field), so any range of rows can be made anywhere. The
26 fields have Criteo Kaggle's cardinalities, its skew (share of the most frequent id, unique ids in batches),
its *chains*, in which one field determines the next, and a *context*, a place in [0, 1) that every row draws,
such as the page with the advertisement, from which chains and other fields take their own places. So hit
rates of caches, and the savings of placing rows on workers by a field, are about those of real rows.

**Frequencies.** A field's ids are ranked. Rank 0, the default id, has the mass `top1` of criteo_like.json.
The rest is a superposition of two Pitman-Yor laws: a head of a few dozen frequent ids and a tail. In place of
a random sample of the law we take its mean: the number of ids more frequent than x is

    R(x) = integral from x to 1 of  y^(-1-d) (1-y)^(theta+d-1) dy / B(1-d, theta+d)

and their mass U(x) is the survival function of Beta(1-d, theta+d). The inverse CDF is cut into 65,536 cells
of equal mass: a cell belongs to one frequent id, or holds a run of rare ids that are drawn evenly. In a chain
the child's id is the one at the parent id's place in the CDF, the middle of its interval, so the child keeps
its own distribution.

**Truth.** logit = bias + sum over fields of w[field, id] + sum over pairs of <v[field, id], v[other, id']>,
where w and v are normal variates hashed from (field, id): nothing is stored, and streams of all seeds share
one truth. The click rate is about 0.275, the AUC of the truth 0.82, of its first-order terms 0.77. Numbers I1
to I4 are noisy views of the logit, with a correlation of 0.2; I5 to I13 are independent of it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from data import CRITEO_NUMBERS, GAMMA, Numbered, Rows, mix, salt

BLOCK = 1 << 14
"""Rows at a time: their columns and a field's table fit in the processor's cache."""
CELL_BITS = 16
CELLS = 1 << CELL_BITS

HEAD_SHARE, HEAD_THETA = 0.28, 5.0
HEAD_FROM_UNIQUE = 300
"""Fields with fewer unique ids in 8,192 rows have no head: the tail's law fits them."""
BELOW_TOP = 0.6
"""The second id's frequency, as a share of the first's, if the law would make it higher."""
# Concentrations of the tails, fitted to the unique ids in 8,192 rows of criteo_like.json.
# fmt: off
THETA = {
    "C1": 10.96, "C2": 84.91, "C3": 878.8, "C4": 388.5, "C5": 3.68, "C6": 0.4615, "C7": 2294,
    "C8": 6.794, "C9": 0.05199, "C10": 1885, "C11": 1010, "C12": 578.6, "C13": 736.2, "C14": 2.977,
    "C15": 792.7, "C16": 390, "C17": 1.769, "C18": 347.2, "C19": 104, "C20": 0.2986, "C21": 475.6,
    "C22": 1.101, "C23": 1.394, "C24": 315.4, "C25": 4.511, "C26": 507.7,
}
# fmt: on

CONTEXT = "context"
STRONG, WEAK, TURN = 0.86, 0.62, 0.62
"""Fitted to the savings of placement by each field on real rows. The longest chain is turned: its frequent
ids come in contexts of middling frequency."""

TRUTH = 775
"""Salt of the weights, chosen for the click rate and AUCs of criteo_like.json."""
INFORMATIVE, SIGNAL, TRUTH_MEAN, TRUTH_SD = 4, 0.2, -1.39, 1.5


def rows(count: int, seed: int = 0, start: int = 0) -> Rows:
    """Makes rows [start, start + count) of the endless stream of a seed; equal in every call and place."""
    ids = draw_ids(count, seed, start)
    truth = logits(ids)
    made = Numbered()
    for name, size in fields().items():
        made.add(name, ids[name], size or 0)
    columns = {**made.columns, "numeric": _draw_numeric(truth, seed, start)}
    bits = _row_bits(np.arange(start, start + count), seed, "label")
    uniform = ((bits >> np.uint64(40)).astype(np.float32) + np.float32(0.5)) * np.float32(2**-24)
    return Rows(columns, (uniform * (1 + np.exp(-truth)) < 1).astype(np.float32))


@functools.cache
def parameters() -> dict[str, Any]:
    """Returns criteo_like.json: fields, chains, unique ids of batches, labels."""
    return dict(json.loads(Path(__file__).with_suffix(".json").read_text()))


def fields() -> dict[str, int | None]:
    """Returns the fields, C1 to C26, and the number of ids of each."""
    return {field["name"]: field["cardinality"] for field in parameters()["fields"]}


# --- frequencies ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Curve:
    """The table of one field; all arrays have an entry for each cell.

    Attributes:
      cardinality: number of ids.
      packed: `first rank << 16 | width`.
      place: `start << 16 | step`: the rank at offset o of the cell is at start + o * step in the CDF, in
        units of 2^-32.
      factor, shift: id = (rank * factor + shift) % cardinality, since real ids are not sorted by frequency.
    """

    cardinality: int
    packed: np.ndarray
    place: np.ndarray
    factor: int
    shift: int


@functools.cache
def curve(name: str) -> Curve:
    """Returns the table of a field."""
    field = next(one for one in parameters()["fields"] if one["name"] == name)
    cardinality = field["cardinality"]
    rank = _ranks(field, THETA[name])
    first = np.minimum(np.floor(rank[:-1]).astype(np.int64), cardinality - 1)
    width = np.maximum(np.append(first[1:], cardinality) - first, 1)
    # A run must not begin with an id that has cells of its own, or the id would have two places in the CDF.
    again = np.zeros(CELLS, bool)
    again[1:] = (first[1:] == first[:-1]) & (width[1:] > 1)
    first, width = first + again, width - again

    ids, begin, cells = np.unique(first, return_index=True, return_counts=True)
    alone = ((begin << CELL_BITS) + (cells << CELL_BITS) // 2)[np.searchsorted(ids, first)]
    step = np.where(width > 1, CELLS // width, 0)
    start = np.where(width > 1, (np.arange(CELLS) << CELL_BITS) + step // 2, alone)

    factor = round(cardinality * (math.sqrt(5) - 1) / 2)
    while math.gcd(factor, cardinality) != 1:
        factor += 1
    return Curve(cardinality, first << 16 | width, start << 16 | step, factor, cardinality // 3)


def _ranks(field: dict[str, Any], theta: float) -> np.ndarray:
    """Returns the rank (as a real number) at the boundaries of the cells, float64 [CELLS + 1]."""
    top = field["top1"]
    head = HEAD_SHARE if field["unique_in_8192"] >= HEAD_FROM_UNIQUE else 0.0
    # Descending frequencies x; the mass of the ids above x, and their number.
    log_x = np.linspace(0, -34, 6001)
    mass, count = _pitman_yor(field["pitman_yor"]["d"], theta, 1 - head, log_x)
    if head:
        head_mass, head_count = _pitman_yor(0.005, HEAD_THETA, head, log_x)
        mass, count = mass + head_mass, count + head_count

    # Above 0.2 the default id is separate from the law; below, it is the law's first id with its mass
    # corrected, and the mass of ids that would be more frequent goes to more ids of BELOW_TOP * top1.
    beside = 1 if top > 0.2 else 0
    if not beside:
        cap = int(np.searchsorted(-log_x, -math.log(BELOW_TOP * top)))
        above = mass[cap] / math.exp(log_x[cap])
        count = np.concatenate([mass[:cap] / math.exp(log_x[cap]), count[cap:] + above - count[cap]])
    others = field["cardinality"] - beside
    full = min(int(np.searchsorted(count + np.maximum(1 - mass, 0) / np.exp(log_x), others)), len(log_x) - 1)
    mass, count = np.append(mass[:full], 1.0), np.append(count[:full], others)

    begin = 0.0 if beside else float(np.interp(1.0, count, mass))
    boundary = np.arange(CELLS + 1) / CELLS
    rest = begin + np.maximum(boundary - top, 0) * (1 - begin) / (1 - top)
    return np.where(boundary < top, 0.0, np.interp(rest, mass, count) + beside)


def _pitman_yor(d: float, theta: float, share: float, log_x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mass and number of the atoms above exp(log_x) of a Pitman-Yor law of total mass `share`."""
    # Integrated over t = logit(y), which is smooth at both ends.
    t = np.linspace(40, -36, 8001)
    log_y = -np.logaddexp(0, -t)
    log_beta = math.lgamma(1 - d) + math.lgamma(theta + d) - math.lgamma(1 + theta)
    density = np.exp((1 - d) * log_y - (theta + d) * np.logaddexp(0, t) - log_beta)
    piece = (density[1:] + density[:-1]) / 2
    piece /= piece.sum()
    mass = np.concatenate([[0], np.cumsum(piece)])
    count = np.concatenate([[0], np.cumsum(piece / np.exp((log_y[1:] + log_y[:-1]) / 2))])
    at = -(log_y + math.log(share))
    return share * np.interp(-log_x, at, mass, left=0), np.interp(-log_x, at, count, left=0)


# --- ids ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Link:
    """Where a field takes its place in its CDF from: in this share of the rows, moved by `turn`."""

    source: str
    share: float = 1.0
    turn: float = 0.0


@functools.cache
def _links() -> dict[str, Link]:
    """Returns the sources of the fields' places; a field without one draws its own."""
    result = {
        "C15": Link(CONTEXT),
        "C3": Link(CONTEXT, STRONG, TURN),
        "C25": Link(CONTEXT, STRONG),
        **{name: Link(CONTEXT, WEAK) for name in ("C7", "C10", "C14", "C23")},
    }
    for chain in parameters()["chains"]:
        names = [entry.split(" ")[0] for entry in chain]
        result |= {child: Link(parent) for parent, child in itertools.pairwise(names)}
    return {**result, "C26": Link("C24", 0.84, 0.04)}


def _row_bits(numbers: np.ndarray, seed: int, purpose: str) -> np.ndarray:
    """Returns 64 random bits for each row."""
    return mix(numbers.view(np.uint64) * GAMMA + salt(purpose, seed))


def draw_ids(count: int, seed: int = 0, start: int = 0) -> dict[str, np.ndarray]:
    """Returns the ids of rows [start, start + count), int64 by field, each in [0, cardinality)."""
    result = {name: np.empty(count, np.int64) for name in fields()}
    for begin in range(0, count, BLOCK):
        end = min(begin + BLOCK, count)
        numbers = np.arange(start + begin, start + end, dtype=np.int64)
        _draw_block(numbers, seed, {name: ids[begin:end] for name, ids in result.items()})
    return result


def _draw_block(numbers: np.ndarray, seed: int, out: dict[str, np.ndarray]) -> None:
    """Fills `out` for the rows of these numbers; places are in units of 2^-32 of the CDF."""
    chained = [entry.split(" ")[0] for chain in parameters()["chains"] for entry in chain]
    order = [*(name for name in fields() if name not in chained), *chained]  # parents before children
    places = {CONTEXT: _row_bits(numbers, seed, CONTEXT) >> np.uint64(32)}
    for name in order:
        link = _links().get(name)
        if link is not None and link.share == 1.0:
            place = places[link.source]
        else:
            bits = _row_bits(numbers, seed, name)
            place = bits >> np.uint64(32)
            if link is not None:
                follows = bits.astype(np.uint16) < round(link.share * 0x10000)  # the bits below the place's
                turned = (places[link.source] + np.uint64(round(link.turn * 2**32))) & np.uint64(0xFFFFFFFF)
                place = np.where(follows, turned, place)
        out[name][:], places[name] = _look_up(curve(name), place.view(np.int64))


def _look_up(table: Curve, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids at places, and the ids' own places, for their children."""
    cell, low = place >> CELL_BITS, CELLS - 1
    packed, own = table.packed[cell], table.place[cell]
    offset = (place & low) * (packed & low) >> CELL_BITS
    ids = (((packed >> 16) + offset) * table.factor + table.shift) % table.cardinality
    return ids, ((own >> 16) + (own & low) * offset).view(np.uint64)


# --- truth ----------------------------------------------------------------------------------------


@functools.cache
def _quantiles() -> np.ndarray:
    """Returns the standard normal quantiles of 2^16 equal parts."""
    inverse = statistics.NormalDist().inv_cdf
    return np.array([inverse((part + 0.5) / 65536) for part in range(65536)], np.float32)


def _normals(bits: np.ndarray, number: int) -> np.ndarray:
    """Returns the `number`-th (0 to 3) standard normal variate of 64-bit hashes."""
    return _quantiles()[(bits >> np.uint64(16 * number)) & np.uint64(0xFFFF)]


def logits(ids: dict[str, np.ndarray], pairs: bool = True) -> np.ndarray:
    """Returns the true logits, float32 [N], of ids of `draw_ids`; without pairs: of the first order alone."""
    labels = parameters()["labels"]
    result = np.full(len(ids["C1"]), labels["bias"], np.float32)
    for begin in range(0, len(result), BLOCK):
        of = slice(begin, begin + BLOCK)
        hashes = {
            name: mix(one[of].astype(np.uint64) * GAMMA + salt("truth", TRUTH, name))
            for name, one in ids.items()
        }
        for bits in hashes.values():
            result[of] += np.float32(labels["first_order_sd"]) * _normals(bits, 0)
        for one, other in labels["pairs"] if pairs else ():
            for part in range(1, 4):
                # "latent_sd" is the variance of the latent vectors: so the truth has the stated AUC.
                product = _normals(hashes[one], part) * _normals(hashes[other], part)
                result[of] += np.float32(labels["latent_sd"]) * product
    return result


def _draw_numeric(truth: np.ndarray, seed: int, start: int) -> np.ndarray:
    """Returns the numbers, float32 [N, 13], none negative: like log(x + 1) of counts up to some hundreds."""
    numbers = np.arange(start, start + len(truth))
    result = np.empty((len(truth), len(CRITEO_NUMBERS)), np.float32)
    standard = (truth - np.float32(TRUTH_MEAN)) / np.float32(TRUTH_SD)
    noise = np.sqrt(1 - np.float32(SIGNAL) ** 2)
    for column in range(len(CRITEO_NUMBERS)):
        if column % 4 == 0:
            bits = _row_bits(numbers, seed, f"numeric {column // 4}")
        value = _normals(bits, column % 4)
        if column < INFORMATIVE:
            value = np.float32(SIGNAL) * standard + noise * value
        result[:, column] = np.maximum(1 + column % 4 + np.float32(1.2) * value, 0)
    return result
