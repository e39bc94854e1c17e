"""Do caches and placement find in the Criteo-like stream what they find in a real excerpt of Criteo?

python tools/criteo_excerpt.py prints each figure beside the wanted one, after a change of the stream's ids.

The wanted figures are criteo_like.json's `excerpt`: 8,192 real rows, all ids, batches of 128. They came
without definitions. Those used here give 37.5 and 45.0 % hits for the stream before it had a context, for
which 37.6 and 45.4 % came with them:

* *hit rate*: a cache of a tenth of the excerpt's distinct rows reads batch after batch. A batch reads each of
  its unique ids once, and hits those that were there before it. Then the least recently used ids go, or
  those with the fewest uses since they came (of equals the least recently used), until the rest fits. The
  first 8 batches are not counted.
* *step*: 8 workers read a batch each. *Random placement* gives the rows to them in order, *placement by a
  field* to the worker that the id's hash names while it has room, and the others to those with room left.
* *row last written by another worker*: a unique id of a worker's batch that an earlier step used, if the
  last such step used it at another worker. *saved*: how many fewer there are than with random placement.

Every figure is a mean over excerpts of the stream, each placed by another hash. The real one is of one
excerpt and one hash; `spread` is the standard deviation of such a single figure, in points, or in percent of
the wanted unique ids, as `error` is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.hashing import GAMMA, mix
from het_tf.zoo.data.criteo_curves import criteo_like_parameters
from het_tf.zoo.data.criteo_ids import draw_ids, field_names

ROWS = 8192
BATCH = 128
WORKERS = 8
TOLERANCE = 2.0
"""Points by which a figure may miss the real one; percent for unique ids."""

BEYOND = ("saved, C3, %", "saved, C16, %")
"""Figures that are not met, as is known.

C3 determines C12, C12 C21, and C21 C16, so the mean over hashes rises along the chain. The excerpt has
26, 24, 28, 26 % of one hash.
"""
Int64Array = npt.NDArray[np.int64]


def excerpt(number: int) -> Int64Array:
    """Returns ids of `ROWS` rows, int64 `[ROWS, fields]`, numbered over all fields from 0 without gaps."""
    columns = draw_ids(ROWS, seed=1, start=number * ROWS).values()
    keys = np.stack([ids + (field << 40) for field, ids in enumerate(columns)], axis=1)
    return np.unique(keys, return_inverse=True)[1].reshape(keys.shape)


def hit_rate(ids: Int64Array, by_frequency: bool) -> float:
    """Returns the share of the batches' unique ids that a cache of a tenth of all ids has."""
    distinct = int(ids.max()) + 1
    uses, last = np.zeros(distinct, np.int64), np.zeros(distinct, np.int64)
    hits = reads = 0
    for number, batch in enumerate(ids.reshape(-1, BATCH * ids.shape[1])):
        unique, at = np.unique(batch, return_index=True)
        if number >= WORKERS:
            hits += np.count_nonzero(uses[unique])
            reads += len(unique)
        uses[unique] += 1
        last[unique] = number * len(batch) + at
        there = np.flatnonzero(uses)
        worth = last[there] + (uses[there] << 32 if by_frequency else 0)
        uses[there[np.argsort(worth)[: -(distinct // 10)]]] = 0
    return hits / reads


def place(column: Int64Array, salt: int) -> Int64Array:
    """Returns each row's worker by one field's ids: WORKERS x BATCH rows a step, BATCH of them a worker."""
    wanted = (mix(column.view(np.uint64) * GAMMA + np.uint64(salt)) % np.uint64(WORKERS)).view(np.int64)
    result = np.empty_like(wanted)
    for begin in range(0, len(wanted), WORKERS * BATCH):
        step = slice(begin, begin + WORKERS * BATCH)
        order = np.argsort(wanted[step], kind="stable")
        workers = wanted[step][order]
        fits = np.arange(len(order)) - np.searchsorted(workers, workers) < BATCH
        room = BATCH - np.bincount(workers[fits], minlength=WORKERS)
        workers[~fits] = np.repeat(np.arange(WORKERS), room)
        result[begin + order] = workers
    return result


def of_others(ids: Int64Array, worker: Int64Array) -> tuple[float, float]:
    """Returns, a batch, the unique ids and those last written by another worker."""
    steps = len(ids) // (WORKERS * BATCH)
    step = np.repeat(np.arange(steps), WORKERS * BATCH)
    used = np.zeros((int(ids.max()) + 1) * steps * WORKERS, bool)
    used[((ids * steps + step[:, None]) * WORKERS + worker[:, None]).ravel()] = True
    # Uses in the order of id, step, worker; those of one id in one step are a group.
    group, by = np.divmod(np.flatnonzero(used), WORKERS)
    begin = np.flatnonzero(np.diff(group, prepend=-1))
    size = np.diff(begin, append=len(group))
    only = np.where(size == 1, by[begin], -1)
    row = group[begin] // steps
    follows = np.diff(row, prepend=-1) == 0
    before = np.repeat(np.roll(only, 1), size)
    foreign = np.repeat(follows, size) & (before != by)
    return len(group) / (steps * WORKERS), np.count_nonzero(foreign) / (steps * WORKERS)


def figures_of(number: int) -> dict[str, float]:
    """Returns the figures of one excerpt and one hash, by name."""
    ids = excerpt(number)
    in_order = np.arange(ROWS) // BATCH % WORKERS
    unique, foreign = of_others(ids, in_order)
    result = {
        "LRU hits, %": 100 * hit_rate(ids, by_frequency=False),
        "LFU hits, %": 100 * hit_rate(ids, by_frequency=True),
        "unique ids, random": unique,
    }
    for field, name in enumerate(field_names()):
        unique, left = of_others(ids, place(np.ascontiguousarray(ids[:, field]), number))
        result[f"unique ids, {name}"] = unique
        result[f"saved, {name}, %"] = 100 * (1 - left / foreign)
    return result


def measure(excerpts: int) -> dict[str, dict[str, Any]]:
    """Returns each figure of criteo_like.json's `excerpt`: wanted, measured, spread, error, met."""
    runs = [figures_of(number) for number in range(excerpts)]
    wanted = criteo_like_parameters()["excerpt"]
    names = {f"{policy} hits, %": value for policy, value in wanted["hits"].items()}
    names |= {f"unique ids, {by}": value for by, value in wanted["unique_ids"].items()}
    names |= {f"saved, {name}, %": wanted["saved"].get(name) for name in field_names()}
    result = {}
    for name, value in names.items():
        values = np.array([run[name] for run in runs])
        mean = float(values.mean())
        scale = 1.0 if name.endswith("%") else 100 / value
        if value is None:  # known is only that it is below
            error = max(mean - wanted["others_save_less_than"], 0.0)
        else:
            error = scale * (mean - value)
        result[name] = {
            "wanted": value,
            "measured": mean,
            "spread": scale * float(values.std(ddof=1)),
            "error": error,
            "met": abs(error) <= TOLERANCE,
        }
    return result


def main() -> None:
    for name, figure in measure(4).items():
        print(f"{name:24} " + ", ".join(f"{key} {value}" for key, value in figure.items()))


if __name__ == "__main__":
    main()
