"""The layer on PyTorch: an autograd function on tensors of this process's memory.

    Look   rows of ids, by the engine        its backward: Keep
    Keep   keeps gradients, gives tickets    its backward: refused, nothing computes it

A mask leaves ids out: their rows are zeros, and their gradients go nowhere. Tensors on another device are
copied, with one warning. An optimizer of torch.optim that has a table's parameter updates the table when it
steps.
"""

import functools
import warnings
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from het_tf.python.backend import keras
from het_tf.python.layer.backends import dense, engine, torch_tickets
from het_tf.python.session import settings
from het_tf.python.table.layer_state import Call, Update
from het_tf.python.table.notes import HetWarning

JIT = False  # torch.compile cannot look into the lookup; it may compile what is around
check = engine.check
is_state = engine.is_state
prepare = dense.prepare
# Of what reads and writes by addresses: torch.compile drops a tensor when nothing names it any more.
not_converted = torch.compiler.disable(
    reason="het_tf: lookups of tables run in Python; compile the layers behind them alone"
)


def cast(x: Any, dtype: str) -> Any:
    """Returns x in a dtype of Keras."""
    return x.to(getattr(torch, dtype))


def anchor(variables: list[Any]) -> Any:
    """See __init__.py."""
    values = parameters(variables)
    if len(values) == 1:
        return values[0]
    with torch_tickets.plain():
        return torch.cat(values)


def parameters(variables: list[Any]) -> list[Any]:
    """Returns the values of variables, as parameters whose tables an optimizer of torch.optim updates."""
    values = [one.value for one in variables]
    for value, one in zip(values, variables, strict=True):
        torch_tickets.make_anchor(value, one)
    return values


def keep_average(optimizer: Any, index: int, shape: tuple[int, ...]) -> None:
    """Makes the moving average that Keras has for each other weight, and None for one of this kind."""
    average = keras.Variable("zeros", shape, "float32", trainable=False)
    optimizer._model_variables_moving_average[index] = average


def lookup(call: Call, ids: list[dense.Ids], anchor: Any, training: bool) -> list[Any]:
    """Reads the rows of all features of a layer.

    Args:
      call: The layer's attributes.
      ids: For each feature int64 of any shape, and None or its mask.
      anchor: The values of the variables of its tables, float32 [64 * variables, 2]; or anything.
      training: Whether a gradient may follow.

    Returns:
      One float32 tensor a feature, of shape `ids.shape + [dim]`, on the device of its ids.

    Raises:
      RuntimeError: A program is traced that would keep the rows of this call.
    """
    if torch.compiler.is_exporting() or torch.jit.is_tracing():
        raise RuntimeError(
            "het_tf: neither torch.export nor torch.jit.trace keeps a lookup of tables; export the layers "
            "behind it alone, or serve on TensorFlow (docs/backends.md#serving)"
        )
    step = engine.call_of(call.specs)
    if any(one.is_meta for one, _ in ids):  # Keras asks for shapes
        return [
            one.new_empty((*one.shape, dim), dtype=torch.float32)
            for (one, _), dim in zip(ids, step.dims, strict=True)
        ]
    devices = [one.device for one, _ in ids]
    flat = [_here(one).contiguous() for one, _ in ids]
    masks = [None if mask is None else _here(mask).contiguous() for _, mask in ids]
    with torch_tickets.plain():
        learns = training and torch.is_grad_enabled() and anchor.requires_grad
        if learns and torch._C._are_functorch_transforms_active():
            raise RuntimeError(
                "het_tf: torch.func takes gradients of values, and rows of tables are in no tensor: call "
                "backward(), or leave the tables out of its functions"
            )
        if learns:
            rows = _Look.apply(step, masks, _here(anchor), *flat)
        else:
            rows = _read(step, flat, masks, False)[0]
    return [one.to(device) for one, device in zip(rows, devices, strict=True)]


def _here(x: Any) -> Any:
    """Returns a tensor of this process's memory."""
    if x.device.type == "cpu":
        return x
    _warn_of_copies(x.device.type)
    return x.cpu()


@functools.cache
def _warn_of_copies(device: str) -> None:
    warnings.warn(
        f"ids are on {device!r}, and tables in the memory of this process: every lookup copies ids, rows and "
        "gradients. Give ids on the CPU",
        HetWarning,
        stacklevel=4,
    )


def _arrays(tensors: Any) -> engine.Arrays:
    present = [one for one in tensors if one is not None]
    return engine.Arrays(
        [None if one is None else one.data_ptr() for one in tensors],
        [one.numel() for one in present],
    )


def _read(step: engine.Call, ids: Any, masks: Any, training: bool) -> tuple[tuple[Any, ...], int]:
    rows = [
        torch.empty((*one.shape, dim), dtype=torch.float32) for one, dim in zip(ids, step.dims, strict=True)
    ]
    return tuple(rows), step.lookup(_arrays(ids), _arrays(masks), [one.data_ptr() for one in rows], training)


class _Look(torch.autograd.Function):
    """Rows of ids; the gradient of the anchor has their tickets."""

    @staticmethod
    def forward(ctx: Any, step: engine.Call, masks: Any, anchor: Any, *ids: Any) -> Any:
        rows, token = _read(step, ids, masks, True)
        ctx.step, ctx.masks, ctx.token = step, masks, token
        ctx.save_for_backward(*ids)  # which notices ids that were changed in place
        return rows

    @staticmethod
    @not_converted
    def backward(ctx: Any, *gradients: Any) -> Any:
        ids = ctx.saved_tensors
        keep = _Keep.apply if torch.is_grad_enabled() else functools.partial(_Keep.forward, None)
        tickets = keep(ctx.step, ctx.masks, ctx.token, ids, *gradients)
        return (None, None, tickets, *(None for _ in ids))


class _Keep(torch.autograd.Function):
    """Keeps the gradients of rows, and returns their tickets."""

    @staticmethod
    def forward(ctx: Any, step: engine.Call, masks: Any, token: int, ids: Any, *gradients: Any) -> Any:
        del ctx
        given = [one.float().contiguous() for one in gradients]
        pointers, rank = [one.data_ptr() for one in given], settings.workers().rank
        tickets = torch.empty((engine.SLOTS * step.variables, 2), dtype=torch.float32)
        step.keep(_arrays(ids), _arrays(masks), pointers, token, rank, tickets.data_ptr())
        return tickets

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(engine.NO_SECOND)


@not_converted
def updates(call: Update, ticket: Any) -> Any:
    """Returns how often each table was updated, int64 [tables]."""
    del ticket
    return torch.from_numpy(engine.call_of(call.specs).applies())


@not_converted
def apply(call: Update, ticket: Any, rates: list[Any], bulk_synchronous: bool) -> None:
    """Updates rows by the gradients that a ticket, float32 [64, 2], stands for.

    Args:
      call: The variable's.
      ticket: float32 [64, 2].
      rates: Each table's learning rate: a float, a variable or a scalar tensor.
      bulk_synchronous: Of several workers, whether the next read of any must see this update.
    """
    numbers = [_number(one) for one in rates]
    with torch_tickets.plain():
        ticket = keras.ops.convert_to_tensor(ticket).to("cpu", torch.float32).contiguous()
    engine.call_of(call.specs).apply(ticket.data_ptr(), numbers, bulk_synchronous)


def _number(rate: Any) -> float:
    return float(getattr(rate, "value", rate))


# --- optimizers of torch.optim -----------------------------------------------------------------------------


class _Group:
    """A group of parameters of a torch.optim optimizer, as a table with learning_rate="model" reads it."""

    def __init__(self, group: Any) -> None:
        self.learning_rate = float(group["lr"])


_REFUSED = {
    "maximize": "negate the loss",
    "differentiable": "give the tables' parameters to another optimizer",
}
_LAST = "het_tf"  # the key of a hook behind those of an optimizer's user


@not_converted
def _before_step(optimizer: Any, arguments: Any, named: Any) -> None:
    """Lets tables be updated behind the other hooks of a step that begins: they may change gradients."""
    del arguments, named
    hooks = optimizer._optimizer_step_pre_hooks
    hooks[_LAST] = _update_in_step
    hooks.move_to_end(_LAST)


@not_converted
def _update_in_step(optimizer: Any, arguments: Any, named: Any) -> Any:
    """Updates the tables of an optimizer of torch.optim that begins a step; with a closure, behind that."""
    closure = next((one for one in (*arguments[1:], named.get("closure")) if callable(one)), None)
    if closure is None:
        _update(optimizer)
        return None

    def run() -> Any:
        loss = closure()
        _update(optimizer)
        return loss

    def instead(value: Any) -> Any:
        return run if value is closure else value

    return tuple(map(instead, arguments)), {name: instead(value) for name, value in named.items()}


def _update(optimizer: Any) -> None:
    """Updates the tables whose parameters an optimizer has; it then sees no gradient of theirs."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            variable = torch_tickets.variable_of(parameter)
            ticket = None if variable is None else torch_tickets.taken(parameter)
            if ticket is None:
                continue
            if isinstance(optimizer, torch.optim.LBFGS):
                raise RuntimeError(
                    "torch.optim.LBFGS moves weights along a line, but rows of tables have their own "
                    "optimizers: give the tables' parameters to another optimizer"
                )
            for option, instead in _REFUSED.items():
                if group.get(option):
                    raise RuntimeError(f"{option}=True does not reach rows of tables: {instead}")
            # A GradScaler leaves both to the step of a fused optimizer.
            overflows, scale = getattr(optimizer, "found_inf", None), getattr(optimizer, "grad_scale", None)
            if overflows is None or not bool(overflows):
                variable.apply(ticket if scale is None else ticket / scale.to(ticket.device), _Group(group))


register_optimizer_step_pre_hook(_before_step)
