"""AUC within groups: does the model rank the items of one user correctly?"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from het_tf.python import ids
from het_tf.python.backend import keras
from het_tf.python.metrics import inputs
from het_tf.python.metrics.programs import exact, is_traced, on_host
from het_tf.python.metrics.samples import Samples
from het_tf.zoo.metrics import arguments

ops = keras.ops


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
    order = np.argsort(scores)
    order = order[np.argsort(groups[order], kind="stable")]
    groups, labels, scores, weights = (one[order] for one in (groups, labels, scores, weights))
    labels, weights = labels.astype(np.float64), weights.astype(np.float64)
    first = np.ones(min(len(groups), 1), bool)  # empty without samples
    new_group = np.concatenate([first, groups[1:] != groups[:-1]])
    # A block: samples of one group with one score.
    new_block = new_group | np.concatenate([first, scores[1:] != scores[:-1]])
    block, group = np.cumsum(new_block) - 1, np.cumsum(new_group)[new_block] - 1  # of samples, of blocks
    positive = np.bincount(block, weights * labels)
    negative = np.bincount(block, weights * (1 - labels))
    below = np.concatenate([np.zeros(len(first)), np.cumsum(negative)[:-1]])
    below -= below[new_group[new_block]][group]
    right = np.bincount(group, positive * (below + negative / 2))
    positives, negatives = np.bincount(group, positive), np.bincount(group, negative)
    both = (positives > 0) & (negatives > 0)
    auc = right[both] / (positives * negatives)[both]
    of_group = (positives + negatives)[both]
    return np.array([(of_group * auc).sum(), of_group.sum(), both.sum(), both.size])


@keras.utils.register_keras_serializable(package="het_tf")
class GAUC(arguments.Sums):
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
    at the end, `result()` is exact. In a graph or a program of JAX, as for the progress bar, it sorts anew
    when the samples have grown by a quarter, and returns the newest value until then. Only the order of
    predictions matters, so logits and probabilities give the same result.

    Args:
      by: The input of the model with the groups: a name if the inputs are a dict, else a number.
      name: As in any Keras metric.
      dtype: Type of the result and, if it is "float64", of the scores; else they are compared as float32.

    Call arguments of `update_state`:
      y_true: `[B]`, `[B, 1]`, 0 or 1.
      y_pred: The same number of values; any float type.
      sample_weight: None, `[B]` or `[B, 1]`, >= 0. Samples of weight 0 are ignored.
      groups: Integers or strings, `[B]` or `[B, 1]`; strings are compared by a hash of 63 bits, and are
        tensors on TensorFlow alone. None: the input `by`.

    Raises:
      ValueError: No groups are given, or shapes do not fit. A label is neither 0 nor 1, a score NaN, a
        weight negative: on TensorFlow tf.errors.InvalidArgumentError, in a step that JAX has compiled
        JaxRuntimeError.
    """

    _direction = "up"  # which values are better, for Keras' callbacks

    def __init__(self, by: str | int | None = None, name: str = "gauc", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        if by is not None and (isinstance(by, bool) or not isinstance(by, (str, int))):
            raise ValueError(f"by is {by!r}; give the name or the number of an input of the model")
        self.by = by
        count = self.sum("count", "int64")
        scores = np.float64 if self.dtype == "float64" else np.float32
        self.samples = Samples(count, np.int64, np.float32, scores, np.float32)
        self._newest: tuple[int, int, Any] = (-1, 0, None)  # changes and number of samples, and their sums

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None, groups: Any = None) -> None:
        """Adds a batch; see the class."""
        if groups is None:
            if self.by is None:
                raise ValueError(
                    "GAUC has no groups; give update_state groups=, or the metric by= and the model "
                    "het_tf.metrics.with_inputs"
                )
            groups = inputs.current(self.by, "GAUC")
        self._add(y_true, y_pred, sample_weight, groups)

    @exact
    def _add(self, y_true: Any, y_pred: Any, sample_weight: Any, groups: Any) -> None:
        labels, scores, weights = arguments.flat(y_true, y_pred, sample_weight)
        groups = arguments.spread(_ids(groups), arguments.tensor(y_pred), "groups")
        count = self.samples.count
        count.assign(on_host(self._put, "int64", count, groups, labels, scores, weights))

    def _put(self, count: Any, groups: Any, labels: Any, scores: Any, weights: Any) -> int:
        """Keeps a batch behind the first samples; returns their number."""
        if np.isnan(scores).any():
            raise ValueError(arguments.NO_NAN)
        if not ((labels == 0) | (labels == 1)).all():
            raise ValueError("y_true has a value other than 0 and 1; GAUC takes only these")
        if not (weights >= 0).all():
            raise ValueError(arguments.NO_NEGATIVE)
        there = weights > 0
        return self.samples.put(int(count), *(one[there] for one in (groups, labels, scores, weights)))

    def _sums(self, count: Any, exactly: bool = True) -> Any:
        """Returns `grouped_auc` of the first samples; or possibly of fewer, if that was computed before."""
        changes, before, sums = self._newest
        due = (self.samples.changes, int(count)) != (changes, before)
        if not exactly:
            due &= count < before or 4 * count >= 5 * before
        if due:
            sums = grouped_auc(*self.samples.first(int(count)))
            self._newest = self.samples.changes, int(count), sums
        return sums

    @exact
    def result(self) -> Any:
        """Returns the GAUC of all samples so far, a scalar; see the class."""
        count = ops.convert_to_tensor(self.samples.count)
        exactly = not is_traced(count)

        def ratio(count: Any) -> Any:
            sums = self._sums(count, exactly)
            return sums[0] / sums[1] if sums[1] else np.nan

        return self.as_result(on_host(ratio, "float64", count))

    @property
    def groups(self) -> int:
        """Number of groups with a positive and a negative so far."""
        return int(self._sums(int(self.samples.count.value))[2])

    @property
    def left_out(self) -> int:
        """Number of groups without a positive or without a negative so far."""
        sums = self._sums(int(self.samples.count.value))
        return int(sums[3] - sums[2])

    def merge_state(self, metrics: Sequence[Any]) -> None:
        """Adds the samples of other metrics of this class."""
        for metric in metrics:
            self.samples.append(*metric.samples.columns())

    def get_config(self) -> dict[str, Any]:
        """The metric's arguments."""
        return {**super().get_config(), "by": self.by}


def _ids(groups: Any) -> Any:
    groups = ids.to_tensor(groups, "groups")
    dtype = arguments.dtype_of(groups)
    if not dtype.startswith(("int", "uint", "string")):
        raise ValueError(f"groups are {dtype}; give integers or strings (a float32 cannot hold ids)")
    return ids.as_int64(groups)
