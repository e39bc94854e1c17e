"""AUC within groups: does the model rank the items of one user correctly?"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from het_tf.python.metrics import inputs
from het_tf.python.metrics.samples import Samples
from het_tf.zoo.metrics import arguments

keras: Any = tf.keras
_HASH = [0x6865745F7466, 0x656D626564]  # key of the hash of strings, the same as for ids of tables


def grouped_auc(groups: Any, labels: Any, scores: Any, weights: Any) -> Any:
    """Returns sums for the exact AUC in each group over pairs of samples; equal scores count half.

        AUC_g = sum over positives i and negatives j of g: w_i w_j ([s_i > s_j] + [s_i = s_j] / 2)
                / (weight of the positives * weight of the negatives)

    Args:
      groups: int64 `[N]`.
      labels: 0 or 1, `[N]`.
      scores: float `[N]`.
      weights: float `[N]`, > 0.

    Returns:
      float64 `[4]`: the sum over groups with both classes of weight * AUC, the sum of their weights, their
      number, and the number of all groups. The weight of a group is the sum over its samples.
    """
    order = tf.argsort(scores)
    order = tf.gather(order, tf.argsort(tf.gather(groups, order), stable=True))
    groups, labels, scores, weights = (tf.gather(one, order) for one in (groups, labels, scores, weights))
    labels, weights = tf.cast(labels, tf.float64), tf.cast(weights, tf.float64)
    first = tf.ones([tf.minimum(tf.size(groups), 1)], tf.bool)  # empty without samples
    new_group = tf.concat([first, groups[1:] != groups[:-1]], 0)
    # A block: samples of one group with one score.
    new_block = new_group | tf.concat([first, scores[1:] != scores[:-1]], 0)
    block = tf.cumsum(tf.cast(new_block, tf.int32)) - 1
    group = tf.boolean_mask(tf.cumsum(tf.cast(new_group, tf.int32)) - 1, new_block)  # of each block
    positive = tf.math.segment_sum(weights * labels, block)
    negative = tf.math.segment_sum(weights * (1 - labels), block)
    below = tf.cumsum(negative, exclusive=True)
    begins = tf.boolean_mask(below, tf.boolean_mask(new_group, new_block))
    below -= tf.gather(begins, group)
    right = tf.math.segment_sum(positive * (below + negative / 2), group)
    positives, negatives = tf.math.segment_sum(positive, group), tf.math.segment_sum(negative, group)
    both = (positives > 0) & (negatives > 0)
    auc = tf.math.divide_no_nan(right, positives * negatives)
    of_group = tf.where(both, positives + negatives, 0.0)
    counts = [tf.math.count_nonzero(both), tf.size(both, tf.int64)]
    sums = [tf.reduce_sum(of_group * auc), tf.reduce_sum(of_group)]
    return tf.stack([*sums, *(tf.cast(one, tf.float64) for one in counts)])


class _Newest:
    """The newest result and its samples; hidden from Keras, which would take it for a state."""

    def __init__(self) -> None:
        with tf.init_scope(), tf.device("/CPU:0"):
            self.sums = tf.Variable(tf.zeros([4], tf.float64), trainable=False)
            self.count = tf.Variable(0, dtype=tf.int64, trainable=False)
            self.changes = tf.Variable(-1, dtype=tf.int64, trainable=False)


@keras.utils.register_keras_serializable(package="het_tf")
class GAUC(keras.metrics.Metric):
    """AUC within each group, averaged by the groups' impressions (Zhou et al., KDD 2018, equation 5).

        GAUC = sum over groups g of impressions_g * AUC_g / sum over groups g of impressions_g

    AUC_g is exact: over all pairs of a positive and a negative of the group; equal scores count half. With
    `sample_weight` a pair counts the product of its weights, and the impressions of a group are the sum of
    its weights. Groups without a positive or without a negative, such as groups of one sample, have no
    AUC: they are left out, and `left_out` counts them. Without any other group `result()` is NaN.

    In `compile` the metric finds the groups in an input of the model:

        model = het_tf.metrics.with_inputs(model)
        model.compile("adam", "binary_crossentropy", metrics=[het_tf.metrics.GAUC(by="user")])

    and in your own loop you give them: `gauc.update_state(y, scores, groups=users)`.

    It keeps all samples, 20 bytes each (24 with dtype "float64"). Called eagerly, as by `fit` and `evaluate`
    at the end, `result()` is exact. In a graph, as for the progress bar, it sorts anew when the samples have
    grown by a quarter, and returns the newest value until then. Only the order of predictions
    matters, so logits and probabilities give the same result.

    Args:
      by: The input of the model with the groups: a name if the inputs are a dict, else a number.
      name: As in any Keras metric.
      dtype: Type of the result and, if it is "float64", of the scores; else they are compared as float32.

    Call arguments of `update_state`:
      y_true: `[B]`, `[B, 1]`, 0 or 1.
      y_pred: The same number of values; any float type.
      sample_weight: None, `[B]` or `[B, 1]`, >= 0. Samples of weight 0 are ignored.
      groups: Integers or strings, `[B]` or `[B, 1]`; strings are compared by a hash of 63 bits. None: the
        input `by`.

    Raises:
      ValueError: No groups are given, or shapes do not fit.
      tf.errors.InvalidArgumentError: A label is neither 0 nor 1, a score NaN, a weight negative.
    """

    _direction = "up"  # which values are better, for Keras' callbacks

    def __init__(self, by: str | int | None = None, name: str = "gauc", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        if by is not None and (isinstance(by, bool) or not isinstance(by, (str, int))):
            raise ValueError(f"by is {by!r}; give the name or the number of an input of the model")
        self.by = by
        self._scores = tf.float64 if tf.as_dtype(self.dtype or "float32") == tf.float64 else tf.float32
        self.samples = Samples(tf.int64, tf.float32, self._scores, tf.float32)
        self._newest = _Newest()

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None, groups: Any = None) -> None:
        """Adds a batch; see the class."""
        if groups is None:
            if self.by is None:
                raise ValueError(
                    "GAUC has no groups; give update_state groups=, or the metric by= and the model "
                    "het_tf.metrics.with_inputs"
                )
            groups = inputs.current(self.by, "GAUC")
        labels, scores, weights = arguments.flat(y_true, y_pred, sample_weight)
        groups = arguments.spread(_ids(groups), y_pred, "groups")
        arguments.no_nan(scores)
        binary = tf.reduce_all(tf.equal(labels, 0) | tf.equal(labels, 1))
        tf.debugging.Assert(binary, ["y_true has a value other than 0 and 1; GAUC takes only these"])
        there = weights > 0
        self.samples.append(*(tf.boolean_mask(one, there) for one in (groups, labels, scores, weights)))

    def _sums(self) -> Any:
        """Returns `grouped_auc` of the samples; in a graph possibly of an earlier state."""
        newest, samples = self._newest, self.samples
        due = tf.not_equal(samples.changes, newest.changes)
        if not tf.executing_eagerly():
            due &= (samples.count < newest.count) | (4 * samples.count >= 5 * newest.count)

        def compute() -> Any:
            sums = grouped_auc(*samples.columns())
            newest.count.assign(samples.count)
            newest.changes.assign(samples.changes)
            newest.sums.assign(sums)
            return sums

        with tf.device("/CPU:0"):
            return tf.cond(due, compute, lambda: newest.sums.read_value())

    def result(self) -> Any:
        """Returns the GAUC of all samples so far, a scalar; see the class."""
        sums = self._sums()
        return arguments.as_result(self, sums[0] / sums[1])

    @property
    def groups(self) -> int:
        """Number of groups with a positive and a negative so far."""
        return int(self._sums()[2])

    @property
    def left_out(self) -> int:
        """Number of groups without a positive or without a negative so far."""
        sums = self._sums()
        return int(sums[3] - sums[2])

    def merge_state(self, metrics: Sequence[Any]) -> None:
        """Adds the samples of other metrics of this class."""
        for metric in metrics:
            self.samples.append(*metric.samples.columns())

    def reset_state(self) -> None:
        """Removes all samples."""
        self.samples.clear()

    def get_config(self) -> dict[str, Any]:
        """The metric's arguments."""
        return {**super().get_config(), "by": self.by}


def _ids(groups: Any) -> Any:
    ids = tf.convert_to_tensor(groups)
    if ids.dtype == tf.string:
        return tf.strings.to_hash_bucket_strong(ids, 2**63 - 1, _HASH)
    if not ids.dtype.is_integer:
        raise ValueError(f"groups are {ids.dtype.name}; give integers or strings (a float32 cannot hold ids)")
    return tf.cast(ids, tf.int64)
