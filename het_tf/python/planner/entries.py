"""The hash-sampled stream: the ids of each table whose hash is low, in the order of the stream.

There is room for so many entries of all tables. When it is used up, the table that has most of them keeps
half as many ids; one of few ids, of which half would say nothing, keeps half of its stream in their place.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.hashing import mix, salt
from het_tf.python.placement.placement import Int64Array

LIMIT = 3_500_000  # entries: 16 bytes of the file each at most
FEWEST = 256  # ids that a table keeps
UNIQUE = 1 << 17  # samples in whose batches unique ids are counted

_PIECE = 1 << 16
_SALT = salt("het-plan")
Samples = npt.NDArray[np.int64] | npt.NDArray[np.uint32]


def is_kept(ids: Int64Array, ratio: int) -> npt.NDArray[np.bool_]:
    """Whether the hash of each id is below 2^64 / ratio, a power of two; bool [n]."""
    bound = np.uint64((1 << 64) // ratio - 1)
    hashes = (mix(ids[part].view(np.uint64) ^ _SALT) for part in pieces(len(ids)))
    return np.concatenate([np.zeros(0, bool), *(piece <= bound for piece in hashes)])


def distinct(ids: Int64Array) -> Int64Array:
    """The distinct ones, ascending, int64 [n]; sorts `ids`. numpy.unique takes more memory."""
    ids.sort()
    fresh = np.ones(len(ids), bool)
    np.not_equal(ids[1:], ids[:-1], out=fresh[1:])
    return ids[: _squeeze(ids, fresh)]


def _squeeze(array: npt.NDArray[Any], stay: npt.NDArray[np.bool_]) -> int:
    """Moves what stays to the begin of an array, in place; returns how much."""
    size = 0
    for part in pieces(len(stay)):
        rows = array[part][stay[part]]
        array[size : size + len(rows)] = rows
        size += len(rows)
    return size


def pieces(size: int) -> Iterator[slice]:
    """Slices of an array of so many, which take little memory."""
    return (slice(begin, min(begin + _PIECE, size)) for begin in range(0, size, _PIECE))


class Entries:
    """Entries of all tables.

    Args:
      tables: How many.
      limit: Entries that are held.

    Attributes:
      ratios: Of each table: its ids' hashes are below 2^64 / ratio.
      until: Of each table: its entries are of samples below.
      whole: Samples whose ids were all added; whoever adds says it.
      unique: Of each table: samples of a batch, and the table's unique ids in it, from the stream's begin.
    """

    def __init__(self, tables: int, limit: int = LIMIT) -> None:
        self.ratios, self.until = [1] * tables, [1 << 62] * tables
        self.whole, self.unique = 0, [[] for _ in range(tables)]  # type: tuple[int, list[list[list[float]]]]
        self._limit, self._size, self._counted = limit, 0, False
        self._tables = np.empty(limit + _PIECE, np.uint16)
        self._ids = np.empty(limit + _PIECE, np.int64)
        self._samples: Samples = np.empty(limit + _PIECE, np.uint32)

    def add(self, table: int, ids: Int64Array, samples: Int64Array) -> None:
        """Adds those of the ids, int64 [n], that are kept; `samples` int64 [n] ascends."""
        if len(samples) and samples[-1] >> 32 and self._samples.dtype == np.uint32:
            self._samples = self._samples.astype(np.int64)
            self._limit = self._limit * 4 // 5  # 20 bytes each
        for part in pieces(len(ids)):
            of, at = ids[part], samples[part]
            if self.ratios[table] > 1 or at[-1] >= self.until[table]:
                kept = is_kept(of, self.ratios[table]) & (at < self.until[table])
                of, at = of[kept], at[kept]
            place = slice(self._size, self._size + len(of))
            self._tables[place], self._ids[place], self._samples[place] = table, of, at
            self._size += len(of)
            while self._size > self._limit:
                self._shrink()

    def count_unique(self) -> None:
        """Sets `unique`, the first time: nothing was left out until then."""
        counted, self._counted = self._counted, True
        if counted or not self.whole:
            return
        whole = min(UNIQUE, 1 << (self.whole.bit_length() - 1))
        seen = self._samples[: self._size] < whole
        for table in range(len(self.ratios)):
            mine = seen & (self._tables[: self._size] == table)
            ids, samples = (array[: self._size][mine] for array in (self._ids, self._samples))
            self.unique[table] = unique_of(ids, samples, whole)

    def take(self) -> Iterator[tuple[Int64Array, Samples]]:
        """Ids int64 [n] and samples [n] of each table, which are the caller's; there are no entries then."""
        tables, self._tables = self._tables[: self._size], np.empty(0, np.uint16)
        ends = np.cumsum(np.bincount(tables, minlength=len(self.ratios)))
        begins = [0, *ends[:-1]]

        def by_table(array: Any) -> Any:
            found = np.empty(self._size, array.dtype)
            for table, begin in enumerate(begins):
                for part in pieces(self._size):
                    rows = array[part][tables[part] == table]
                    found[begin : begin + len(rows)] = rows
                    begin += len(rows)
            return found

        self._ids = by_table(self._ids)
        self._samples = by_table(self._samples)
        for begin, end in zip(begins, ends, strict=True):
            yield self._ids[begin:end], self._samples[begin:end]

    def _shrink(self) -> None:
        """Leaves out an eighth of the entries: a pass over all of them costs as much as adding that many."""
        self.count_unique()
        tables = self._tables[: self._size]
        counts, stay = np.bincount(tables), np.ones(self._size, bool)
        while counts.sum() > self._limit - self._limit // 8:
            table = int(counts.argmax())
            mine = stay & (tables == table)
            kept = self._halve(table, mine)
            stay[mine] = kept
            counts[table] = kept.sum()
        for array in (self._tables, self._ids, self._samples):
            self._size = _squeeze(array, stay)

    def _halve(self, table: int, mine: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which of a table's entries stay when it keeps half as many ids, or half of its stream."""
        ids, ratio = self._ids[: self._size][mine], 2 * self.ratios[table]
        kept = is_kept(ids, ratio)
        ids = ids[kept]
        if len(ids) >= FEWEST and len(distinct(ids)) >= FEWEST:
            self.ratios[table] = ratio
            return kept
        samples = self._samples[: self._size][mine]
        self.until[table] = (int(samples[-1]) + 1) // 2
        return samples < self.until[table]


def unique_of(ids: Int64Array, samples: Samples, whole: int) -> list[list[float]]:
    """Unique ids of a batch, mean over the batches of `whole` samples, a power of two; overwrites `ids`.

    An id is unique in a batch of 2^j samples where its sample and that of its last use differ at bit j or
    above. Ids are told apart by the bits of their hash that leave room for the sample, 47 or more.
    """
    bits, words = whole.bit_length() - 1, ids.view(np.uint64)
    for part in pieces(len(words)):
        words[part] = mix(words[part] ^ _SALT) >> np.uint64(bits) << np.uint64(bits) | samples[part]
    words.sort()
    times = np.zeros(whole, np.int64)  # of each difference of the samples of two uses
    for part in pieces(len(words) - 1):
        differ = words[part] ^ words[part.start + 1 : part.stop + 1]
        times += np.bincount(differ[differ < whole].view(np.int64), minlength=whole)
    near = np.cumsum(times)[(1 << np.arange(bits + 1)) - 1]  # uses whose last one is in the same 2^j samples
    return [[1 << j, (len(ids) - int(many)) / (whole >> j)] for j, many in enumerate(near)]
