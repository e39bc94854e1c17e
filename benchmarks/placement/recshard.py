"""RecShard's problem: tables to devices with a fast and a slow memory, whole or by the skew of their ids."""

import dataclasses
import itertools

import numpy as np
from placement_sets import assign
from scipy import optimize

from het_tf.python.data.criteo_curves import criteo_like_parameters, curve
from het_tf.python.planner.place import Curve, split_budget

DEVICES = 4
FAST = 0.1  # of all bytes
SLOWER = 10.0
GRID = np.linspace(0, 1, 24)


@dataclasses.dataclass(frozen=True)
class Skewed:
    """A table: `rows[i]` rows have the share `share[i]` of its uses; a step reads `read` bytes."""

    row_bytes: int
    read: float
    rows: np.ndarray
    share: np.ndarray

    @property
    def bytes(self) -> int:
        return int(self.rows[-1]) * self.row_bytes

    def cost(self, share: float) -> float:
        """Time of a step, in bytes of fast memory, with such a share of its uses there."""
        return self.read * (share + (1 - share) * SLOWER)


def make_tables(seed: int) -> list[Skewed]:
    """Criteo's 26 fields and 12 drawn from them; dim, ids a sample and coverage are drawn."""
    rng = np.random.default_rng(seed)
    fields = criteo_like_parameters()["fields"]
    tables = []
    for field in [*fields, *rng.choice(fields, 12, replace=False)]:
        mass, count = curve(field["name"]).masses()
        order = np.argsort(-mass)
        share, rows = np.cumsum((mass * count)[order]), np.cumsum(count[order])
        some = np.unique(np.append(np.searchsorted(share, GRID[:-1] * share[-1]), len(share) - 1))
        dim, ids = int(rng.choice([32, 64, 128])), 20 ** rng.uniform(0, 1) * rng.uniform(0.3, 1)
        share = np.append(0, share[some] / share[-1])
        tables.append(Skewed(4 * dim, 4 * dim * ids, np.append(0, rows[some]), share))
    return tables


def outcome(tables: list[Skewed], plan: dict[int, tuple[int, float]]) -> dict[str, float]:
    """Of a device and a share for each table: the slowest over the mean, and the bytes from slow memory."""
    loads = np.zeros(DEVICES)
    for i, (device, share) in plan.items():
        loads[device] += tables[i].cost(share)
    slow = sum(tables[i].read * (1 - share) for i, (_, share) in plan.items()) / sum(t.read for t in tables)
    return {"slowest": loads.max(), "max_of_mean": loads.max() / loads.mean(), "slow_share": float(slow)}


def whole(tables: list[Skewed]) -> dict[str, float]:
    """Whole tables into fast memory while they fit, the most uses a byte first."""
    left = FAST * sum(table.bytes for table in tables)
    share = [0.0] * len(tables)
    for i in sorted(range(len(tables)), key=lambda i: tables[i].bytes / tables[i].read):
        share[i] = float(tables[i].bytes <= left)
        left -= share[i] * tables[i].bytes
    device = assign([table.cost(q) for table, q in zip(tables, share, strict=True)], DEVICES)
    return outcome(tables, dict(enumerate(zip(device, share, strict=True))))


def greedy(tables: list[Skewed]) -> dict[str, float]:
    """One budget for all, devices by time; each divides its own; then the slowest swaps or gives a table."""
    budget = int(FAST * sum(table.bytes for table in tables))
    curves = [
        Curve(str(i), t.row_bytes, tuple(zip(t.rows.tolist(), map(t.cost, t.share.tolist()), strict=True)))
        for i, t in enumerate(tables)
    ]

    def split(of: list[int], within: int) -> dict[int, float]:
        rows = split_budget([curves[i] for i in of], within)
        return {i: float(np.interp(rows[str(i)], tables[i].rows, tables[i].share)) for i in of}

    def load(of: list[int]) -> float:
        return sum(tables[i].cost(q) for i, q in split(of, budget // DEVICES).items())

    first = split(list(range(len(tables))), budget)
    device = assign([tables[i].cost(share) for i, share in first.items()], DEVICES)
    on = [[i for i in range(len(tables)) if device[i] == at] for at in range(DEVICES)]
    for _ in range(2 * DEVICES):
        loads = [load(of) for of in on]
        slow, idle = int(np.argmax(loads)), int(np.argmin(loads))
        changes = []
        for i, j in itertools.product(on[slow], [-1, *on[idle]]):
            a, b = [k for k in on[slow] if k != i] + [j] * (j >= 0), [k for k in on[idle] if k != j] + [i]
            changes.append((max(load(a), load(b)), a, b))
        if min(changes)[0] >= loads[slow]:
            break
        _, on[slow], on[idle] = min(changes)
    shares = [split(of, budget // DEVICES) for of in on]
    return outcome(tables, {i: (at, share) for at, of in enumerate(shares) for i, share in of.items()})


def milp(tables: list[Skewed]) -> dict[str, float]:
    """RecShard's: one (device, share) a table, devices within their fast memory, the slowest time least."""
    budget = FAST * sum(table.bytes for table in tables) / DEVICES
    choice = [(i, m, q) for i, t in enumerate(tables) for m in range(DEVICES) for q in range(len(t.share))]
    table, on, _ = np.array(choice).T
    time = np.array([tables[i].cost(tables[i].share[q]) for i, _, q in choice])
    size = np.array([tables[i].rows[q] * tables[i].row_bytes for i, _, q in choice]) / budget
    one, of = np.equal.outer(range(len(tables)), table), np.equal.outer(range(DEVICES), on)
    found = optimize.milp(
        np.append(np.zeros(len(choice)), 1.0),
        integrality=np.append(np.ones(len(choice)), 0),
        bounds=optimize.Bounds(0, np.append(np.ones(len(choice)), np.inf)),
        constraints=[
            optimize.LinearConstraint(np.pad(one, [(0, 0), (0, 1)]), 1, 1),
            optimize.LinearConstraint(np.c_[of * time / time.sum(), -np.ones(DEVICES)], -np.inf, 0),
            optimize.LinearConstraint(np.c_[of * size, np.zeros(DEVICES)], -np.inf, 1),
        ],
        options={"time_limit": 60, "mip_rel_gap": 0.003},
    )
    chosen = [choice[c] for c in np.flatnonzero(found.x[:-1] > 0.5)]
    return outcome(tables, {i: (m, float(tables[i].share[q])) for i, m, q in chosen})
