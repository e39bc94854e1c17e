"""TensorFlow: finds the lookups of a layer or model in a batch, as ops of a pipeline (lookups_keras.py)."""

from typing import Any

from het_tf.python import ids as ids_lib
from het_tf.python.layer.backends import ops
from het_tf.python.layer.lookups_keras import Finder
from het_tf.python.session.native import tf
from het_tf.python.table import layer_state

Lookups = list[tuple[Any, list[Any]]]  # layers, each with the ids of its features


def find(layer: Any, inputs: Any, by_sample: bool = False) -> Lookups:
    """Returns the lookups of a training step in which a layer is called on a batch, in order.

    Args:
      layer: A layer of het_tf, or a functional or Sequential model.
      inputs: Its inputs: tensors.
      by_sample: False: int64 ids of any shape, as the op gets them. True: sample by sample, int64 `[B, n]` or
        ragged `[B, None]`, without masked ones.

    Raises:
      ValueError: It cannot be called on them, or looks up ids that only its step knows.
    """
    inputs = tf.nest.map_structure(lambda one: ids_lib.to_tensor(one, "inputs"), inputs)
    first = tf.nest.flatten(inputs)[0]
    found = []
    for one, given in Finder(layer).calls(inputs):
        features = layer_state.of(one).features.flat
        pairs = zip(features, given[: len(features)], given[len(features) :], strict=True)
        if by_sample:
            ids = [_sampled(layer, one, first, _of_samples(*each)) for each in pairs]
        else:
            ids = [ops.prepare(feature, ids, None, mask)[0] for feature, ids, mask in pairs]
        found.append((one, ids))
    return found


def _sampled(model: Any, layer: Any, first: Any, ids: Any) -> Any:
    """Returns ids `[B, n]`. ValueError: their first axis is not that of `first`, a tensor of the batch."""
    message = (
        f"model {model.name} gives layer {layer.name} ids whose first axis is not that of the "
        "batch, so those of a sample are not known; keep the ids of a sample together, [B, n]"
    )
    rows, samples = ids.shape[0], first.shape[0]
    if rows is not None and samples is not None:
        if rows != samples:
            raise ValueError(f"{message} (they have {rows}, the batch {samples})")
        return ids
    with tf.control_dependencies([tf.debugging.assert_equal(_count(ids), _count(first), message)]):
        return tf.identity(ids)


def _of_samples(feature: Any, ids: Any, mask: Any) -> Any:
    """Returns int64 `[B, n]`, or ragged, of a feature's input, without masked ids."""
    ids = ids_lib.tensor_of(ids, "ids")
    ids_lib.check_dtype(feature.name, ids.dtype)
    if ids_lib.is_sparse(ids):
        ids = tf.RaggedTensor.from_value_rowids(ids.values, ids.indices[:, 0], ids.dense_shape[0])
    if ids_lib.is_ragged(ids):
        ids = ids.with_flat_values(ids_lib.as_int64(ids.flat_values))
        ids = ids if ids.shape.rank == 2 else ids.merge_dims(1, -1)
    else:
        ids = tf.reshape(ids_lib.as_int64(ids), [tf.shape(ids)[0], -1])
        if mask is not None:
            ids = tf.ragged.boolean_mask(ids, tf.reshape(mask, tf.shape(ids)))
    return ids[:, : feature.max_sequence_length]


def _count(x: Any) -> Any:
    """Returns the size of the first axis of a tensor of any kind."""
    if ids_lib.is_ragged(x):
        return x.nrows(tf.int64)
    return x.dense_shape[0] if ids_lib.is_sparse(x) else tf.shape(x, tf.int64)[0]
