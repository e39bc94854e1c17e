"""Finds a row by its id with only gathers: a perfect hash, made when all ids are known.

A SavedModel cannot hold our hash table, and TensorFlow's own take some 60 bytes an id, are filled anew
at every load, and are limited to a message of 2 GB. `tf.searchsorted` copies its keys at every
call and then visits 20 of them for each id. We use "hash and displace" (Belazzougui, Botelho and
Dietzfelbinger, ESA 2009; pilots as in Pibiri and Trani's PTHash, SIGIR 2021):

    h      = mix(id)                                64 bits; a bijection, so different ids stay different
    bucket = h * buckets / 2^64                     2 ids a bucket on average
    pilot  = pilots[bucket]                         16 bits that make the bucket's ids fall on free slots
    slot   = hash(h xor pilot) * slots / 2^64       distinct for all ids of the table
    found  = keys[slot] == id

so a lookup is two gathers of one number an id before the gather of the row, and some arithmetic,
vectorised over the batch. An id costs 9.5 bytes: 8 for the key, 1 for its share of a pilot, and 6 % of the
slots are free. Free slots hold the key of another slot, which no id that maps there can equal: so any
int64 is a legal id.

Several tables share the arrays, each in its own region, so one series of ops reads all tables of a model.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.ext.serving.python.export import arrays
from het_tf.ext.serving.python.export.uint64 import UInt64, reduce, shift, u64, xor
from het_tf.python.session.native import Int64Array, tf

_GOLDEN, _MIX, _PILOT, _SLOT = (
    0x9E3779B97F4A7C15,
    0xBF58476D1CE4E5B9,
    0xFF51AFD7ED558CCD,
    0xD6E8FEB86659FD93,
)
IDS_A_BUCKET = 2.0
LOAD = 0.94
PILOTS = 1 << 16
SEEDS = 32
_CHUNK = 1 << 18  # buckets placed at a time


def _hash(ids: Any, seed: UInt64) -> Any:
    """Returns 64 mixed bits of each id, for arrays and tensors."""
    x = ids * u64(_GOLDEN) + seed
    x = xor(x, shift(x, 32)) * u64(_MIX)
    return xor(x, shift(x, 32))


def _slot(h: Any, pilot: Any, slots: UInt64) -> Any:
    return reduce(xor(h, pilot * u64(_PILOT)) * u64(_SLOT), slots)


@dataclass(frozen=True)
class Region:
    """The part of one table in the arrays of a group.

    Attributes:
      seed: Seed of the hash.
      pilots: uint16 [buckets].
      slot_of: int64 [N]: the slot of each id, in [0, slots).
      slots: Number of slots.
      filler: int64 [slots]: keys of free slots (unused for taken slots).
    """

    seed: int
    pilots: npt.NDArray[np.uint16]
    slot_of: Int64Array
    slots: int
    filler: Int64Array | np.int64


def build(ids: Int64Array, pilots: int = PILOTS) -> Region:
    """Places the ids of one table.

    Args:
      ids: int64 [N], each once.
      pilots: Number of pilots that a bucket may try.

    Returns:
      The region. Takes about a second for each million ids, and 40 bytes of memory an id while it runs.

    Raises:
      ValueError: 2^31 or more ids; an id that occurs twice.
    """
    if ids.size >= 1 << 31:
        raise ValueError(f"a table has {ids.size} rows; a portable export takes fewer than 2**31 of each")
    if ids.size == 0:
        return _empty()
    for seed in range(SEEDS):
        region = _try(ids, seed, pilots)
        if region is not None:
            return region
    raise ValueError(f"{ids.size} ids cannot be placed; is there one that occurs twice?")


def _empty() -> Region:
    """Returns two slots, each with an id that maps to the other one, so that nothing is found."""
    numbers = np.arange(256, dtype=np.int64)
    slots = _slot(_hash(numbers.view(np.uint64), u64(0)), u64(0), u64(2))
    filler = np.array([numbers[slots == 1][0], numbers[slots == 0][0]])
    return Region(0, np.zeros(1, np.uint16), np.zeros(0, np.int64), 2, filler)


def _try(ids: Int64Array, seed: int, limit: int) -> Region | None:
    """Places all ids with the hash of that seed: large buckets first, while there is room for them."""
    slots = int(ids.size / LOAD) + 2
    buckets = int(ids.size / IDS_A_BUCKET) + 1
    h = _hash(ids.view(np.uint64), u64(seed))
    bucket = reduce(h, u64(buckets)).astype(np.int64)
    sizes = np.bincount(bucket, minlength=buckets)
    order = np.argsort(bucket, kind="stable")
    del bucket
    h = h[order]
    starts = np.cumsum(sizes) - sizes
    pilots = np.zeros(buckets, np.uint16)
    slot_of = np.empty(ids.size, np.int64)
    free = np.ones(slots, bool)
    claim = np.empty(slots, np.int32)
    for size in range(int(sizes.max()), 0, -1):
        of_size = np.flatnonzero(sizes == size)
        for begin in range(0, of_size.size, _CHUNK):
            members = of_size[begin : begin + _CHUNK]
            for pilot in range(limit):
                if not members.size:
                    break
                at = starts[members][:, None] + np.arange(size)
                wanted = _slot(h[at], np.array([pilot], np.uint64), u64(slots)).astype(np.int64)
                fits = free[wanted].all(1)
                if size > 1:
                    ordered = np.sort(wanted, 1)
                    fits &= (ordered[:, 1:] != ordered[:, :-1]).all(1)
                candidates = np.flatnonzero(fits)
                # The last of the buckets that want the same slot wins, if it wins all of its slots.
                claim[wanted[candidates]] = candidates[:, None]
                winners = candidates[(claim[wanted[candidates]] == candidates[:, None]).all(1)]
                free[wanted[winners]] = False
                pilots[members[winners]] = pilot
                slot_of[order[at[winners]]] = wanted[winners]
                members = np.delete(members, winners)
            if members.size:
                return None
    return Region(seed, pilots, slot_of, slots, ids[0])


class Index:
    """The regions of a group of tables, as variables.

    Args:
      ids: One int64 [N] per table, each id of a table once.

    Attributes:
      regions: One per table.
      first: The first slot of each table.
      slots: Number of slots in total.
      keys, pilots: Variables.
      numbers: uint64 [tables, 5]: seed, buckets, first bucket, slots, first slot of the table.
    """

    def __init__(self, ids: list[Int64Array]) -> None:
        self.regions = [build(one) for one in ids]
        self.first = np.cumsum([0, *(region.slots for region in self.regions)])[:-1]
        self.slots = sum(region.slots for region in self.regions)
        keys = arrays.zeros((self.slots,), np.int64)
        for region, first, of_table in zip(self.regions, self.first, ids, strict=True):
            part = keys[first : first + region.slots]
            part[:] = region.filler
            part[region.slot_of] = of_table
        parts = [region.pilots for region in self.regions]
        first_bucket = np.cumsum([0, *(one.size for one in parts)])[:-1]
        pilots = arrays.zeros((sum(one.size for one in parts),), np.uint16)
        np.concatenate(parts, out=pilots)
        self.keys = arrays.variable(keys, "keys")
        self.pilots = arrays.variable(pilots, "pilots")
        numbers = [
            [region.seed, region.pilots.size, bucket, region.slots, slot]
            for region, bucket, slot in zip(self.regions, first_bucket, self.first, strict=True)
        ]
        self.numbers = np.array(numbers, np.uint64)

    @property
    def variables(self) -> list[Any]:
        """The variables to save."""
        return [self.keys, self.pilots]

    def forget_regions(self) -> None:
        """Frees the data that only filling the arrays of rows needs."""
        del self.regions

    @property
    def bytes(self) -> int:
        """Bytes of keys and pilots."""
        return 8 * int(tf.size(self.keys)) + 2 * int(tf.size(self.pilots))

    def find(self, ids: Any, tables: Any) -> tuple[Any, Any]:
        """Returns the slots of ids, as ops.

        Args:
          ids: int64 of any shape.
          tables: The table of each id, int32 of that shape; None: there is only one.

        Returns:
          In the shape of ids: int64, a slot in [0, slots) in any case; bool: whether it belongs to the id.
        """
        bits = tf.bitcast(ids, tf.uint64)
        if tables is None:
            numbers = self.numbers[0]
        else:
            numbers = tf.unstack(tf.gather(self.numbers, tables), axis=-1)
        seed, buckets, first_bucket, slots, first_slot = numbers
        h = _hash(bits, seed)
        bucket = reduce(h, buckets)
        if tables is not None:
            bucket += first_bucket
        pilot = tf.cast(tf.gather(self.pilots, tf.bitcast(bucket, tf.int64)), tf.uint64)
        slot = _slot(h, pilot, slots)
        if tables is not None:
            slot += first_slot
        slot = tf.bitcast(slot, tf.int64)
        return slot, tf.equal(tf.gather(self.keys, slot), ids)
