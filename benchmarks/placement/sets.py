"""Random tables, the line that is learned of what a set costs a server, and assignment by cost."""

import dataclasses
import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BATCHES = 4
LARGE = 1 << 19  # bytes of a part past which each cost a server more, in the first sets that were measured


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of `rows` ids; `ids`, int64 `[BATCHES, samples, per_sample]`, are drawn by a Zipf law."""

    name: str
    rows: int
    dim: int
    per_sample: int
    ids: npt.NDArray[np.int64]

    @property
    def size(self) -> float:
        return 4.0 * self.rows * self.dim

    def ours(self) -> FloatArray:
        """Of a table in one part: rows of a step, their bytes, those past `LARGE`, and a table."""
        unique = float(np.mean([len(np.unique(batch)) for batch in self.ids]))
        return np.array([unique, 4 * unique * self.dim, max(0.0, 4 * unique * self.dim - LARGE), 1.0])

    def papers(self) -> FloatArray:
        """AutoShard's 21: dim, rows, ids a sample, bytes, and how often an id occurs in a batch, in bins."""
        uses = np.concatenate([np.unique(batch, return_counts=True)[1] for batch in self.ids])
        bins = np.minimum(np.ceil(np.log2(uses)).astype(int), 16)
        histogram = np.bincount(bins, minlength=17) / len(bins)
        return np.array([self.dim, self.rows, self.per_sample, self.size, *histogram])


def make_tables(count: int, seed: int, samples: int) -> list[Table]:
    """Draws tables: 100 to a million rows, 1 to 20 ids a sample, skew from none to Zipf's 1.2."""
    rng = np.random.default_rng(seed)
    tables = []
    for number in range(count):
        rows, per_sample = int(10 ** rng.uniform(2, 6)), int(20 ** rng.uniform(0, 1))
        edges = np.cumsum(np.arange(1, rows + 1) ** -rng.uniform(0, 1.2))
        ids = np.searchsorted(edges / edges[-1], rng.random((BATCHES, samples, per_sample)))
        name = f"t{seed}_{samples}_{number}"
        tables.append(Table(name, rows, int(4 << rng.integers(5)), per_sample, ids.astype(np.int64)))
    return tables


def fit(features: FloatArray, seconds: FloatArray) -> FloatArray:
    """Least squares; features `[sets, n]` are sums over a set, the last coefficient is the constant."""
    scale = np.append(np.abs(features).max(axis=0) + 1e-30, 1)
    return (
        np.linalg.lstsq(np.column_stack([features, np.ones(len(features))]) / scale, seconds, rcond=None)[0]
        / scale
    )


def r2(line: FloatArray, features: FloatArray, seconds: FloatArray) -> float:
    missed = features @ line[:-1] + line[-1] - seconds
    return float(1 - (missed**2).sum() / ((seconds - seconds.mean()) ** 2).sum())


def assign(costs: Sequence[float], shards: int) -> list[int]:
    """Gives each table to the shard that has least so far, the most expensive table first."""
    loads = [(0.0, shard) for shard in range(shards)]
    placed = [0] * len(costs)
    for table in sorted(range(len(costs)), key=lambda i: -costs[i]):
        load, placed[table] = heapq.heappop(loads)
        heapq.heappush(loads, (load + costs[table], placed[table]))
    return placed


def assign_by_beam(costs: Sequence[float], shards: int, width: int = 32) -> list[int]:
    """As `assign`, but keeps the `width` best beginnings: those with the smallest sum of squares of loads."""
    order = sorted(range(len(costs)), key=lambda i: -costs[i])
    loads, chosen = np.zeros((1, shards)), np.zeros((1, 0), int)
    for table in order:
        grown = (loads[:, None, :] + costs[table] * np.eye(shards)).reshape(-1, shards)
        score = (grown**2).sum(-1)
        best = np.unique(np.round(score / score.max(), 12), return_index=True)[1][:width]  # shards are alike
        loads, chosen = grown[best], np.column_stack([chosen[best // shards], best % shards])
    of_order = chosen[loads.max(axis=1).argmin()]
    return [int(of_order[order.index(table)]) for table in range(len(costs))]
