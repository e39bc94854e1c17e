"""One pass over a stream of samples, in constant memory: counts of each table, and its hash-sampled stream."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.data.placement import Int64Array
from het_tf.python.planner import entries, figures
from het_tf.python.planner.entries import Entries
from het_tf.python.planner.head import Head
from het_tf.python.planner.stats import (
    KEYS,
    STATS,
    FeatureStats,
    Stats,
    TableStats,
    sha256_of,
    write_keys,
    write_stats,
)

_SAMPLES, _IDS = 1 << 14, 1 << 19  # of a block, at most (of ids: and one sample's)
_HEAD, _HEADS = 1 << 16, 1 << 19  # ids that are counted of a table, and of all

Column = tuple[Int64Array, Int64Array]  # ids [m], and how many each sample has [n]


@dataclasses.dataclass(frozen=True)
class Feature:
    """A feature of samples.

    Attributes:
      name: Of the feature.
      table: The name of its table.
      dim: Floats of a row of the table; None: not known.
      padding: This id is none.
    """

    name: str
    table: str
    dim: int | None = None
    padding: int | None = None


class Profiler:
    """Counts a stream of samples, batch by batch; batches of any size make the same files.

        profiler = Profiler([Feature("user", "user", 16), Feature("item", "item", 16)], "clicks")
        profiler.add({"user": users, "item": items})      # int64 [n] each
        stats = profiler.finish("stats")

    Args:
      features: Those of a sample.
      source: What is read, for people.
      most: Samples that are counted; those behind them are left out. None: all.
      limit: Entries of the hash-sampled stream.

    Attributes:
      samples: How many were added.

    Raises:
      ValueError: There are no features, or two of one name; features of one table differ in dim; `most` is
        no whole number of 1 or more.
    """

    def __init__(
        self,
        features: Sequence[Feature],
        source: str = "",
        most: int | None = None,
        limit: int = entries.LIMIT,
    ) -> None:
        if most is not None and (type(most) is not int or most < 1):
            raise ValueError(f"samples is {most!r}; give a whole number of 1 or more, or None for all")
        names = [feature.name for feature in features]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"features are {names}; give one or more, each by another name")
        self.features, self.source, self.samples = list(features), source, 0
        self._most, self._done = most or 1 << 62, 0
        self._tables: dict[str, list[Feature]] = {}
        for feature in features:
            first = self._tables.setdefault(feature.table, [feature])
            if first[0] is not feature:
                first.append(feature)
            if first[0].dim != feature.dim:
                raise ValueError(
                    f"table {feature.table!r} has dim {first[0].dim} for feature {first[0].name!r} and "
                    f"{feature.dim} for {feature.name!r}; give one"
                )
        self._uses = dict.fromkeys(names, 0)
        self._heads = [Head(min(_HEAD, _HEADS // len(self._tables))) for _ in self._tables]
        self._entries = Entries(len(self._tables), limit)
        self._waiting: list[dict[str, Column]] = []
        self._samples = self._ids = 0  # that wait

    @property
    def full(self) -> bool:
        """Whether there are as many samples as are counted."""
        return self.samples >= self._most

    def add(self, batch: Mapping[str, Any]) -> None:
        """Adds samples behind those before.

        Args:
          batch: The ids of each feature: integers [n], or [n, k], or a pair: ids [m] sample by sample, and
            how many each sample has, [n].

        Raises:
          ValueError: A feature is missing, its ids are no integers, or it has other samples than the first
            one. Nothing was added.
        """
        columns = {feature.name: _column(feature.name, batch) for feature in self.features}
        sizes = {name: len(counts) for name, (_, counts) in columns.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"features have different numbers of samples: {sizes}; give as many of each")
        ends = {name: np.concatenate([[0], np.cumsum(counts)]) for name, (_, counts) in columns.items()}
        total = sum(ends.values(), np.zeros(1, np.int64))
        size, begin = min(len(total) - 1, self._most - self.samples), 0
        self.samples += size
        while begin < size:
            ids_end = int(np.searchsorted(total, total[begin] + _IDS - self._ids))
            end = min(size, begin + _SAMPLES - self._samples, max(ids_end, begin + 1))
            self._waiting.append(
                {name: (ids[ends[name][begin] : ends[name][end]], counts[begin:end])
                 for name, (ids, counts) in columns.items()}
            )  # fmt: skip
            self._samples += end - begin
            self._ids += int(total[end] - total[begin])
            begin = end
            if self._samples == _SAMPLES or self._ids >= _IDS:
                self._count()
        if self._waiting:  # the caller may use its arrays for other ids
            self._waiting[-1] = {name: (a.copy(), b.copy()) for name, (a, b) in self._waiting[-1].items()}

    def _count(self) -> None:
        """Counts the samples that wait."""
        if not self._waiting:
            return
        for number, (head, features) in enumerate(zip(self._heads, self._tables.values(), strict=True)):
            found = [self._ids_of(feature) for feature in features]
            ids, samples = (np.concatenate(of) if len(of) > 1 else of[0] for of in zip(*found, strict=True))
            if len(found) > 1:
                order = np.argsort(samples, kind="stable")
                ids, samples = ids[order], samples[order]
            head.add(ids)
            self._entries.add(number, ids, samples)
        self._done += self._samples
        self._waiting, self._samples, self._ids = [], 0, 0
        self._entries.whole = self._done
        if self._done >= entries.UNIQUE:
            self._entries.count_unique()

    def _ids_of(self, feature: Feature) -> tuple[Int64Array, Int64Array]:
        """Ids of a feature, and the sample of each."""
        found = [piece[feature.name] for piece in self._waiting]
        ids, counts = (np.concatenate(of) if len(of) > 1 else of[0] for of in zip(*found, strict=True))
        samples = np.repeat(np.arange(self._done, self._done + len(counts)), counts)
        if feature.padding is not None:
            real = ids != feature.padding
            ids, samples = ids[real], samples[real]
        self._uses[feature.name] += len(ids)
        return ids, samples

    def finish(self, out: str | os.PathLike[str]) -> Stats:
        """Writes stats.json and keys.npz into the directory `out`, which is made; nothing can be added then.

        Raises:
          ValueError: There were no samples, or no ids.
          OSError: The files cannot be written. A profile that was there is gone or whole.
        """
        self._count()
        if not sum(self._uses.values()):
            what = "no ids but padding" if self.samples else "no samples"
            raise ValueError(f"{self.source or 'the stream'} has {what}; there is nothing to profile")
        self._entries.count_unique()
        place, tables = Path(out), []
        place.mkdir(parents=True, exist_ok=True)
        (place / STATS).unlink(missing_ok=True)

        def arrays() -> Iterator[tuple[str, npt.NDArray[Any]]]:
            for number, (ids, samples) in enumerate(self._entries.take()):
                keys = entries.distinct(ids.copy())
                for begin in range(0, len(ids), _SAMPLES):
                    part = slice(begin, begin + _SAMPLES)
                    ids[part] = np.searchsorted(keys, ids[part])
                tables.append(self._table(number, keys, ids, samples))
                yield f"t{number}_keys", keys
                yield f"t{number}_ids", ids.astype(np.uint32)
                yield f"t{number}_samples", samples

        write_keys(place / KEYS, arrays())
        features = [FeatureStats(feature.name, feature.table, self._uses[feature.name] / self.samples)
                    for feature in self.features]  # fmt: skip
        stats = Stats(self.samples, self.source, features, tables, place, sha256_of(place / KEYS))
        write_stats(stats)
        return stats

    def _table(self, number: int, keys: Int64Array, ids: Int64Array, samples: Any) -> TableStats:
        """The figures of a table: `ids` are numbers of `keys`."""
        (name, features), head = list(self._tables.items())[number], self._heads[number]
        ratio, until = self._entries.ratios[number], min(self._entries.until[number], self.samples)
        uses = sum(self._uses[feature.name] for feature in features)
        exact = not head.missed or (ratio == 1 and until == self.samples)
        rows = len(head.keys) if not head.missed else ratio * len(keys)
        times = np.bincount(ids, minlength=len(keys)).astype(np.int32)
        times[head.at(keys)] = 0
        return TableStats(
            name=name, dim=features[0].dim, uses=uses, rows=rows, rows_exact=exact, ratio=ratio, until=until,
            growth=figures.growth(ids, samples, len(keys), rows, until, self.samples),
            top=np.sort(head.uses)[::-1][: figures.TOP].tolist(), top_missed=head.missed,
            quantiles=figures.quantiles(head.uses, times, ratio, uses), unique=self._entries.unique[number],
            drift=figures.drift(ids, samples, len(keys), until), entries=len(ids),
        )  # fmt: skip


def _column(name: str, batch: Mapping[str, Any]) -> Column:
    """The ids of a feature, and how many each sample has. ValueError: see `Profiler.add`."""
    if name not in batch:
        raise ValueError(f"feature {name!r} is missing; the batch has {sorted(map(str, batch))}")
    value = batch[name]
    ids, counts = (np.asarray(one) for one in (value if isinstance(value, tuple) else (value, 0)))
    if ids.dtype.kind not in "iu" or counts.dtype.kind not in "iu":
        kind = ids.dtype if ids.dtype.kind not in "iu" else f"counted by {counts.dtype}"
        raise ValueError(f"feature {name!r}: ids are {kind}; give integers, strings hashed to int64")
    if not isinstance(value, tuple):
        if ids.ndim not in (1, 2):
            raise ValueError(f"feature {name!r}: ids have shape {ids.shape}; give [n], [n, k] or a pair")
        counts = np.full(len(ids), 1 if ids.ndim == 1 else ids.shape[1])
    elif ids.ndim != 1 or counts.ndim != 1 or (counts < 0).any() or counts.sum() != len(ids):
        raise ValueError(
            f"feature {name!r}: {ids.size} ids, shape {ids.shape}, are not what counts of shape "
            f"{counts.shape} sum up to, {counts.sum()}; give ids [m] and counts [n] that sum up to m"
        )
    return np.ascontiguousarray(ids).reshape(-1).astype(np.int64, copy=False), counts.astype(np.int64)
