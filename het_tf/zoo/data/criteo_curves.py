"""The frequency of each id of a Criteo-like field: a skew curve, and the table that draws from it.

A field's ids are ranked by frequency. Rank 0, the default id, has the mass `top1`. The rest is a
superposition of two Pitman-Yor laws: a *head* (discount 0.005, concentration `HEAD_THETA`, share
`HEAD_SHARE` of the mass) of a few dozen frequent ids and a *tail* (discount d of criteo_like.json,
concentration fitted). A single Pitman-Yor law, fitted to `unique_in_8192`, gives 11 % too many unique ids
at batch 512; the head corrects that. Instead of a random sample of the law we take its mean: the number
of ids more frequent than x is

    R(x) = integral from x to 1 of  y^(-1-d) (1-y)^(theta+d-1) dy / B(1-d, theta+d)

and their mass U(x) is the survival function of Beta(1-d, theta+d). Ids past the point where the remaining
mass, spread evenly, brings the count to the cardinality are equally frequent.

The inverse CDF is then cut into 65,536 cells of equal mass. A cell belongs to one frequent id, or holds a
run of `width` rare ids that are drawn evenly: one table look-up a draw, 512 KiB a field, for any
cardinality.

*Chains*: if a field is determined by another, the child's id is the one at the parent id's place in
the CDF (the middle of its interval). That is a function of the parent's id, so the dependence is exact, and
it keeps the child's marginal distribution because the child's ids are the coarser ones.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt

CELL_BITS = 16
CELLS = 1 << CELL_BITS

HEAD_SHARE = 0.28
HEAD_THETA = 5.0
HEAD_FROM_UNIQUE = 300
"""Fields with fewer unique ids in 8,192 rows have no head: the tail's law fits them."""

BELOW_TOP = 0.6
"""The second id's frequency, as a share of the first's, if the law would make it higher."""

# Concentrations, found by tools/fit_criteo_like.py: with each, its field's expected unique ids in 8,192 rows
# are those of criteo_like.json. HEAD_SHARE and HEAD_THETA were chosen for its `unique_ids_per_batch` and the
# hit rates of its `excerpt`.
# fmt: off
THETA = {
    "C1": 10.96, "C2": 84.91, "C3": 878.8, "C4": 388.5, "C5": 3.68, "C6": 0.4615, "C7": 2294,
    "C8": 6.794, "C9": 0.05199, "C10": 1885, "C11": 1010, "C12": 578.6, "C13": 736.2, "C14": 2.977,
    "C15": 792.7, "C16": 390, "C17": 1.769, "C18": 347.2, "C19": 104, "C20": 0.2986, "C21": 475.6,
    "C22": 1.101, "C23": 1.394, "C24": 315.4, "C25": 4.511, "C26": 507.7,
}
# fmt: on


@functools.cache
def criteo_like_parameters() -> dict[str, Any]:
    """Returns the contents of criteo_like.json: fields, chains, unique ids per batch, labels."""
    text = importlib.resources.files(__package__).joinpath("criteo_like.json").read_text()
    return dict(json.loads(text))


@dataclasses.dataclass(frozen=True)
class Curve:
    """The table of one field; all arrays have one entry a cell.

    Attributes:
      cardinality: number of ids.
      packed: int64; `first rank << 16 | width`.
      place: int64; `start << 16 | step`: the rank at offset o of the cell is at `start + o * step` in
        the CDF, in units of 2^-32.
      factor, shift: `id = (rank * factor + shift) % cardinality` scatters the ranks over the ids, since
        real ids are not sorted by frequency.
    """

    cardinality: int
    packed: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]
    factor: int
    shift: int

    def masses(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Returns the distribution as (mass of one id, number of such ids), two arrays of equal length."""
        first, width = self.packed >> 16, self.packed & 0xFFFF
        frequent = np.bincount(first[width == 1])
        frequent = frequent[frequent > 0]
        runs = width[width > 1]
        mass = np.concatenate([frequent, 1 / runs]) / CELLS
        return mass, np.concatenate([np.ones_like(frequent), runs])

    def expected_unique(self, rows: int) -> float:
        """Returns the expected number of distinct ids in `rows` rows."""
        mass, count = self.masses()
        with np.errstate(divide="ignore"):
            return float((count * -np.expm1(rows * np.log1p(-mass))).sum())


@functools.cache
def curve(name: str) -> Curve:
    """Returns the table of field `name` ("C1" to "C26")."""
    field = next(field for field in criteo_like_parameters()["fields"] if field["name"] == name)
    return make_curve(field, THETA[name])


def make_curve(field: dict[str, Any], theta: float) -> Curve:
    """Makes the table of a field.

    Args:
      field: its entry in criteo_like.json.
      theta: the concentration of its tail.
    """
    cardinality = field["cardinality"]
    rank = _ranks(field, theta)
    first = np.minimum(np.floor(rank[:-1]).astype(np.int64), cardinality - 1)
    after = np.append(first[1:], cardinality)
    width = np.maximum(after - first, 1)
    # A run must not begin with an id that has cells of its own, or the id would have two places in the CDF.
    again = np.zeros(CELLS, bool)
    again[1:] = (first[1:] == first[:-1]) & (width[1:] > 1)
    first, width = first + again, width - again

    cell = np.arange(CELLS)
    ids, begin, cells = np.unique(first, return_index=True, return_counts=True)
    middle = (begin << CELL_BITS) + (cells << CELL_BITS) // 2
    alone = middle[np.searchsorted(ids, first)]
    step = np.where(width > 1, CELLS // width, 0)
    start = np.where(width > 1, (cell << CELL_BITS) + step // 2, alone)

    factor = round(cardinality * (math.sqrt(5) - 1) / 2)
    while math.gcd(factor, cardinality) != 1:
        factor += 1
    return Curve(cardinality, first << 16 | width, start << 16 | step, factor, cardinality // 3)


def _ranks(field: dict[str, Any], theta: float) -> npt.NDArray[np.float64]:
    """Returns the rank (as a real number) at the boundaries of the cells, float64 `[CELLS + 1]`."""
    top = field["top1"]
    head = HEAD_SHARE if field["unique_in_8192"] >= HEAD_FROM_UNIQUE else 0.0
    # Descending frequencies x. U: mass of the ids above x, R: their number.
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


def _pitman_yor(
    d: float, theta: float, share: float, log_x: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Returns mass and number of the atoms above exp(log_x) of a Pitman-Yor law of total mass `share`."""
    # Integrated over t = logit(y), which is smooth at both ends.
    t = np.linspace(40, -36, 8001)
    log_y = -np.logaddexp(0, -t)
    density = np.exp((1 - d) * log_y - (theta + d) * np.logaddexp(0, t) - _log_beta(1 - d, theta + d))
    piece = (density[1:] + density[:-1]) / 2
    piece /= piece.sum()
    mass = np.concatenate([[0], np.cumsum(piece)])
    count = np.concatenate([[0], np.cumsum(piece / np.exp((log_y[1:] + log_y[:-1]) / 2))])
    at = -(log_y + math.log(share))
    return share * np.interp(-log_x, at, mass, left=0), np.interp(-log_x, at, count, left=0)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
