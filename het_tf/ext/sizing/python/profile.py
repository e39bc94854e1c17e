"""Profiles a stream of samples in one pass and constant memory: counts and hash-sampled stream per table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from het_tf.ext.sizing.python import counts, entries
from het_tf.ext.sizing.python.counts import Int64Array
from het_tf.ext.sizing.python.stats import KEYS, STATS, Stats, TableStats, sha256_of, write_keys
from het_tf.python import ids as ids_lib
from het_tf.python.checks import whole_or_none
from het_tf.python.files import local_path

if TYPE_CHECKING:
    from het_tf.python.table.config import FeatureConfig

_SAMPLES, _IDS = 1 << 14, 1 << 19  # of a block, which ends with the sample of its last id
_HEAD, _HEADS = 1 << 16, 3 << 17  # ids to count of a table, of all tables

Column = tuple[Int64Array, Int64Array]  # ids [m], and number of each sample's ids [n]


class Profiler:
    """Counts a stream of samples, batch by batch; the files do not depend on the batch size.

        features = {"user": het_tf.FeatureConfig(users), "item": het_tf.FeatureConfig(items)}
        profiler = Profiler(features, "clicks")
        profiler.add({"user": users, "item": items})      # int64 [n] each
        stats = profiler.finish("stats")

    Args:
      features: Features of a sample, by name: their tables and padding.
      source: Name of the stream, for people.
      most: Number of samples to count; later ones are ignored. None: all.
      limit: Entries of the hash-sampled stream.

    Raises:
      ValueError: There are no features; `most` is not a whole number of 1 or more.
    """

    def __init__(
        self,
        features: Mapping[str, FeatureConfig],
        source: str = "",
        most: int | None = None,
        limit: int = entries.LIMIT,
    ) -> None:
        most = whole_or_none("samples", most, otherwise="None for all")
        if not features:
            raise ValueError("features are empty; give one or more")
        self.features, self.source, self.samples = dict(features), source, 0
        self._uses = dict.fromkeys(features, 0)
        self._tables: dict[str, list[str]] = {}  # the features of each
        for name, feature in features.items():
            self._tables.setdefault(feature.table.name, []).append(name)
        self._heads = [counts.Head(min(_HEAD, _HEADS // len(self._tables))) for _ in self._tables]
        self._entries = entries.Entries(len(self._tables), limit)
        self._most, self._done, self._waiting = most or 1 << 62, 0, self._nothing()
        self._ids = 0  # in the waiting block

    def _nothing(self) -> dict[str, list[Column]]:
        return {name: [] for name in self.features}

    @property
    def full(self) -> bool:
        """Whether all samples to count were added."""
        return self.samples >= self._most

    def add(self, batch: Mapping[str, Any]) -> None:
        """Appends samples.

        Args:
          batch: The ids of each feature, integers or strings: [n], or [n, k], or a pair: ids [m] sample by
            sample, and the number of each sample's ids, [n].

        Raises:
          ValueError: A feature is missing, its ids are no ids, or its number of samples differs from
            the first one's. Nothing was added.
        """
        columns = {name: _column(name, batch) for name in self._uses}
        if len({len(counts) for _, counts in columns.values()}) > 1:
            sizes = {name: len(counts) for name, (_, counts) in columns.items()}
            raise ValueError(f"features have different numbers of samples: {sizes}; give as many of each")
        ends = {name: np.append(0, np.cumsum(counts)) for name, (_, counts) in columns.items()}
        total: Int64Array = np.sum(list(ends.values()), axis=0)
        begin, size = 0, min(len(total) - 1, self._most - self.samples)
        while begin < size:
            room = _SAMPLES - (self.samples - self._done)
            last = max(begin + 1, int(np.searchsorted(total, total[begin] + _IDS - self._ids)))
            end = min(size, begin + room, last)
            for name, (ids, of) in columns.items():
                part = slice(ends[name][begin], ends[name][end])
                self._waiting[name].append((ids[part].copy(), of[begin:end].copy()))
            self.samples += end - begin
            self._ids += int(total[end] - total[begin])
            if end - begin == room or self._ids >= _IDS:
                self._count()
            begin = end

    def _count(self) -> None:
        """Counts the waiting block."""
        for number, features in enumerate(self._tables.values()):
            found = [self._column_of(name) for name in features]
            ids, samples = (np.concatenate(of) for of in zip(*found, strict=True))
            if len(found) > 1:
                order = np.argsort(samples, kind="stable")
                ids, samples = ids[order], samples[order]
            self._heads[number].add(ids)
            self._entries.add(number, ids, samples)
        self._entries.whole = self._done = self.samples
        self._waiting, self._ids = self._nothing(), 0
        if self._done >= entries.UNIQUE:
            self._entries.count_unique()

    def _column_of(self, name: str) -> Column:
        """Ids of a feature in the block, and the sample of each."""
        ids, of = (np.concatenate(parts) for parts in zip(*self._waiting[name], strict=True))
        samples = np.repeat(np.arange(self._done, self.samples), of)
        if (padding := self.features[name].padding_id) is not None:
            real = ids != padding
            ids, samples = ids[real], samples[real]
        self._uses[name] += len(ids)
        return ids, samples

    def finish(self, out: str | os.PathLike[str]) -> Stats:
        """Makes the directory `out` with stats.json and keys.npz; do not add samples afterwards.

        Raises:
          ValueError: The stream had no samples, or no ids.
          OSError: The files cannot be written.
        """
        if self.samples > self._done:
            self._count()
        if not any(self._uses.values()):
            what = "no ids but padding" if self.samples else "no samples"
            raise ValueError(f"{self.source or 'the stream'} has {what}; there is nothing to profile")
        self._entries.count_unique()
        place, tables = local_path("out", out), []
        place.mkdir(parents=True, exist_ok=True)
        (place / STATS).unlink(missing_ok=True)  # of an earlier profile

        def arrays() -> Iterator[tuple[str, npt.NDArray[Any]]]:
            for number, (ids, samples) in enumerate(self._entries.take()):
                keys = entries.distinct(ids.copy())
                for part in entries.pieces(len(ids)):
                    ids[part] = np.searchsorted(keys, ids[part])
                tables.append(self._table(number, keys, ids))
                yield f"t{number}_keys", keys
                yield f"t{number}_ids", ids.astype(np.uint32)
                yield f"t{number}_samples", samples

        write_keys(place / KEYS, arrays())
        features = [
            {"name": name, "table": of.table.name, "ids_per_sample": self._uses[name] / self.samples}
            for name, of in self.features.items()
        ]
        stats = Stats(self.samples, self.source, features, tables, place, sha256_of(place / KEYS))
        stats.write()
        return stats

    def _table(self, number: int, keys: Int64Array, ids: Int64Array) -> TableStats:
        """Returns the figures of a table: `ids` are numbers of `keys`."""
        (name, features), head = list(self._tables.items())[number], self._heads[number]
        ratio, until = self._entries.ratios[number], min(self._entries.until[number], self.samples)
        uses = sum(self._uses[feature] for feature in features)
        rows = ratio * len(keys) if head.missed else len(head.keys)
        tail = counts.uses_of(ids, len(keys))
        at = np.searchsorted(keys, head.keys)
        at, counted = at[at < len(keys)], head.keys[at < len(keys)]
        tail[at[keys[at] == counted]] = 0
        return TableStats(
            name=name, dim=self.features[features[0]].table.dim, uses=uses, rows=rows,
            rows_exact=not head.missed or (ratio == 1 and until == self.samples), ratio=ratio, until=until,
            quantiles=counts.quantiles(head.uses, tail, ratio, uses), unique=self._entries.unique[number],
            entries=len(ids),
        )  # fmt: skip


def _column(name: str, batch: Mapping[str, Any]) -> Column:
    """Returns the ids of a feature, and their number in each sample. ValueError: see `Profiler.add`."""
    if name not in batch:
        raise ValueError(f"feature {name!r} is missing; the batch has {sorted(map(str, batch))}")
    pair = batch[name] if isinstance(batch[name], tuple) else (batch[name], 0)
    ids, of = ids_lib.array_of(pair[0], f"feature {name!r}: ids"), np.asarray(pair[1])
    if of.dtype.kind not in "iu":
        raise ValueError(f"feature {name!r}: counts are {of.dtype}; give integers")
    if pair is not batch[name] and ids.ndim in (1, 2):
        of = np.full(len(ids), ids[:1].size)
    elif pair is not batch[name] or ids.ndim != 1 or of.ndim != 1 or (of < 0).any() or of.sum() != len(ids):
        raise ValueError(
            f"feature {name!r}: ids have shape {ids.shape} and counts {of.shape}; give ids [n] or [n, k], or "
            "a pair of ids [m] and counts [n] that sum up to m"
        )
    return np.ravel(ids), of.astype(np.int64)
