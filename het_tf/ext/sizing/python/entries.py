"""The hash-sampled stream: each table's ids with a low hash, in the order of the stream.

All tables share room for `limit` entries. When it is full, the table with the most entries keeps half as many
ids; a table of few ids, half of which would mean nothing, keeps half of its stream instead.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.ext.sizing.python.counts import Int64Array
from het_tf.python.hashing import mix, salt

LIMIT = 3_500_000  # entries: 16 bytes of the file each at most
FEWEST = 256  # ids that a table keeps at least
UNIQUE = 1 << 17  # count unique ids in the batches of the first UNIQUE samples

_PIECE = 1 << 16
_SALT = salt("het-plan")
Samples = npt.NDArray[np.int64] | npt.NDArray[np.uint32]


def is_kept(ids: Int64Array, ratio: int) -> npt.NDArray[np.bool_]:
    """Whether the hash of each id is below 2^64 / ratio, a power of two; bool [n]."""
    bound = np.uint64((1 << 64) // ratio - 1)
    hashes = (mix(ids[part].view(np.uint64) ^ _SALT) for part in pieces(len(ids)))
    return np.concatenate([np.zeros(0, bool), *(piece <= bound for piece in hashes)])


def distinct(ids: Int64Array) -> Int64Array:
    """Returns the distinct ids, ascending, int64 [n]; sorts `ids`. numpy.unique takes more memory."""
    ids.sort()
    fresh = np.ones(len(ids), bool)
    np.not_equal(ids[1:], ids[:-1], out=fresh[1:])
    return ids[: _squeeze(ids, fresh)]


def _squeeze(array: npt.NDArray[Any], stay: npt.NDArray[np.bool_]) -> int:
    """Moves the elements that stay to the begin of an array, in place; returns their number."""
    size = 0
    for part in pieces(len(stay)):
        rows = array[part][stay[part]]
        array[size : size + len(rows)] = rows
        size += len(rows)
    return size


def pieces(size: int) -> Iterator[slice]:
    """Yields slices of an array of `size` elements that take little memory."""
    return (slice(begin, min(begin + _PIECE, size)) for begin in range(0, size, _PIECE))


class Entries:
    """Entries of all tables.

    Args:
      tables: Number of tables.
      limit: Entries to hold.

    Attributes:
      ratios: For each table; hashes of its ids are below 2^64 / ratio.
      until: For each table; its entries are from samples below.
      whole: Number of samples whose ids were all added; the caller of `add` sets it.
      unique: For each table: samples of a batch, and the table's unique ids in it, from the stream's begin.
    """

    def __init__(self, tables: int, limit: int = LIMIT) -> None:
        self.ratios, self.until = [1] * tables, [1 << 62] * tables
        self.whole, self.unique = 0, [[] for _ in range(tables)]  # type: tuple[int, list[list[list[float]]]]
        self._limit, self._size, self._counted = limit, 0, False
        self._tables = np.empty(limit + _PIECE, np.uint16)
        self._ids = np.empty(limit + _PIECE, np.int64)
        self._samples: Samples = np.empty(limit + _PIECE, np.uint32)

    def add(self, table: int, ids: Int64Array, samples: Int64Array) -> None:
        """Adds the ids, int64 [n], with a low hash; `samples` int64 [n] ascends."""
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
        """Sets `unique` at the first call: no entry was dropped until then."""
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
        """Yields ids int64 [n] and samples [n] of each table, which the caller may change; removes all."""
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
        """Drops an eighth of the entries: a pass over all of them costs as much as adding that many."""
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
        """Mask of a table's entries that stay when it keeps half as many ids, or half of its stream."""
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
    """Mean unique ids of a batch over the batches of `whole` samples, a power of two; overwrites `ids`.

    An id is unique in a batch of 2^j samples if its sample and that of its last use differ at bit j or
    above. Ids are distinguished by 47 or more bits of their hash, which leave room for the sample.
    """
    bits, words = whole.bit_length() - 1, ids.view(np.uint64)
    for part in pieces(len(words)):
        words[part] = mix(words[part] ^ _SALT) >> np.uint64(bits) << np.uint64(bits) | samples[part]
    words.sort()
    times = np.zeros(whole, np.int64)  # by the difference of the samples of two uses
    for part in pieces(len(words) - 1):
        differ = words[part] ^ words[part.start + 1 : part.stop + 1]
        times += np.bincount(differ[differ < whole].view(np.int64), minlength=whole)
    near = np.cumsum(times)[(1 << np.arange(bits + 1)) - 1]  # uses with the last use in the same 2^j samples
    return [[1 << j, (len(ids) - int(many)) / (whole >> j)] for j, many in enumerate(near)]
