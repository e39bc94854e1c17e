"""The lookup as a differentiable operation, and its gradient, which is the update of the tables."""

import functools
import json
from typing import Any

from het_tf.python.layer import accumulate, gate, loss_scale, owner, replicas
from het_tf.python.session import collective, native, settings
from het_tf.python.session.native import tf
from het_tf.python.table import device, optimizers, registry
from het_tf.python.table.layer_state import Call


@functools.lru_cache(maxsize=1024)
def _parse(specs: str) -> dict[str, Any]:
    return dict(json.loads(specs))


@functools.lru_cache(maxsize=256)
def hint(dim: int) -> Any:
    """Returns a constant of shape [0, dim]: an eager tensor this small becomes a constant of any graph."""
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.zeros([0, dim], tf.float32)


def lookup(call: Call, ids: list[Any], anchor: Any, training: bool) -> tuple[list[Any], Any]:
    """Reads the rows of all features of a layer in one op.

    Args:
      call: The layer's attributes and number.
      ids: One int64 tensor per feature, of any shape.
      anchor: float32 scalar: a trainable variable's value if gradients should update the tables, else a
        constant.
      training: Whether the lookup belongs to a training step: then its rows are kept for the gradient.

    Returns:
      One float32 tensor a feature, of shape `ids.shape + [dim]`, and the probe (loss_scale.py).
    """
    if training:
        loss_scale.forget()
    hints = [hint(dim) for dim in call.dims]
    with tf.device(device.OPS_DEVICE[call.place]):
        out = native.ops.het_lookup(
            ids=ids,
            anchor=anchor,
            hints=hints,
            layer=call.layer,
            tables=call.tables,
            specs=call.specs,
            training=training,
        )
    return out.rows, out.probe


@tf.RegisterGradient("HetLookup")
def _lookup_gradient(op: Any, *grads: Any) -> list[Any]:
    """Applies the gradients of the rows to the tables. The anchor's gradient is an output of that very op."""
    count = (len(op.inputs) - 2) // 2
    text = op.get_attr("specs")
    specs = _parse(text.decode() if isinstance(text, bytes) else text)
    names = [native.tf.compat.as_str(name) for name in op.get_attr("tables")]
    ids = list(op.inputs[:count])
    rows = list(op.outputs[:count])
    dense = [
        tf.zeros_like(row) if grad is None else tf.convert_to_tensor(grad)
        for row, grad in zip(rows, grads[:count], strict=True)
    ]
    layer = registry.find_layer(tf.get_static_value(op.inputs[-1]))
    update: dict[str, Any] = {
        "ids": ids,
        "grads": dense,
        "token": op.outputs[count],
        "learning_rates": _learning_rates(specs, names, op.get_attr("specs"), layer),
        "scale": tf.convert_to_tensor(collective.gradient_scale(), dtype=tf.float32),
        "loss_scale": loss_scale.of_gradient(layer, specs.get("needs_loss_scale", False), grads[count + 1]),
        "tables": names,
        "specs": op.get_attr("specs"),
    }
    if replicas.several():
        anchor_gradient = replicas.apply_gradients(**update)
    elif settings.accumulates():
        anchor_gradient = accumulate.apply_gradients(**update)
    else:
        if getattr(layer, "is_bulk_synchronous", False):
            update["scale"] = gate.gated(update["scale"], update["token"], dense)
        with tf.device(device.OPS_DEVICE[specs.get("place", "cpu")]):
            anchor_gradient = native.ops.het_apply_grad(**update)
    return [None] * count + [anchor_gradient] + [None] * (count + 1)


@tf.RegisterGradient("HetApplySums")
@tf.RegisterGradient("HetApplyGrad")
def _apply_gradient(op: Any, grad: Any) -> None:
    """Refuses a second derivative: it would silently update the tables again."""
    del op, grad
    raise RuntimeError(
        "het_tf: the gradient of a gradient goes through an embedding lookup, whose gradient is the update "
        "of its table and has no derivative. For a penalty on gradients call the model inside of `with "
        "het_tf.no_update():`"
    )


def _learning_rates(specs: dict[str, Any], names: list[str], text: Any, layer: Any) -> Any:
    """Returns each table's rate for this update, float32 [tables]."""
    rates: list[Any] = []
    counts = None
    for number, table in enumerate(specs["tables"]):
        entry = registry.find(specs["namespace"], table["name"])
        if entry is None:
            raise RuntimeError(
                f"het_tf: table {table['name']!r} is trained, but no layer of this process has declared it, "
                "so its learning rate is unknown; build the model's layers (after het_tf.reset(), build them "
                "again)"
            )
        rate = entry.config.optimizer.learning_rate
        if rate == optimizers.MODEL if isinstance(rate, str) else False:
            rate = owner.learning_rate(layer, table["name"])
        elif optimizers.is_schedule(rate):
            if counts is None:
                counts = native.ops.het_apply_count(tables=names, specs=text)
            rate = rate(counts[number])
        rates.append(rate)
    if all(isinstance(rate, float) for rate in rates):
        return tf.constant(rates, tf.float32)
    return tf.stack([tf.cast(tf.convert_to_tensor(rate), tf.float32) for rate in rates])
