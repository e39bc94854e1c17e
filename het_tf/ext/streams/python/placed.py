"""`het_tf.workers.shard_placed`: places samples by the rules of placement.py and location.py."""

from collections.abc import Mapping
from typing import Any

from het_tf.ext.streams.python.agreement import Stream, require_equal
from het_tf.ext.streams.python.location import LOCATION, ByLocation
from het_tf.ext.streams.python.on_demand import Readers
from het_tf.ext.streams.python.placement import Placement, hashes
from het_tf.python.session import collective
from het_tf.python.session.native import tf


class ByField:
    """Places samples on workers by the hash of a field.

    Args:
      placement: Field, workers and batch.
      spec: Spec of global batches.

    Attributes:
      kind: The type of the field, which ranks compare.
      begin: The state of the rule at the begin of a pass.

    Raises:
      ValueError: The field is missing, or has not exactly one id a sample.
    """

    begin = ()

    def __init__(self, placement: Placement, spec: Any) -> None:
        self.kind = _check(features_of(spec), placement.by)
        self._placement = placement

    def owners(self, state: Any, batches: Any, element: Any) -> tuple[Any, Any, Any]:
        """Returns the owners of the samples of a global batch.

        Args:
          state: The state of the rule.
          batches: Number of earlier batches of the pass, int64.
          element: An element of the stream: the samples.

        Returns:
          The next state, a value of each sample for ranks to compare, uint64 `[M]`, and owners, int64 `[M]`.
        """
        values = features_of(element)[self._placement.by]
        hashed = hashes(tf.reshape(values, [-1]))
        return state, hashed, self._placement.owners(hashed)


def place(data: Any, by: str, batch: int, readers: Readers) -> Any:
    """Returns this rank's batches of a placed stream; arguments and errors as in `shard_placed`."""
    rank, ranks = collective.ranks()
    with collective.together("placement", "place its samples") as of_ranks:
        placement = Placement(by, ranks, batch)
        whole = _global_batches(data, placement.samples)
        spec = whole.element_spec
        rule = ByLocation(placement, spec, readers) if by == LOCATION else ByField(placement, spec)
        _refuse_sparse(spec)
        of_ranks.append({**placement.describe(), "type": rule.kind, "on demand": readers.on_demand})
    require_equal(of_ranks)
    stream = Stream()
    if placement.workers == 1:
        return readers.of_rank(whole)
    return _of_rank(whole, placement, rank, stream, rule, readers)


def _global_batches(data: Any, samples: int) -> Any:
    if isinstance(data, tf.data.Dataset):
        return data.batch(samples, drop_remainder=True)
    raise ValueError(
        f"data is a {type(data).__name__}, but samples of a tf.data.Dataset are placed; make one by "
        "tf.data.Dataset.from_tensor_slices"
    )


def features_of(element: Any) -> Any:
    """Returns the features of an element, which is them, or a tuple that begins with them."""
    return element[0] if isinstance(element, tuple) else element


def _check(features: Any, by: str) -> str:
    """Returns the type of the field in global batches with the spec `features`.

    Raises:
      ValueError: The field is missing, or has not exactly one id a sample.
    """
    if not isinstance(features, Mapping):
        raise ValueError(
            f"by is {by!r}, but the samples are neither dicts of features nor (features, label); the spec "
            f"of their features is {features}"
        )
    reasons = {name: _reason(one) for name, one in features.items()}
    if reasons.get(by, "missing"):
        fit = ", ".join(repr(name) for name, reason in reasons.items() if not reason) or "none"
        fault = f"which {reasons[by]}" if by in reasons else "which the data lacks"
        raise ValueError(f"by is {by!r}, {fault}; fields of one integer or string a sample: {fit}")
    return str(features[by].dtype.name)


def _refuse_sparse(spec: Any) -> None:
    for one in tf.nest.flatten(spec):
        if isinstance(one, tf.SparseTensorSpec):
            raise ValueError(
                f"a feature of the data is sparse ({one}), which cannot be split into samples; make it "
                "dense, or ragged by tf.RaggedTensor.from_sparse, before shard_placed"
            )


def _reason(spec: Any) -> str:
    """Returns why a field of a spec of batches cannot place samples; "" if it can."""
    if not isinstance(spec, tf.TensorSpec):
        return f"is {type(spec).__name__.removesuffix('Spec')}: several values a sample"
    if not (spec.dtype.is_integer or spec.dtype == tf.string):
        return f"is {spec.dtype.name}, a number, not an id"
    if spec.shape.rank not in (1, 2) or spec.shape[1:].num_elements() != 1:
        return f"has the shape {list(spec.shape[1:])} a sample; shard_placed comes before batch"
    return ""


def _of_rank(whole: Any, placement: Placement, rank: int, stream: Stream, rule: Any, readers: Readers) -> Any:
    def follow(state: Any, *element: Any) -> Any:
        noted, remembered = state
        element = element[0] if len(element) == 1 else element
        remembered, prints, owners = rule.owners(remembered, noted[1], element)
        return (stream.follow(noted, prints), remembered), (element, owners)

    def mine(element: Any, owners: Any) -> Any:
        return _samples(element, placement.order(owners)[rank])

    def mine_and_all(element: Any, owners: Any) -> Any:
        order = placement.order(owners)
        return _samples(element, order[rank]), _samples(element, tf.reshape(order, [-1]))

    begin = tf.nest.map_structure(tf.constant, (stream.begin, rule.begin))
    followed = whole.scan(begin, follow)
    take = mine_and_all if readers.on_demand else mine
    taken = followed.map(take, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    if readers.on_demand:
        return readers.of_all_ranks(taken, rank, placement.workers)
    return readers.of_rank(taken)


def _samples(element: Any, numbers: Any) -> Any:
    return tf.nest.map_structure(lambda column: tf.gather(column, numbers), element)
