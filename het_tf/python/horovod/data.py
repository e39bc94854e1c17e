"""Every rank's part of the data."""

from typing import Any

import numpy as np

from het_tf.python.session import collective
from het_tf.python.session.native import tf


def shard(data: Any, drop_remainder: bool = True) -> Any:
    """This rank's part of the data: equally large on all ranks, each element on one.

        dataset = het_tf.horovod.shard(dataset).shuffle(10_000).batch(128)

    All ranks must take equally many steps, since each step waits for all; so up to N - 1 elements are left
    out. Shard before shuffling: the ranks must see one order to take different elements of it. Sharded after
    `batch`, whole batches are elements, and the last, smaller one of them may go to one rank.

    Args:
      data: A tf.data.Dataset; a part of a data set of `het_tf.data`; an array [rows, ...], or a tuple, list
        or dict of arrays with equally many rows.
      drop_remainder: False: the first ranks take what is left over, too. For evaluation, where ranks need not
        step together. Streams of het_tf.data always drop it.

    Returns:
      The same kind of thing. Without Horovod, or with one rank, `data`.

    Raises:
      ValueError: It is something else, or has fewer elements than there are ranks.
      RuntimeError: `het_tf.init(hvd=hvd)` was not called.
    """
    hvd = collective.required("het_tf.horovod.shard")
    rank, count = hvd.rank(), hvd.size()
    if count == 1:
        return data
    if isinstance(data, tf.data.Dataset):
        return _shard_dataset(data, rank, count, drop_remainder)
    if hasattr(data, "take") and hasattr(data, "shard"):  # Examples
        _check_rows(len(data), count)
        return data.take(_slice(len(data), rank, count, drop_remainder))
    if hasattr(data, "shard"):
        return data.shard(rank, count)
    return _shard_arrays(data, rank, count, drop_remainder)


def _shard_dataset(dataset: Any, rank: int, count: int, drop_remainder: bool) -> Any:
    length = int(dataset.cardinality())
    if length == tf.data.INFINITE_CARDINALITY or not drop_remainder:
        return dataset.shard(count, rank)
    if length >= 0:
        _check_rows(length, count)
        return dataset.take(length - length % count).shard(count, rank)

    # Only a pass would tell how many there are: whole groups of one element a rank.
    def of_this_rank(*group: Any) -> Any:
        zipped = tf.data.Dataset.zip(group[0] if len(group) == 1 else group)
        return zipped.skip(rank).take(1)

    return dataset.window(count, drop_remainder=True).flat_map(of_this_rank)


def _shard_arrays(data: Any, rank: int, count: int, drop_remainder: bool) -> Any:
    flat = tf.nest.flatten(data)
    if not flat or not all(isinstance(array, np.ndarray) and array.ndim for array in flat):
        raise ValueError(
            f"data is a {type(data).__name__} that het_tf.horovod.shard does not know; give a "
            "tf.data.Dataset, a part of a data set of het_tf.data, or numpy arrays"
        )
    rows = {len(array) for array in flat}
    if len(rows) > 1:
        raise ValueError(f"the arrays have {sorted(rows)} rows; they must have equally many")
    (length,) = rows
    _check_rows(length, count)
    index = _slice(length, rank, count, drop_remainder)
    return tf.nest.map_structure(lambda array: array[index], data)


def _slice(length: int, rank: int, count: int, drop_remainder: bool) -> slice:
    return slice(rank, length - length % count if drop_remainder else length, count)


def _check_rows(length: int, count: int) -> None:
    if length < count:
        raise ValueError(f"the data has {length} elements for {count} ranks; give every rank at least one")
