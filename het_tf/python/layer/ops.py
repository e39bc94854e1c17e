"""The lookup as a differentiable operation, and its gradient, which keeps the gradients of the rows."""

import functools
import json
from typing import Any

from het_tf.python.session import native, settings
from het_tf.python.session.native import tf
from het_tf.python.table import device
from het_tf.python.table.layer_state import Call


@functools.lru_cache(maxsize=1024)
def _parse(specs: str) -> dict[str, Any]:
    return dict(json.loads(specs))


@functools.lru_cache(maxsize=256)
def hint(dim: int) -> Any:
    """Returns a constant of shape [0, dim]: an eager tensor this small becomes a constant of any graph."""
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.zeros([0, dim], tf.float32)


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
    with tf.device(device.OPS_DEVICE[call.place]):
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
    hvd = settings.horovod()
    with tf.device(device.OPS_DEVICE[place]):
        tickets = native.ops.het_keep_grad(
            ids=list(op.inputs[:count]),
            grads=dense,
            token=op.outputs[count],
            norm=norm,
            tables=[tf.compat.as_str(name) for name in op.get_attr("tables")],
            specs=text,
            worker=0 if hvd is None else hvd.rank(),
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
