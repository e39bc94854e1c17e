"""Metrics of ranked lists: recall@k, NDCG@k and MRR.

Items with equal scores have no order. A list then counts with the mean over all their orders (McSherry and
Najork, ECIR 2008), in closed form, so that results depend neither on a sort nor on chance.
"""

from typing import Any, Literal

import numpy as np
import tensorflow as tf

from het_tf.python.checks import one_of, whole_or_none
from het_tf.zoo.metrics import arguments

keras: Any = tf.keras


def expected_gains(scores: Any, gains: Any, k: int) -> Any:
    """Returns the gain at each of the first k places, averaged over the orders of items with equal scores.

    Args:
      scores: float `[B, items]`.
      gains: float64 `[B, items]`.
      k: At most the number of items.

    Returns:
      float64 `[B, k]`.
    """
    top, places = tf.math.top_k(scores, k)
    gains_of_top = tf.gather(gains, places, batch_dims=1)
    # Items equal to one within the first k are there, too, except items equal to the last one.
    descending = -top
    begin = tf.searchsorted(descending, descending, "left")
    end = tf.searchsorted(descending, descending, "right")
    before = tf.pad(tf.cumsum(gains_of_top, axis=1), [[0, 0], [1, 0]])
    of_equal = tf.gather(before, end, batch_dims=1) - tf.gather(before, begin, batch_dims=1)
    inner = of_equal / tf.cast(end - begin, tf.float64)
    last = top[:, -1:]
    equal = tf.cast(tf.equal(scores, last), tf.float64)
    outer = tf.reduce_sum(gains * equal, axis=1, keepdims=True) / tf.reduce_sum(equal, axis=1, keepdims=True)
    return tf.where(tf.equal(top, last), outer, inner)


def expected_reciprocal_rank(scores: Any, relevant: Any, k: Any) -> Any:
    """Returns 1 / rank of the first relevant item, 0 beyond k, averaged over orders of equal scores.

    If t items have one score, r of them relevant, and s items are above, the j-th is the first relevant one
    in C(t - j, r - 1) of C(t, r) orders, and its rank is s + j.

    Args:
      scores: float `[B, items]`.
      relevant: bool `[B, items]`.
      k: int32 scalar.

    Returns:
      float64 `[B]`; 0 without a relevant item.
    """
    best = tf.reduce_max(tf.where(relevant, scores, scores.dtype.min), axis=1, keepdims=True)

    def number(where: Any) -> Any:
        return tf.cast(tf.math.count_nonzero(where, axis=1, keepdims=True), tf.float64)

    above, tied = number(scores > best), number(tf.equal(scores, best))
    right = number(tf.equal(scores, best) & relevant)
    # As many columns as the largest tie of any list needs.
    widest = tf.maximum(tf.reduce_max(tied - right), 0) + 1
    j = tf.range(1, widest + 1, dtype=tf.float64)[None]
    possible = j <= tied - right + 1
    inside = tf.where(possible, j, 1.0)

    def log_choose(n: Any, m: Any) -> Any:
        return tf.math.lgamma(n + 1) - tf.math.lgamma(m + 1) - tf.math.lgamma(n - m + 1)

    share = tf.exp(log_choose(tied - inside, right - 1) - log_choose(tied, right))
    counted = possible & (above + j <= tf.cast(k, tf.float64)) & (right > 0)
    return tf.reduce_sum(tf.where(counted, share / (above + inside), 0.0), axis=1)


class _OfLists(keras.metrics.Metric):
    """A weighted mean over lists of a subclass's values; see `RecallAtK` for the shared arguments."""

    _direction = "up"  # which values are better, for Keras' callbacks

    def __init__(self, k: int | None, sparse: bool, name: str, dtype: Any) -> None:
        super().__init__(name=name, dtype=dtype)
        self.k = whole_or_none("k", k)
        self.sparse = bool(sparse)
        self._total = arguments.summed(self, "total")
        self._weights = arguments.summed(self, "weights")
        self._left_out = arguments.summed(self, "left_out")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None) -> None:
        """Adds a batch of lists; see the class."""
        scores, relevance = self._lists(y_true, y_pred, mask)
        values = self._values(scores, relevance)
        counted = tf.reduce_any(relevance > 0, axis=1)
        weights = tf.cast(counted, tf.float64)
        if sample_weight is not None:
            weights *= _one_a_list(sample_weight, y_pred)
        self._total.assign_add(tf.reduce_sum(tf.where(counted, weights * values, 0.0)))
        self._weights.assign_add(tf.reduce_sum(weights))
        self._left_out.assign_add(tf.reduce_sum(tf.cast(~counted, tf.float64)))

    def _values(self, scores: Any, relevance: Any) -> Any:
        """Returns the values to average, float64 `[B]`, for lists with a relevant item."""
        raise NotImplementedError

    def _lists(self, y_true: Any, y_pred: Any, mask: Any) -> tuple[Any, Any]:
        """Returns scores (padding below all others) and relevance (float64, padding 0); `[B, items]`."""
        if mask is None:
            mask = getattr(y_pred, "_keras_mask", None)
        scores, labels = tf.convert_to_tensor(y_pred), tf.convert_to_tensor(y_true)
        if scores.dtype not in (tf.float32, tf.float64):
            scores = tf.cast(scores, tf.float32)
        if scores.shape.rank is not None and scores.shape.rank != 2:
            raise ValueError(f"y_pred has shape {scores.shape}; give scores [batch, items]")
        arguments.no_nan(scores)
        scores, labels = self._with_k(scores, labels)
        if self.sparse:
            labels = _of_index(labels, scores)
        elif not labels.shape.is_compatible_with(scores.shape):
            raise ValueError(
                f"y_true has shape {labels.shape}, but y_pred {scores.shape}; give a label for each score, "
                "or with sparse=True the number of the one relevant item of each list"
            )
        there = labels >= 0
        if mask is not None:
            mask = tf.cast(mask, tf.bool)
            if not mask.shape.is_compatible_with(scores.shape):
                raise ValueError(
                    f"mask has shape {mask.shape}, but y_pred {scores.shape}; give one value a score"
                )
            there &= mask
        lowest = tf.constant(-np.inf, scores.dtype)
        return (
            tf.where(there, tf.maximum(scores, scores.dtype.min), lowest),
            tf.where(there, tf.cast(labels, tf.float64), 0.0),
        )

    def _with_k(self, scores: Any, labels: Any) -> tuple[Any, Any]:
        """Returns both after a check that lists have at least k items."""
        if self.k is None:
            return scores, labels
        items = scores.shape[-1]
        if items is not None and self.k > items:
            raise ValueError(f"k is {self.k}, but the lists have {items} items; give a k of at most {items}")
        found = tf.shape(scores)[-1]
        words = [f"k is {self.k}, but the lists have", found, "items; give a smaller k"]
        with tf.control_dependencies([tf.debugging.Assert(self.k <= found, words)]):
            return tf.identity(scores), tf.identity(labels)

    def result(self) -> Any:
        """Returns the mean over all lists so far, a scalar."""
        mean = tf.convert_to_tensor(self._total) / tf.convert_to_tensor(self._weights)
        return arguments.as_result(self, mean)

    @property
    def left_out(self) -> int:
        """Number of lists without a relevant item so far."""
        return int(self._left_out.numpy())

    def get_config(self) -> dict[str, Any]:
        """The metric's arguments."""
        return {**super().get_config(), "k": self.k, "sparse": self.sparse}


def _of_index(labels: Any, scores: Any) -> Any:
    """Returns the relevance of lists with one relevant item, from its number `[B]` or `[B, 1]`."""
    if not labels.dtype.is_integer:
        raise ValueError(
            f"y_true is {labels.dtype.name}; with sparse=True give the number of the relevant item, as an "
            "integer [batch]"
        )
    if labels.shape.rank not in (None, 1) and (labels.shape.rank, labels.shape[-1]) != (2, 1):
        raise ValueError(f"y_true has shape {labels.shape}; with sparse=True give integers [batch]")
    labels, items = tf.reshape(labels, [-1]), tf.cast(tf.shape(scores)[-1], labels.dtype)
    tf.debugging.Assert(
        tf.reduce_all(labels < items),
        ["y_true has", tf.reduce_max(labels), "and the lists have", items, "items, with numbers from 0 on"],
    )
    return tf.one_hot(labels, tf.shape(scores)[-1], dtype=tf.float64)


def _one_a_list(sample_weight: Any, y_pred: Any) -> Any:
    weights = tf.convert_to_tensor(sample_weight)
    if weights.shape.rank not in (None, 0, 1) and (weights.shape.rank, weights.shape[-1]) != (2, 1):
        raise ValueError(f"sample_weight has shape {weights.shape}; give one weight a list, [batch]")
    weights = tf.cast(tf.reshape(weights, [-1]), tf.float64)
    tf.debugging.assert_non_negative(weights, "sample_weight has a negative value; give numbers >= 0")
    return tf.broadcast_to(weights, [tf.shape(y_pred)[0]])


@keras.utils.register_keras_serializable(package="het_tf")
class RecallAtK(_OfLists):
    """Share of the relevant items of a list that are within its first k, averaged over lists.

        recall@k = relevant items within the first k / all relevant items

    The first k are by score; items with equal scores count with the mean over their orders. Lists without a
    relevant item are left out, and `left_out` counts them; without any other list `result()` is NaN. With one
    relevant item a list, this is the hit rate.

    **Padding.** An item is padding if its label is negative or its mask is False: the argument
    `mask`, or the Keras mask of y_pred. k counts the width of the lists, including padding.

    Args:
      k: 1 up to the number of items.
      sparse: False: y_true has the relevance of every item. True: y_true has the number of the one relevant
        item of each list, as for SparseCategoricalCrossentropy; negative: none.
      name, dtype: As in any Keras metric; states are always float64.

    Call arguments of `update_state`:
      y_true: `[B, items]`: relevant where > 0; with `sparse` integers `[B]` or `[B, 1]`.
      y_pred: Scores `[B, items]`, higher is better; any float type, logits or probabilities alike.
      sample_weight: None, or a weight >= 0 for each list, `[B]` or `[B, 1]`.
      mask: None, or bool `[B, items]`.

    Raises:
      ValueError: k is larger than the number of items (if that is known when a graph is made), or shapes do
        not fit.
      tf.errors.InvalidArgumentError: The same if sizes are known later; a score is NaN, a weight negative,
        or an index of y_true out of range.
    """

    def __init__(self, k: int, sparse: bool = False, name: str | None = None, dtype: Any = None) -> None:
        super().__init__(k, sparse, name or f"recall_at_{k}", dtype)

    def _values(self, scores: Any, relevance: Any) -> Any:
        relevant = tf.cast(relevance > 0, tf.float64)
        found = tf.reduce_sum(expected_gains(scores, relevant, self.k), axis=1)  # type: ignore[arg-type]
        return found / tf.reduce_sum(relevant, axis=1)


@keras.utils.register_keras_serializable(package="het_tf")
class NDCG(_OfLists):
    """Normalised discounted cumulative gain of the first k items, averaged over lists.

        DCG@k = sum over places i = 1..k of gain(relevance of the item at i) / log2(1 + i)
        NDCG@k = DCG@k / DCG@k of the best order

    The order is by score; items with equal scores count with the mean over their orders, as in
    scikit-learn's `ndcg_score`. Lists without a relevant item are left out, and `left_out` counts them;
    without any other list `result()` is NaN. Padding, arguments and errors: as in `RecallAtK`; relevance
    may be graded.

    Args:
      k: 1 up to the number of items.
      gain: "exponential": 2^relevance - 1 (Burges et al., ICML 2005). "linear": the relevance (Järvelin and
        Kekäläinen, TOIS 2002; scikit-learn). The same for relevances of 0 and 1.
      sparse: As in `RecallAtK`.
      name, dtype: As in any Keras metric; states are always float64.
    """

    def __init__(
        self,
        k: int,
        gain: Literal["exponential", "linear"] = "exponential",
        sparse: bool = False,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(k, sparse, name or f"ndcg_at_{k}", dtype)
        one_of("gain", gain, ("exponential", "linear"))
        self.gain = gain

    def _values(self, scores: Any, relevance: Any) -> Any:
        gains = tf.math.expm1(relevance * np.log(2.0)) if self.gain == "exponential" else relevance
        discounts = 1 / np.log2(np.arange(2, self.k + 2))  # type: ignore[operator]
        dcg = tf.reduce_sum(expected_gains(scores, gains, self.k) * discounts, axis=1)  # type: ignore[arg-type]
        return dcg / tf.reduce_sum(tf.math.top_k(gains, self.k)[0] * discounts, axis=1)

    def get_config(self) -> dict[str, Any]:
        """The metric's arguments."""
        return {**super().get_config(), "gain": self.gain}


@keras.utils.register_keras_serializable(package="het_tf")
class MeanReciprocalRank(_OfLists):
    """Mean reciprocal rank: 1 / place of the first relevant item of a list, averaged over lists.

    The place is by score; items with equal scores count with the mean over their orders. Lists without a
    relevant item are left out, and `left_out` counts them; without any other list `result()` is NaN.
    Padding, arguments and errors: as in `RecallAtK`.

    Args:
      k: None, or a place beyond which a list counts 0.
      sparse: As in `RecallAtK`.
      name, dtype: As in any Keras metric; states are always float64.
    """

    def __init__(
        self, k: int | None = None, sparse: bool = False, name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(k, sparse, name or ("mrr" if k is None else f"mrr_at_{k}"), dtype)

    def _values(self, scores: Any, relevance: Any) -> Any:
        return expected_reciprocal_rank(scores, relevance > 0, self.k or tf.shape(scores)[1])
