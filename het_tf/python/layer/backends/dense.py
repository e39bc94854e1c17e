"""PyTorch and JAX: converts a user's dense inputs to ids for the lookup, and rows to the layer's outputs.

    ids [..., L], mask ──► lookup ──► rows [..., L, dim], zeros where masked ──► combined over L

Ragged and sparse inputs are TensorFlow's alone: lengths are given as padding, or as a mask.
"""

from collections.abc import Callable
from typing import Any

from keras import ops

from het_tf.python.ids import as_int64, tensor_of, to_tensor
from het_tf.python.layer.checks import check_ids, named
from het_tf.python.table.config import FeatureConfig

Ids = tuple[Any, Any]
"""Ids, and their mask or None."""
Finish = Callable[[Any], Any]


def prepare(feature: FeatureConfig, ids: Any, weights: Any, mask: Any) -> tuple[Ids, Finish]:
    """Prepares the input of one feature.

    Args:
      feature: The feature.
      ids: Dense integers, or strings in a list or an array.
      weights: None, or floats of the same shape: the factor of each row.
      mask: None, or bools of the same shape: False for padding.

    Returns:
      Ids and mask for the lookup; a function from their rows, float32 `ids.shape + [dim]`, to the output.

    Raises:
      ValueError: Wrong type or rank of ids, ragged or sparse ids, or weights of another shape.
    """
    ids = tensor_of(_dense(feature, ids), f"{named(feature)}: ids")
    check_ids(feature, ids.dtype, len(ids.shape))
    ids = as_int64(ids)
    if weights is not None:
        weights = ops.cast(to_tensor(_dense(feature, weights), f"{named(feature)}: weights"), "float32")
        _require_shape(feature, "weights", weights, ids)
    if mask is not None:
        mask = ops.cast(to_tensor(mask, f"{named(feature)}: mask"), "bool")
        _require_shape(feature, "mask", mask, ids)
    length = feature.max_sequence_length
    if length is not None:
        ids, weights, mask = (None if x is None else x[..., :length] for x in (ids, weights, mask))
    if feature.combiner is not None and len(ids.shape) == 1:  # one id a sample
        ids, weights, mask = (None if x is None else x[..., None] for x in (ids, weights, mask))
    counts = _counts(feature, ids, weights, mask)

    def finish(rows: Any) -> Any:
        if feature.combiner is None:
            if weights is not None:
                rows = rows * weights[..., None]
            return rows if length is None else _pad_to(rows, length)
        total = ops.sum(rows if weights is None else rows * counts[..., None], -2)
        if feature.combiner == "sum":
            return total
        if counts is None:
            number = ids.shape[-1] if feature.combiner == "mean" else ids.shape[-1] ** 0.5
            return ops.divide_no_nan(total, number)
        summed = ops.sum(counts if feature.combiner == "mean" else counts * counts, -1, keepdims=True)
        return ops.divide_no_nan(total, summed if feature.combiner == "mean" else ops.sqrt(summed))

    return (ids, mask), finish


def _dense(feature: FeatureConfig, x: Any) -> Any:
    kind = type(x).__name__
    for layout in ("is_sparse", "is_nested"):  # of torch
        if getattr(x, layout, False) is True:
            kind = f"{layout[3:]} tensor"
    if kind in ("RaggedTensor", "SparseTensor", "BCOO", "sparse tensor", "nested tensor"):
        raise ValueError(
            f"{named(feature)}: ids or weights are a {kind}, which needs Keras' backend TensorFlow; give ids "
            "[B, L] with FeatureConfig(padding_id=...), or with mask=..."
        )
    return x


def _require_shape(feature: FeatureConfig, what: str, x: Any, ids: Any) -> None:
    if tuple(x.shape) != tuple(ids.shape):
        raise ValueError(
            f"{named(feature)}: {what} have shape {tuple(x.shape)} and ids have shape {tuple(ids.shape)}; "
            "give one for each id"
        )


def _counts(feature: FeatureConfig, ids: Any, weights: Any, mask: Any) -> Any:
    """Returns the weight of every id, float32 of the shape of the ids, 0 for padding. None: 1 each."""
    counts = weights
    for present in (None if feature.padding_id is None else ops.not_equal(ids, feature.padding_id), mask):
        if present is not None:
            present = ops.cast(present, "float32")
            counts = present if counts is None else counts * present
    return counts


def _pad_to(rows: Any, length: int) -> Any:
    """Pads the last but one axis with zeros up to `length`."""
    paddings = [[0, 0]] * (len(rows.shape) - 2) + [[0, length - rows.shape[-2]], [0, 0]]
    return ops.pad(rows, paddings)
