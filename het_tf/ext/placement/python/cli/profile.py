"""`het data fields`: how many fewer rows travel, and how much less they lag, under each placement.

It deals a sample of the stream to workers as it comes, by each field and by location, and counts for caches
that hold everything: rows of a batch, rows that this worker uses for the first time, rows that another worker
changed since, and the number of these changes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from het_tf.ext.placement.python.cli.rules import location_keys
from het_tf.ext.placement.python.location import LOCATION, Location
from het_tf.ext.placement.python.placement import Int64Array, Placement, hashes


@dataclass(frozen=True)
class Rows:
    """Rows that a worker uses in a step.

    Attributes:
      unique: Rows of a batch.
      new: Rows among them that this worker has not used before, but another one has. (A row that is new to
        all travels under any placement, and a long stream has ever fewer of them.)
      changed: Other rows that another worker has changed since this one used them.
      lag: Updates of others that a copy lacks, mean over uses.
    """

    unique: float
    new: float
    changed: float
    lag: float

    @property
    def bounded(self) -> float:
        """Rows that travel in a step at a large bound: each is pulled once, and pushed once."""
        return 2 * self.new

    @property
    def exact(self) -> float:
        """Rows that travel in a step at staleness 0."""
        return self.new + self.changed + self.unique


@dataclass(frozen=True)
class FieldFigures:
    """The effect of placing by a field or by location.

    Attributes:
      name: The field, or "location".
      distinct: Values in the sample; None for location.
      first: Share of the samples with the most frequent value; None for location.
      spilled: Share of the samples that go to another worker than their owner.
      rows: Rows under this placement.
    """

    name: str
    distinct: int | None
    first: float | None
    spilled: float
    rows: Rows


def count(numbers: Int64Array, order: Int64Array) -> Rows:
    """Counts the rows of each step when samples are dealt to workers.

    Args:
      numbers: Numbers of each sample's ids, int64 `[samples, fields]`, 0, 1, ... over all fields.
      order: Samples that each worker takes in each step, int64 `[steps, workers, batch]`.
    """
    steps, workers, batch = order.shape
    place = np.empty(steps * workers * batch, np.int64)
    place[order.ravel()] = np.repeat(np.arange(steps * workers), batch)  # step * workers + worker
    uses = np.sort((numbers[: len(place)] * (steps * workers) + place[:, None]).ravel())
    uses = uses[np.diff(uses, prepend=-1) > 0]  # np.unique takes several times as long
    key = uses // (steps * workers)
    begins = np.flatnonzero(np.diff(uses // workers, prepend=-1))  # begins of a row's uses in one step
    size = np.diff(begins, append=len(uses))
    group = np.repeat(np.arange(len(begins)), size)
    first = begins[group]
    # A copy dates from the worker's last use; it lacks others' uses from that step on.
    copy = key * workers + uses % workers
    by_worker = np.argsort(copy, kind="stable")
    last = np.full(len(uses), -1)
    same = np.diff(copy[by_worker]) == 0
    last[by_worker[1:][same]] = by_worker[:-1][same]
    lag = np.where(last >= 0, first - begins[group[last]] - 1, 0)
    batches = steps * workers
    used = (first > 0) & (key[first - 1] == key)
    new, changed = float(np.sum(used & (last < 0))), float(np.sum(lag > 0))
    return Rows(len(uses) / batches, new / batches, changed / batches, float(lag.mean()))


def profile(
    columns: Mapping[str, Any], workers: int, batch: int, advance: Callable[[int], None]
) -> tuple[Rows, list[FieldFigures]]:
    """Counts the rows that travel without a placement, by each field and by location.

    Args:
      columns: Integers or strings `[samples]` by field.
      workers: Number of workers.
      batch: Samples of a worker in a step.
      advance: Called for each field, and for location.

    Returns:
      Rows without a placement, and figures of the fields and location, the best first.

    Raises:
      ValueError: The samples are fewer than two global batches.
    """
    hashed = {name: hashes(values) for name, values in columns.items()}
    samples = len(next(iter(hashed.values())))
    steps = samples // (workers * batch)
    if steps < 2:
        raise ValueError(
            f"there are {samples} samples, but two global batches of {workers} workers have "
            f"{2 * workers * batch}; give a smaller --batch, or fewer --workers"
        )
    used = steps * workers * batch
    numbers, counts, begin = [], {}, 0
    for name, words in hashed.items():
        found, inverse, times = np.unique(words[:used], return_inverse=True, return_counts=True)
        numbers.append(inverse.reshape(-1) + begin)
        counts[name] = (len(found), float(times.max()) / used)
        begin += len(found)
    table = np.stack(numbers, axis=1)
    plain = count(table, np.arange(used).reshape(steps, workers, batch))
    fields = []
    for name, words in hashed.items():
        placement = Placement(name, workers, batch)
        owners = placement.owners(words[:used])
        order = placement.place_owners(owners)
        spilled = float(np.mean(owners[order] != np.arange(workers)[:, None]))
        fields.append(FieldFigures(name, *counts[name], spilled, count(table, order)))
        advance(1)
    fields.append(_by_location(hashed, table, Placement(LOCATION, workers, batch)))
    advance(1)
    return plain, sorted(fields, key=lambda one: one.rows.bounded)


def _by_location(hashed: Mapping[str, Any], table: Int64Array, placement: Placement) -> FieldFigures:
    rule, keys = Location(placement), location_keys(hashed)
    begins = range(0, len(table), placement.samples)
    owners = np.concatenate([rule.owners(keys[begin : begin + placement.samples]) for begin in begins])
    return FieldFigures(LOCATION, None, None, 0.0, count(table, placement.place_owners(owners)))
