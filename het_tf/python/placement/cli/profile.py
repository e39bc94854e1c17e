"""`het-data fields`: how much less rows travel, and lag, if a field or location places the samples.

A sample of the stream is dealt to workers as it comes, by each field and by location; counted is what the ids
decide, with caches that hold everything: how many rows a batch has, how many of them this worker uses for the
first time, how many were changed by another one since, and by how many updates.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from het_tf.python.placement.cli.rules import location_keys
from het_tf.python.placement.location import LOCATION, Location
from het_tf.python.placement.placement import Int64Array, Placement, hashes


@dataclass(frozen=True)
class Rows:
    """What a worker uses in a step.

    Attributes:
      unique: Rows of a batch.
      new: Of these, rows that this worker has not used before, and another one has. (A row that is new to all
        travels wherever its sample goes, and there are ever fewer of them in a long stream.)
      changed: Of the others, rows that another worker has changed since this one used them.
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
    """What placing by a field, or by location, does.

    Attributes:
      name: The field, or "location".
      distinct: Values in the sample; None: it is no field.
      first: Share of the samples that the most frequent value has; None likewise.
      spilled: Share of the samples that go to another worker than their owner.
      rows: With it.
    """

    name: str
    distinct: int | None
    first: float | None
    spilled: float
    rows: Rows


def count(numbers: Int64Array, order: Int64Array) -> Rows:
    """Counts what travels when samples are dealt to workers.

    Args:
      numbers: Of the ids of each sample, int64 `[samples, fields]`, 0, 1, ... over all fields.
      order: Which samples each worker takes in each step, int64 `[steps, workers, batch]`.
    """
    steps, workers, batch = order.shape
    place = np.empty(steps * workers * batch, np.int64)
    place[order.ravel()] = np.repeat(np.arange(steps * workers), batch)  # step * workers + worker
    uses = np.sort((numbers[: len(place)] * (steps * workers) + place[:, None]).ravel())
    uses = uses[np.diff(uses, prepend=-1) > 0]  # np.unique takes several times as long
    key = uses // (steps * workers)
    begins = np.flatnonzero(np.diff(uses // workers, prepend=-1))  # of the uses of a row in one step
    size = np.diff(begins, append=len(uses))
    group = np.repeat(np.arange(len(begins)), size)
    first = begins[group]
    # A copy is of the worker's last use; it lacks the uses of others from that step on.
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
    """Counts what travels without a placement, by each field and by location.

    Args:
      columns: Integers or strings `[samples]` by field.
      workers: How many.
      batch: Samples of each in a step.
      advance: Told of each field, and of location.

    Returns:
      Rows as samples come, and the fields and location, those that save most first.

    Raises:
      ValueError: The samples make no two global batches.
    """
    hashed = {name: hashes(values) for name, values in columns.items()}
    samples = len(next(iter(hashed.values())))
    steps = samples // (workers * batch)
    if steps < 2:
        raise ValueError(
            f"there are {samples} samples, and two global batches of {workers} workers have "
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
