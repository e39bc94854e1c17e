"""The layer on TensorFlow: the plugin's ops, in graphs; several workers, GPUs."""

import functools
import json
from typing import Any

from het_tf.python.backend import keras
from het_tf.python.layer import inputs, strategies
from het_tf.python.session import collective, native, settings
from het_tf.python.session.native import tf
from het_tf.python.table.layer_state import Call, Update

JIT = False  # XLA has no kernel of the lookup, but Keras would compile by itself on any device except a CPU
# The ops of a layer run beside its cache. With a kernel for GPUs in the process TensorFlow would
# otherwise run the lookups of all tables there, and copy ids and rows of tables in host memory.
OPS_DEVICE = {"cpu": "/device:CPU:0", "gpu": "/device:GPU:0"}
check = strategies.check
not_converted = tf.autograph.experimental.do_not_convert
prepare = inputs.prepare
cast = tf.cast


def anchor(variables: list[Any]) -> Any:
    """See __init__.py."""
    values = [tf.convert_to_tensor(one.value) for one in variables]
    return values[0] if len(values) == 1 else tf.concat(values, 0)


def is_state(value: Any) -> bool:
    """See __init__.py: never."""
    del value
    return False


def mask_of_ragged(ids: Any, length: int) -> Any:
    """Returns the mask of ragged ids that become [B, length]: True for ids."""
    return tf.sequence_mask(tf.minimum(ids.row_lengths(), length), length)


@functools.lru_cache(maxsize=1024)
def _parse(specs: str) -> dict[str, Any]:
    return dict(json.loads(specs))


@functools.lru_cache(maxsize=256)
def hint(dim: int) -> Any:
    """Returns a constant of shape [0, dim]: an eager tensor this small becomes a constant of any graph."""
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.zeros([0, dim], tf.float32)


def keep_average(optimizer: Any, index: int, shape: tuple[int, ...]) -> None:
    """Makes the moving average that Keras has for each other weight, and None for one of this kind."""
    with tf.init_scope():
        average = keras.Variable("zeros", shape, "float32", trainable=False)
        optimizer._model_variables_moving_average[index] = average


def lookup(call: Call, ids: list[Any], anchor: Any, training: bool) -> list[Any]:
    """Reads the rows of all features of a layer in one op.

    Args:
      call: The layer's attributes.
      ids: One int64 tensor per feature, of any shape.
      anchor: The values of the variables of its tables, one after the other, float32 [64 * variables, 2]; or
        any constant.
      training: Whether a gradient may follow: then the step is remembered.

    Returns:
      One float32 tensor a feature, of shape `ids.shape + [dim]`.
    """
    hints = [hint(dim) for dim in call.dims]
    with tf.device(OPS_DEVICE[call.place]):
        out = native.ops.het_lookup(
            ids=ids,
            anchor=anchor,
            hints=hints,
            tables=call.tables,
            specs=call.specs,
            training=training,
        )
    return list(out.rows)


@tf.RegisterGradient("HetLookup")
def _lookup_gradient(op: Any, *grads: Any) -> list[Any]:
    """Keeps the gradients of the rows. The anchor's gradient has their tickets (variable.py)."""
    count = (len(op.inputs) - 1) // 2
    text = op.get_attr("specs")
    place = _parse(text.decode() if isinstance(text, bytes) else text).get("place", "cpu")
    rows = list(op.outputs[:count])
    dense = [
        tf.zeros_like(row) if grad is None else tf.convert_to_tensor(grad)
        for row, grad in zip(rows, grads[:count], strict=True)
    ]
    norm: Any = 0.0
    if place == "gpu":  # there gradients of equal ids are summed when they are applied
        norm = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(one)) for one in dense]))
    with tf.device(OPS_DEVICE[place]):
        tickets = native.ops.het_keep_grad(
            ids=list(op.inputs[:count]),
            grads=dense,
            token=op.outputs[count],
            norm=norm,
            tables=[tf.compat.as_str(name) for name in op.get_attr("tables")],
            specs=text,
            worker=settings.workers().rank,
        )
    tickets.set_shape(op.inputs[count].shape)
    return [None] * count + [tickets] + [None] * count


@tf.RegisterGradient("HetKeepGrad")
def _keep_gradient(op: Any, grad: Any) -> None:
    """Refuses a second derivative, which nothing computes."""
    del op, grad
    raise RuntimeError(
        "het_tf: the gradient of a gradient goes through the gradient of an embedding's rows, which has no "
        "derivative. Leave the tables' variables (layer.trainable_variables) out of the inner tape.gradient"
    )


# --- the update --------------------------------------------------------------------------------------------


def updates(call: Update, ticket: Any) -> Any:
    """Returns how often each table was updated, int64 [tables]."""
    del ticket
    return native.ops.het_apply_count(**call.attributes)


def apply(call: Update, ticket: Any, rates: list[Any], bulk_synchronous: bool) -> None:
    """Updates rows by the gradients that a ticket stands for.

    Args:
      call: The variable's.
      ticket: float32 [64, 2].
      rates: Each table's learning rate: a float or a scalar tensor.
      bulk_synchronous: Of several workers, whether the next read of any must see this update:
        `reduce_gradients` has kept it behind all workers' reads.
    """
    ticket = tf.convert_to_tensor(ticket)
    with tf.device("CPU:0"):  # the op reads them there
        if all(isinstance(rate, float) for rate in rates):
            given = tf.constant(rates, tf.float32)
        else:
            given = tf.stack([tf.cast(tf.convert_to_tensor(rate), tf.float32) for rate in rates])
        scale = tf.constant(collective.gradient_scale(), tf.float32)
    arguments = {"tickets": ticket, "learning_rates": given, "scale": scale, **call.attributes}
    if settings.accumulates():
        done = settings.workers().accumulate(arguments)  # type: ignore[attr-defined] # of a mesh
    else:
        with tf.device(OPS_DEVICE[call.place]):
            done = native.ops.het_apply_grad(**arguments)
    if bulk_synchronous:
        settings.workers().sum(done, "het_tf.updated")
