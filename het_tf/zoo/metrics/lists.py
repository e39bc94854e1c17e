"""Metrics of ranked lists: recall@k, NDCG@k and MRR.

Items with equal scores have no order. A list then counts with the mean over all their orders (McSherry and
Najork, ECIR 2008), in closed form, so that results depend neither on a sort nor on chance.
"""

from typing import Any, Literal

import numpy as np

from het_tf.python.backend import keras
from het_tf.python.checks import one_of, whole_or_none
from het_tf.python.metrics.programs import demand, exact, length, mask_of, products
from het_tf.zoo.metrics import arguments
from het_tf.zoo.metrics.arguments import constant, dtype_of, shape_of, tensor

ops = keras.ops


def expected_gains(scores: Any, gains: Any, k: int) -> Any:
    """Returns the gain at each of the first k places, averaged over the orders of items with equal scores.

    Args:
      scores: float `[B, items]`.
      gains: float64 `[B, items]`.
      k: At most the number of items.

    Returns:
      float64 `[B, k]`.
    """
    top, places = ops.top_k(scores, k)
    number = ops.arange(ops.shape(scores)[0], dtype="int32")[:, None]  # of each list
    gains_of_top = ops.take(ops.reshape(gains, [-1]), places + number * ops.shape(scores)[1])
    # Items equal to one within the first k are there, too, except items equal to the last one. They are a
    # run, and have its mean.
    runs = ops.pad(ops.cumsum(ops.cast(top[:, 1:] != top[:, :-1], "int32"), axis=1), [[0, 0], [1, 0]])
    runs = runs + k * number
    pairs = ops.reshape(ops.stack([gains_of_top, ops.ones_like(gains_of_top)], axis=-1), [-1, 2])
    sums = ops.segment_sum(pairs, ops.reshape(runs, [-1]), num_segments=ops.shape(scores)[0] * k + 1)
    inner = ops.take(sums[:, 0] / sums[:, 1], runs)
    last = top[:, -1:]
    equal = ops.cast(scores == last, "float64")
    outer = ops.sum(gains * equal, axis=1, keepdims=True) / ops.sum(equal, axis=1, keepdims=True)
    return ops.where(top == last, outer, inner)


def expected_reciprocal_rank(scores: Any, relevant: Any, k: float) -> Any:
    """Returns 1 / rank of the first relevant item, 0 beyond k, averaged over orders of equal scores.

    If t items have one score, r of them relevant, and s items are above, the j-th is the first relevant one
    in C(t - j, r - 1) of C(t, r) orders, and its rank is s + j. That share is r / t for j = 1, and falls by
    (t - j - r + 2) / (t - j + 1) to the next.

    Args:
      scores: float `[B, items]`.
      relevant: bool `[B, items]`.
      k: A number.

    Returns:
      float64 `[B]`; 0 without a relevant item.
    """
    lowest = constant(float(np.finfo(dtype_of(scores)).min), scores)
    best = ops.max(ops.where(relevant, scores, lowest), axis=1, keepdims=True, initial=-np.inf)

    def number(where: Any) -> Any:
        return ops.sum(ops.cast(where, "float64"), axis=1, keepdims=True)

    above, tied = number(scores > best), number(scores == best)
    right = number((scores == best) & relevant)
    # As many columns as the largest tie of any list needs.
    widest = length(ops.max(tied - right, initial=0.0) + 1, scores.shape[1])
    j = ops.cast(ops.arange(widest, dtype="int32"), "float64")[None] + 1
    possible = j <= tied - right + 1
    factors = ops.where(j == 1, right, tied - j - right + 2) / ops.where(
        possible & (right > 0), tied - j + 1, 1.0
    )
    shares = products(ops.where(possible, factors, 0.0))
    counted = possible & (above + j <= k) & (right > 0)
    return ops.sum(ops.where(counted, shares / (above + j), 0.0), axis=1)


class _OfLists(arguments.Sums):
    """A weighted mean over lists of a subclass's values; see `RecallAtK` for the shared arguments."""

    _direction = "up"  # which values are better, for Keras' callbacks

    def __init__(self, k: int | None, sparse: bool, name: str, dtype: Any) -> None:
        super().__init__(name=name, dtype=dtype)
        self.k = whole_or_none("k", k)
        self.sparse = bool(sparse)
        self._total = self.sum("total")
        self._weights = self.sum("weights")
        self._left_out = self.sum("left_out")

    @exact
    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None) -> None:
        """Adds a batch of lists; see the class."""
        scores, relevance, weights = self._lists(y_true, y_pred, sample_weight, mask)
        values = self._values(scores, relevance)
        counted = ops.any(relevance > 0, axis=1)
        weights = weights * ops.cast(counted, "float64")
        self._total.assign_add(ops.sum(ops.where(counted, weights * values, 0.0)))
        self._weights.assign_add(ops.sum(weights))
        self._left_out.assign_add(ops.sum(ops.cast(~counted, "float64")))

    def _values(self, scores: Any, relevance: Any) -> Any:
        """Returns the values to average, float64 `[B]`, for lists with a relevant item."""
        raise NotImplementedError

    def _lists(self, y_true: Any, y_pred: Any, sample_weight: Any, mask: Any) -> tuple[Any, Any, Any]:
        """Returns scores (padding last) and relevance (padding 0), `[B, items]`, and weights, `[B]`."""
        if mask is None:
            mask = mask_of(y_pred)
        scores, labels = tensor(y_pred), tensor(y_true)
        if dtype_of(scores) not in ("float32", "float64"):
            scores = ops.cast(scores, "float32")
        shape = shape_of(scores)
        if shape is not None and len(shape) != 2:
            raise ValueError(f"y_pred has shape {shape}; give scores [batch, items]")
        weights = _one_a_list(sample_weight, scores)
        rules = [
            (~ops.any(ops.isnan(scores)), arguments.NO_NAN),
            arguments.no_negative(weights),
            *self._of_k(scores),
        ]
        if self.sparse:
            labels, rule = _of_index(labels, scores)
            rules.append(rule)
        elif not _fits(labels, scores):
            raise ValueError(
                f"y_true has shape {shape_of(labels)}, but y_pred {shape}; give a label for each score, "
                "or with sparse=True the number of the one relevant item of each list"
            )
        scores, labels, weights = demand([scores, labels, weights], *rules)
        there = labels >= 0
        if mask is not None:
            mask = ops.cast(mask, "bool")
            if not _fits(mask, scores):
                raise ValueError(
                    f"mask has shape {shape_of(mask)}, but y_pred {shape}; give one value a score"
                )
            there = there & mask
        lowest = constant(float(np.finfo(dtype_of(scores)).min), scores)
        return (
            ops.where(there, ops.where(scores < lowest, lowest, scores), -np.inf),
            ops.where(there, ops.cast(labels, "float64"), 0.0),
            weights,
        )

    def _of_k(self, scores: Any) -> list[tuple[Any, ...]]:
        """Returns the rule that lists have at least k items. ValueError: it is known that they have fewer."""
        items = None if shape_of(scores) is None else scores.shape[-1]
        if self.k is None or (items is not None and self.k <= items):
            return []
        if items is not None:
            raise ValueError(f"k is {self.k}, but the lists have {items} items; give a k of at most {items}")
        found = ops.shape(scores)[-1]
        return [(found >= self.k, f"k is {self.k}, but the lists have {{}} items; give a smaller k", found)]

    @exact
    def result(self) -> Any:
        """Returns the mean over all lists so far, a scalar."""
        return self.as_result(ops.convert_to_tensor(self._total) / ops.convert_to_tensor(self._weights))

    @property
    def left_out(self) -> int:
        """Number of lists without a relevant item so far."""
        return int(self._left_out.value)

    def get_config(self) -> dict[str, Any]:
        """The metric's arguments."""
        return {**super().get_config(), "k": self.k, "sparse": self.sparse}


def _fits(values: Any, like: Any) -> bool:
    """Whether a tensor may have the shape of another one."""
    one, other = shape_of(values), shape_of(like)
    if one is None or other is None:
        return True
    return len(one) == len(other) and all(
        None in pair or pair[0] == pair[1] for pair in zip(one, other, strict=True)
    )


def _flat(values: Any, message: str) -> Any:
    """Returns one value a list, from `[B]` or `[B, 1]`. ValueError with the message: another shape."""
    shape = shape_of(values)
    if shape is not None and len(shape) > 1 and (len(shape) != 2 or shape[1] != 1):
        raise ValueError(message.format(shape))
    return ops.reshape(values, [-1])


def _of_index(labels: Any, scores: Any) -> tuple[Any, tuple[Any, ...]]:
    """Returns the relevance of lists by their relevant item's number, `[B]` or `[B, 1]`, and its rule."""
    if not dtype_of(labels).startswith(("int", "uint")):
        raise ValueError(
            f"y_true is {dtype_of(labels)}; with sparse=True give the number of the relevant item, as an "
            "integer [batch]"
        )
    labels = ops.cast(_flat(labels, "y_true has shape {}; with sparse=True give integers [batch]"), "int64")
    items = ops.cast(ops.shape(scores)[-1], "int64")
    message = "y_true has {} and the lists have {} items, with numbers from 0 on"
    relevance = ops.cast(labels[:, None] == ops.arange(ops.shape(scores)[-1], dtype="int64"), "float64")
    return relevance, (ops.all(labels < items), message, ops.max(labels, initial=0), items)


def _one_a_list(sample_weight: Any, scores: Any) -> Any:
    """Returns the weight of each list, float64 `[B]`."""
    weights = tensor(1.0 if sample_weight is None else sample_weight)
    message = "sample_weight has shape {}; give one weight a list, [batch]"
    weights = ops.cast(_flat(weights, message), "float64")
    lists = None if shape_of(scores) is None else scores.shape[0]
    if lists is not None and weights.shape[0] not in (None, 1, lists):
        raise ValueError(message.format(tuple(weights.shape)))
    return ops.broadcast_to(weights, [ops.shape(scores)[0]])


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
      ValueError: k is larger than the number of items, or shapes do not fit. Sizes are not known when a
        graph is made, a score is NaN, a weight negative, or an index of y_true out of range: on TensorFlow
        tf.errors.InvalidArgumentError, in a step that JAX has compiled JaxRuntimeError.
    """

    def __init__(self, k: int, sparse: bool = False, name: str | None = None, dtype: Any = None) -> None:
        super().__init__(k, sparse, name or f"recall_at_{k}", dtype)

    def _values(self, scores: Any, relevance: Any) -> Any:
        relevant = ops.cast(relevance > 0, "float64")
        found = ops.sum(expected_gains(scores, relevant, self.k), axis=1)  # type: ignore[arg-type]
        return found / ops.sum(relevant, axis=1)


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
        gains = ops.expm1(relevance * float(np.log(2.0))) if self.gain == "exponential" else relevance
        discounts = ops.convert_to_tensor(1 / np.log2(np.arange(2, self.k + 2)))  # type: ignore[operator]
        dcg = ops.sum(expected_gains(scores, gains, self.k) * discounts, axis=1)  # type: ignore[arg-type]
        return dcg / ops.sum(ops.top_k(gains, self.k)[0] * discounts, axis=1)

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
        return expected_reciprocal_rank(scores, relevance > 0, self.k or np.inf)
