"""TensorFlow: converts a user's inputs to ids for the lookup, and rows to the layer's outputs.

`prepare` turns one feature's input into an int64 tensor of ids and a function that turns their rows into the
output:

    dense   [..., L] ──────────────► ids as they are ──► rows [..., L, dim] ──► combined over L
    masked  [..., L] ──where mask──► ids that count  ──► rows [n, dim]      ──► scattered back, or combined
    ragged, sparse   ──flat values─► ids that exist  ──► rows [n, dim]      ──► combined, or ragged again
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from het_tf.python.ids import as_int64, is_ragged, is_sparse, tensor_of, to_tensor
from het_tf.python.layer.checks import check_ids, named
from het_tf.python.session.native import tf
from het_tf.python.table.config import FeatureConfig

Finish = Callable[[Any], Any]


def prepare(feature: FeatureConfig, ids: Any, weights: Any, mask: Any) -> tuple[Any, Finish]:
    """Prepares the input of one feature.

    Args:
      feature: The feature.
      ids: Dense, ragged or sparse tensor of integers or strings.
      weights: None, or floats of the same structure: the factor of each row.
      mask: None, or bools of the shape of dense ids: False for padding.

    Returns:
      int64 ids of any shape, and a function from their rows (float32, `ids.shape + [dim]`) to the output.

    Raises:
      ValueError: Wrong type or rank of ids, or weights of another shape.
    """
    ids = tensor_of(ids, f"{named(feature)}: ids")
    weights = None if weights is None else to_tensor(weights, f"{named(feature)}: weights")
    check_ids(feature, ids.dtype, ids.shape.rank)
    if is_sparse(ids):
        return _prepare_sparse(feature, ids, weights)
    if is_ragged(ids):
        return _prepare_ragged(feature, ids, weights)
    return _prepare_dense(feature, ids, weights, mask)


# --- dense ----------------------------------------------------------------------------------------


def _prepare_dense(feature: FeatureConfig, ids: Any, weights: Any, mask: Any) -> tuple[Any, Finish]:
    ids = as_int64(ids)
    if weights is not None:
        weights = _checked_weights(feature, ids, weights, "dense")
    length = feature.max_sequence_length
    if length is not None:
        ids, weights, mask = (None if x is None else x[..., :length] for x in (ids, weights, mask))
    if feature.combiner is not None and ids.shape.rank == 1:  # one id a sample
        ids, weights, mask = (None if x is None else tf.expand_dims(x, -1) for x in (ids, weights, mask))

    counts = _counts(feature, ids, weights)
    if mask is None:
        flat, scatter = ids, _same
    else:
        mask = tf.convert_to_tensor(mask)
        counts = _masked(counts, mask)
        where = tf.where(mask)
        flat = tf.gather_nd(ids, where)
        shape = tf.concat([tf.shape(ids, tf.int64), [feature.table.dim]], 0)

        def scatter(rows: Any) -> Any:
            out = tf.scatter_nd(where, rows, shape)
            out.set_shape([*ids.shape, feature.table.dim])
            return out

    def finish(rows: Any) -> Any:
        rows = scatter(rows)
        if feature.combiner is None:
            if weights is not None:
                rows = rows * weights[..., None]
            return rows if length is None else _pad_to(rows, length)
        if weights is None:
            total = tf.reduce_sum(rows, -2)  # padding rows are zeros already
        else:
            total = tf.linalg.matvec(rows, counts, transpose_a=True)
        if feature.combiner == "sum":
            return total
        if counts is None:
            number = tf.cast(tf.shape(ids)[-1], tf.float32)
            return tf.math.divide_no_nan(total, number if feature.combiner == "mean" else tf.sqrt(number))
        return tf.math.divide_no_nan(
            total, _divisor(feature, counts, lambda x: tf.reduce_sum(x, -1, keepdims=True))
        )

    return flat, finish


def _same(rows: Any) -> Any:
    return rows


def _pad_to(rows: Any, length: int) -> Any:
    """Pads the last but one axis with zeros up to `length`."""
    missing = length - tf.shape(rows)[-2]
    paddings = [[0, 0]] * (rows.shape.rank - 2) + [[0, missing], [0, 0]]
    padded = tf.pad(rows, paddings)
    padded.set_shape([*rows.shape[:-2], length, rows.shape[-1]])
    return padded


def _counts(feature: FeatureConfig, ids: Any, weights: Any) -> Any:
    """Returns the weight of every id, float32 of the shape of the ids, 0 for padding. None: 1 each."""
    if feature.padding_id is None:
        return weights
    present = tf.cast(tf.not_equal(ids, feature.padding_id), tf.float32)
    return present if weights is None else weights * present


def _masked(counts: Any, mask: Any) -> Any:
    mask = tf.cast(mask, tf.float32)
    return mask if counts is None else counts * mask


def _divisor(feature: FeatureConfig, counts: Any, total: Callable[[Any], Any]) -> Any:
    if feature.combiner == "mean":
        return total(counts)
    return tf.sqrt(total(counts * counts))


def _checked_weights(feature: FeatureConfig, ids: Any, weights: Any, kind: str) -> Any:
    """Returns float32 weights of exactly the shape of the ids."""
    if is_ragged(weights) or is_sparse(weights):
        raise ValueError(
            f"{named(feature)}: ids are {kind} and weights are "
            f"{'ragged' if is_ragged(weights) else 'sparse'}; give both the same structure"
        )
    if not weights.dtype.is_floating:
        weights = tf.cast(weights, tf.float32)
    if not weights.shape.is_compatible_with(ids.shape):
        raise ValueError(
            f"{named(feature)}: weights have shape {weights.shape} and ids have shape {ids.shape}; "
            "give one weight for each id"
        )
    if not (weights.shape.is_fully_defined() and ids.shape.is_fully_defined()):
        # Else [B, 1] would be broadcast to [B, L] at run time.
        message = f"{named(feature)}: weights must have the shape of the ids"
        with tf.control_dependencies([tf.debugging.assert_equal(tf.shape(weights), tf.shape(ids), message)]):
            weights = tf.identity(weights)
    return tf.cast(weights, tf.float32)


# --- ragged and sparse ----------------------------------------------------------------------------


def _prepare_ragged(feature: FeatureConfig, ids: Any, weights: Any) -> tuple[Any, Finish]:
    length = feature.max_sequence_length
    if weights is not None and not is_ragged(weights):
        raise ValueError(
            f"{named(feature)}: ids are ragged and weights are not; give a tf.RaggedTensor of the "
            "same row lengths, for example ids.with_flat_values(weights)"
        )
    if weights is not None:
        weights = _same_rows(feature, ids, weights)
    if length is not None:
        if ids.ragged_rank != 1:
            raise ValueError(
                f"{named(feature)}: ids have {ids.ragged_rank} ragged axes; max_sequence_length goes with one"
            )
        ids = ids[:, :length]
        weights = None if weights is None else weights[:, :length]
    flat = as_int64(ids.flat_values)
    flat_weights = None
    if weights is not None:
        flat_weights = _checked_weights(feature, flat, weights.flat_values, "ragged")
    if feature.combiner is not None:
        return flat, _pool_innermost(feature, ids, flat, flat_weights)

    def finish(rows: Any) -> Any:
        if flat_weights is not None:
            rows = rows * flat_weights[..., None]
        out = ids.with_flat_values(rows)
        if length is None:
            return out
        return out.to_tensor(shape=[None, length] + [None] * (rows.shape.rank - 1))

    return flat, finish


def _same_rows(feature: FeatureConfig, ids: Any, weights: Any) -> Any:
    """Returns the weights with the rows of the ids."""
    if weights.ragged_rank != ids.ragged_rank:
        raise ValueError(
            f"{named(feature)}: weights have {weights.ragged_rank} ragged axes and ids have "
            f"{ids.ragged_rank}; give one weight for each id"
        )
    flat = weights.flat_values
    for of_ids, of_weights in zip(ids.nested_row_splits, weights.nested_row_splits, strict=True):
        flat = _paired(feature, flat, of_ids, of_weights, "row lengths")
    return weights.with_flat_values(flat)


def _paired(feature: FeatureConfig, values: Any, of_ids: Any, of_weights: Any, what: str) -> Any:
    """Returns the weights' values. An error, in a graph when it runs, if their places are not the ids'."""
    message = f"{named(feature)}: weights have other {what} than ids; give one weight for each id"
    if of_ids is of_weights:
        return values
    if tf.executing_eagerly():
        if not np.array_equal(of_ids.numpy(), of_weights.numpy()):
            raise ValueError(message)
        return values
    places = tf.cast(of_ids, tf.int64), tf.cast(of_weights, tf.int64)
    equal = tf.raw_ops.Equal(x=places[0], y=places[1], incompatible_shape_error=False)
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(equal), [message])]):
        return tf.identity(values)


def _pool_innermost(feature: FeatureConfig, ids: Any, flat: Any, weights: Any) -> Finish:
    """Combines over the innermost ragged axis."""

    def pool(node: Any, rows: Any) -> Any:
        if is_ragged(node.values):
            return node.with_values(pool(node.values, rows))
        return _pool(feature, rows, flat, weights, node.value_rowids(), node.nrows())

    return lambda rows: pool(ids, rows)


def _prepare_sparse(feature: FeatureConfig, ids: Any, weights: Any) -> tuple[Any, Finish]:
    if weights is not None:
        if not is_sparse(weights):
            raise ValueError(
                f"{named(feature)}: ids are sparse and weights are not; give a tf.SparseTensor of "
                "the same indices"
            )
        values = _paired(feature, weights.values, ids.indices, weights.indices, "indices")
        weights = tf.SparseTensor(weights.indices, values, weights.dense_shape)
    if feature.combiner is None:
        if feature.max_sequence_length is None:
            raise ValueError(
                f"{named(feature)}: ids are sparse and there is no combiner; give "
                'FeatureConfig(combiner="sum" | "mean" | "sqrtn"), or max_sequence_length=... for a sequence'
            )
        ragged = tf.RaggedTensor.from_value_rowids(ids.values, ids.indices[:, 0], ids.dense_shape[0])
        if weights is not None:
            weights = ragged.with_values(weights.values)
        return _prepare_ragged(feature, ragged, weights)
    if ids.shape.rank is not None and ids.shape.rank != 2:
        raise ValueError(
            f"{named(feature)}: sparse ids have rank {ids.shape.rank}; a combiner takes [B, L]. Use "
            "tf.sparse.reshape, or ragged ids"
        )
    flat = as_int64(ids.values)
    flat_weights = None if weights is None else _checked_weights(feature, flat, weights.values, "sparse")
    rows_of, number = ids.indices[:, 0], ids.dense_shape[0]

    def finish(rows: Any) -> Any:
        out = _pool(feature, rows, flat, flat_weights, rows_of, number)
        out.set_shape([ids.shape[0], feature.table.dim])
        return out

    return flat, finish


def _pool(feature: FeatureConfig, rows: Any, flat: Any, weights: Any, sample: Any, samples: Any) -> Any:
    """Combines rows [n, ..., dim] by sample [n] to [samples, ..., dim]; zeros for a sample without rows."""
    counts = _counts(feature, flat, weights)
    if weights is not None:
        rows = rows * counts[..., None]
    total = tf.math.unsorted_segment_sum(rows, sample, samples)
    if feature.combiner == "sum":
        return total
    if counts is None:
        counts = tf.ones_like(flat, tf.float32)
    divisor = _divisor(feature, counts, lambda x: tf.math.unsorted_segment_sum(x, sample, samples))
    return tf.math.divide_no_nan(total, divisor[..., None])
