"""`het_tf.horovod.shard(data, by=FIELD, batch=B)`: samples go to ranks by the rule of data/placement.py."""

import os
from collections.abc import Mapping
from typing import Any

from het_tf.python.data.pieces import Pieces
from het_tf.python.data.placement import Numpy, Placement, hashes
from het_tf.python.horovod.agreement import Stream, agree
from het_tf.python.horovod.planned import ON_DEMAND, Planned
from het_tf.python.session import collective
from het_tf.python.session.native import tf


class Tensors(Numpy):
    """The operations of the rule, on tensors."""

    bitwise_xor = staticmethod(tf.bitwise.bitwise_xor)
    concat = staticmethod(tf.concat)
    cumprod = staticmethod(tf.math.cumprod)
    cumsum = staticmethod(tf.cumsum)
    mask = staticmethod(tf.boolean_mask)
    minimum = staticmethod(tf.minimum)
    reshape = staticmethod(tf.reshape)
    right_shift = staticmethod(tf.bitwise.right_shift)
    sort = staticmethod(tf.sort)
    take = staticmethod(tf.gather)

    @staticmethod
    def arange(size: Any) -> Any:
        """0, 1, ... as int64."""
        return tf.range(tf.cast(size, tf.int64))

    @staticmethod
    def full(size: Any, value: Any) -> Any:
        """A vector of one value."""
        return tf.fill([size], tf.constant(value))

    @staticmethod
    def is_text(values: Any) -> bool:
        """Whether the values are strings."""
        return bool(values.dtype == tf.string)

    @staticmethod
    def row_sums(values: Any) -> Any:
        """Sums over the last axis."""
        return tf.reduce_sum(values, axis=-1)

    @staticmethod
    def searchsorted(values: Any, wanted: Any, side: str = "left") -> Any:
        """Where values would go, int64."""
        return tf.searchsorted(values, wanted, side=side, out_type=tf.int64)

    @staticmethod
    def signed(words: Any) -> Any:
        """Words below 2^63 as int64."""
        return tf.cast(words, tf.int64)

    @staticmethod
    def size(values: Any) -> Any:
        """How many there are."""
        return tf.size(values, tf.int64)

    @staticmethod
    def text(values: Any) -> tuple[Any, Any]:
        """The bytes of strings, 0 behind their ends, and their lengths."""
        lengths = tf.strings.length(values)
        longest = tf.maximum(tf.reduce_max(lengths), 1)
        letters = tf.io.decode_raw(values, tf.uint8, fixed_length=longest)
        return tf.cast(letters, tf.uint64), tf.cast(lengths, tf.uint64)

    @staticmethod
    def width(values: Any) -> Any:
        """The size of the last of two axes."""
        return tf.shape(values)[1]

    @staticmethod
    def words(values: Any) -> Any:
        """Integers as uint64, modulo 2^64."""
        return tf.bitcast(tf.cast(values, tf.int64), tf.uint64)


def place(data: Any, by: str, batch: int | None, planned: Planned) -> Any:
    """This rank's batches of a placed stream; arguments and errors as of `shard`."""
    hvd = collective.required("het_tf.horovod.shard")
    with agree() as say:
        if batch is None:
            raise ValueError("by= needs batch=, the samples that a rank takes of each global batch")
        placement = Placement(by, hvd.size(), batch)
        whole = _global_batches(data, placement.samples)
        kind = _check(whole.element_spec, by)
        say({**placement.describe(), "type": kind, "sync": planned.sync})
    stream = Stream(placement)
    if placement.workers == 1:
        return planned.of_rank(whole)
    return _of_rank(whole, placement, hvd.rank(), stream, planned).prefetch(tf.data.AUTOTUNE)


def piece(place: str | os.PathLike[str], batch: int | None) -> str:
    """This rank's file of a directory of `het-data shard`; errors as of `shard`."""
    hvd = collective.required("het_tf.horovod.shard")
    with agree() as say:
        if batch is not None:
            raise ValueError(f"batch is {batch}, and {place} is placed already; read it in its own batches")
        pieces = Pieces.read(place)
        if pieces.placement.workers != hvd.size():
            raise ValueError(
                f"{pieces.path} was placed for {pieces.placement.workers} workers, and there are "
                f"{hvd.size()} ranks; place it anew by het-data shard --workers {hvd.size()}"
            )
        file = pieces.file(hvd.rank())
        say({**pieces.placement.describe(), "id of the files": pieces.id})
    return str(file)


def _global_batches(data: Any, samples: int) -> Any:
    if isinstance(data, tf.data.Dataset):
        return data.batch(samples, drop_remainder=True)
    if hasattr(data, "to_tf"):  # a part of a data set of het_tf.data
        return data.to_tf(samples, drop_remainder=True)
    raise ValueError(
        f"data is a {type(data).__name__}, and by= places the samples of a tf.data.Dataset, or of a part of "
        "a data set of het_tf.data; make one by tf.data.Dataset.from_tensor_slices"
    )


def _features(element: Any) -> Any:
    return element[0] if isinstance(element, tuple) else element


def _check(spec: Any, by: str) -> str:
    """The type of the field in global batches of a spec.

    Raises:
      ValueError: There is no such field, it is none of one id a sample, or a feature cannot be taken apart.
    """
    features = _features(spec)
    if not isinstance(features, Mapping):
        raise ValueError(
            f"by is {by!r}, and the samples are no dict of features, nor (features, label); their spec is "
            f"{spec}"
        )
    reasons = {name: _reason(one) for name, one in features.items()}
    if reasons.get(by, "missing"):
        fit = ", ".join(repr(name) for name, reason in reasons.items() if not reason) or "none"
        fault = f"which {reasons[by]}" if by in reasons else "which the data has not"
        raise ValueError(f"by is {by!r}, {fault}; fields of one integer or string a sample: {fit}")
    for one in tf.nest.flatten(spec):
        if isinstance(one, tf.SparseTensorSpec):
            raise ValueError(
                f"a feature of the data is sparse ({one}), and samples are not taken out of one; make it "
                "dense, or ragged by tf.RaggedTensor.from_sparse, before shard"
            )
    return str(features[by].dtype.name)


def _reason(spec: Any) -> str:
    """Why samples are not placed by a field of a spec of batches; "" if they can be."""
    if not isinstance(spec, tf.TensorSpec):
        return f"is {type(spec).__name__.removesuffix('Spec')}: several values a sample"
    if not (spec.dtype.is_integer or spec.dtype == tf.string):
        return f"is {spec.dtype.name}, a number and no id"
    if spec.shape.rank not in (1, 2) or spec.shape[1:].num_elements() != 1:
        return f"has the shape {list(spec.shape[1:])} a sample; shard comes before batch"
    return ""


def _of_rank(whole: Any, placement: Placement, rank: int, stream: Stream, planned: Planned) -> Any:
    def follow(state: Any, *element: Any) -> Any:
        element = element[0] if len(element) == 1 else element
        hashed = hashes(tf.reshape(_features(element)[placement.by], [-1]), Tensors)
        return stream.follow(state, hashed), (element, placement.owners(hashed, Tensors))

    def mine(element: Any, owners: Any) -> Any:
        return _samples(element, placement.order(owners, Tensors)[rank])

    def mine_and_all(element: Any, owners: Any) -> Any:
        order = placement.order(owners, Tensors)
        return _samples(element, order[rank]), _samples(element, tf.reshape(order, [-1]))

    followed = whole.scan(tuple(map(tf.constant, stream.begin)), follow)
    take = mine_and_all if planned.sync == ON_DEMAND else mine
    taken = followed.map(take, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    if planned.sync == ON_DEMAND:
        return planned.on_demand(taken, rank, placement.workers)
    return planned.of_rank(taken)


def _samples(element: Any, numbers: Any) -> Any:
    return tf.nest.map_structure(lambda column: tf.gather(column, numbers), element)
