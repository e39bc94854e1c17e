"""The parts of the data for each rank."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from het_tf.python import backend
from het_tf.python.backend import keras
from het_tf.python.session import collective


def shard(data: Any, drop_remainder: bool = True) -> Any:
    """Returns this rank's part of the data, in turns: equally large on all ranks, each element on one.

        dataset = het_tf.workers.shard(dataset).shuffle(10_000).batch(128)

    All ranks must take the same number of steps, since each step waits for all; so up to N - 1 elements are
    left out. Shard before shuffling: the ranks must see one order to take different elements of it. If you
    shard after `batch`, whole batches are elements, and the last, smaller batch may go to one rank.

    Args:
      data: A tf.data.Dataset; an array [rows, ...], or a tuple, list or dict of arrays of equal lengths; on
        PyTorch and JAX also tensors, or a data set of PyTorch that has a length.
      drop_remainder: False: the first ranks also take the remainder. For evaluation, where ranks need not
        step together.

    Returns:
      The same kind of data; with one rank `data`.

    Raises:
      ValueError: The data has another type, or fewer elements than ranks.
      RuntimeError: `het_tf.init` was not called on every rank.
    """
    rank, count = collective.ranks()
    if count == 1:
        return data
    if _is_a(data, "tensorflow.data.Dataset"):
        return _shard_dataset(data, rank, count, drop_remainder)
    if _is_a(data, "torch.utils.data.Dataset") and hasattr(data, "__len__"):
        _check_rows(len(data), count)
        taken = range(len(data))[_slice(len(data), rank, count, drop_remainder)]
        return sys.modules["torch"].utils.data.Subset(data, taken)
    return _shard_arrays(data, rank, count, drop_remainder)


def shard_placed(
    data: Any, by: str, batch: int, lookahead: Any = None, inputs: Callable[..., Any] | None = None
) -> Any:
    """Returns this rank's batches of a placed stream: samples go to the ranks that use their rows.

        dataset = het_tf.workers.shard_placed(dataset.shuffle(10_000, seed=1), by="user", batch=128)

    A rank takes the samples of each global batch (`N * batch` samples in the order of the stream) whose field
    hashes to it; samples above `batch` go to ranks that have too few. The global batches and their gradients
    are those of the stream; fewer ranks use the rows of an id that depends on the field, so fewer rows
    travel. Every rank reads all of the stream, in one order: shuffle before, with one seed, not after. A last
    incomplete global batch is left out. Every rank must make the call. Validate on samples that are not
    placed.

        dataset = het_tf.workers.shard_placed(samples, by="location", batch=128, lookahead=model)

    **By location** (`by="location"`, even if a field has that name): a sample goes to the rank that
    used most of its rows last. For graphs, and other data without a good field: it takes 16 MB, and some
    milliseconds per global batch, on every rank.

    Args:
      data: A tf.data.Dataset of single samples, dicts of features or tuples (features, label, ...); features
        may be ragged, not sparse.
      by: The field that places samples, of one integer or string a sample; or "location".
      batch: Samples of each global batch that a rank takes.
      lookahead: The layer, layers or model that looks the ids of a batch up, as in het_tf.lookahead; its
        lookups are planned, with a window of 32 batches. "location" finds the ids by it.
      inputs: Selects the ids of a batch, as in het_tf.lookahead.

    Returns:
      A tf.data.Dataset of batches `[batch, ...]`.

    Raises:
      ValueError: The data has another type; it has no field `by`, or one that is a number or has several
        values; `lookahead` is missing where it is needed, finds no ids in the features, or has its cache on a
        GPU.
      RuntimeError: `het_tf.init` was not called on every rank; the ranks do not place alike.
      ImportError: Keras' backend is not TensorFlow.
    """
    return _place("shard_placed", data, by, batch, (lookahead, inputs, False))


def shard_on_demand(
    data: Any, by: str, batch: int, lookahead: Any, inputs: Callable[..., Any] | None = None
) -> Any:
    """As `shard_placed`, and updates go to the server only when another rank uses the row.

        batches = het_tf.workers.shard_on_demand(samples, by="user", batch=128, lookahead=embed)

    Ranks know the rows that others use next, since each reads all of the stream. An update waits until then,
    merged with earlier ones; rows of one rank stay there. Reads are as fresh as with `shard_placed`, at a
    fifth fewer bytes if samples are placed well. At staleness 0 rows are not checked, either. A loop that is
    left in the middle of the stream needs `het_tf.flush(all_ranks=True)` on all ranks before the next
    training step or evaluation; `fit` of a distributed model does that.

    Args, returns and errors: as in `shard_placed`. Also:

    Raises:
      ValueError: Two layers share a table, a layer is called twice.
    """
    return _place("shard_on_demand", data, by, batch, (lookahead, inputs, True))


def _place(name: str, data: Any, by: str, batch: int, readers: Any) -> Any:
    if not backend.TENSORFLOW:
        raise backend.needs_tensorflow(f"het_tf.workers.{name}")
    from het_tf.ext.streams.python import placed
    from het_tf.ext.streams.python.on_demand import Readers

    return placed.place(data, by, batch, Readers(*readers))


def _is_a(data: Any, name: str) -> bool:
    """Whether data is of a class of a library, which then is imported."""
    library, *path = name.split(".")
    kind: Any = sys.modules.get(library)
    for part in path:
        kind = getattr(kind, part, None)
    return kind is not None and isinstance(data, kind)


def _shard_dataset(dataset: Any, rank: int, count: int, drop_remainder: bool) -> Any:
    tf = sys.modules["tensorflow"]
    length = int(dataset.cardinality())
    if length == tf.data.INFINITE_CARDINALITY or not drop_remainder:
        return dataset.shard(count, rank)
    if length >= 0:
        _check_rows(length, count)
        return dataset.take(length - length % count).shard(count, rank)

    # The length is unknown without a pass: take whole groups of one element per rank.
    def of_this_rank(*group: Any) -> Any:
        zipped = tf.data.Dataset.zip(group[0] if len(group) == 1 else group)
        return zipped.skip(rank).take(1)

    return dataset.window(count, drop_remainder=True).flat_map(of_this_rank)


def _shard_arrays(data: Any, rank: int, count: int, drop_remainder: bool) -> Any:
    flat = keras.tree.flatten(data)
    if not flat or not all(_is_array(one) for one in flat):
        remedy = "a tf.data.Dataset, or numpy arrays"
        if not backend.TENSORFLOW:
            remedy = "arrays, or a data set of PyTorch that has a length (of a DataLoader its `dataset`)"
        raise ValueError(
            f"data is a {type(data).__name__}, which het_tf.workers.shard does not support; give {remedy}"
        )
    rows = {len(array) for array in flat}
    if len(rows) > 1:
        raise ValueError(f"the arrays have {sorted(rows)} rows; they must have the same number")
    (length,) = rows
    _check_rows(length, count)
    index = _slice(length, rank, count, drop_remainder)
    return keras.tree.map_structure(lambda array: array[index], data)


def _is_array(x: Any) -> bool:
    of_backend = not backend.TENSORFLOW and keras.ops.is_tensor(x)
    return bool((of_backend or isinstance(x, np.ndarray)) and x.ndim)


def _slice(length: int, rank: int, count: int, drop_remainder: bool) -> slice:
    return slice(rank, length - length % count if drop_remainder else length, count)


def _check_rows(length: int, count: int) -> None:
    if length < count:
        raise ValueError(f"the data has {length} elements for {count} ranks; give every rank at least one")
