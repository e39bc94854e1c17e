"""A table's parameter and its gradient on PyTorch: what a program does to them reaches rows, or is refused.

A program sees tables as a parameter [64, 2] of zeros, an `Anchor`, and their gradient as a `Ticket`
(variable.py). Both are tensors whose functions come here first:

    Ticket   sums, and multiples by a number    make a ticket of them
             norms of all of it                 are the engine's, which adds up the gradients it stands for
             others                             are refused: its 128 numbers are no gradient
    Anchor   questions, moves, hooks            run
             others                             are refused: updates by hand, norms of weights, penalties

Autograd and optimizers see neither class, and cost what they cost with plain parameters. Functions that have
no derivative refuse one by themselves; Keras' optimizers know which gradients are tickets.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch

from het_tf.python import callers
from het_tf.python.backend import keras
from het_tf.python.layer.backends import engine
from het_tf.python.session import settings

plain = torch._C.DisableTorchFunctionSubclass
"""A scope in which tickets and anchors are tensors like others."""

_GRAD = torch.Tensor.grad
_VARIABLE = "_het_variable"  # of anchors, tickets and values: refers to the variable

# Names of functions, without underscores at their ends.
_NORMS = {"norm", "linalg_vector_norm", "foreach_norm"}
_SUMS = {"add", "sub", "foreach_add", "foreach_sub"}
_SCALES = {"mul", "multiply", "div", "divide", "true_divide", "foreach_mul", "foreach_div"}
_LINEAR = {"neg", "zero", "foreach_zero", "amp_foreach_non_finite_check_and_unscale"}
_SAME = {"clone", "detach", "to", "cpu", "float", "contiguous", "flip", "zeros_like"}
_ASKED = {
    "size", "dim", "numel", "nelement", "stride", "len", "element_size", "type", "get_device", "data_ptr",
    "storage_offset", "untyped_storage", "share_memory", "isfinite", "isnan", "isinf", "any", "all", "equal",
    "requires_grad", "numpy", "tolist", "array", "repr", "format", "backward", "reduce_ex", "setstate",
    "register_post_accumulate_grad_hook", "result_type",
}  # fmt: skip


class _Refusing:
    """A tensor whose functions are looked at."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        return _run(func, args, kwargs or {})


class Ticket(_Refusing, torch.Tensor):
    """A gradient of an anchor."""

    def bare(self) -> Any:
        """The same as a tensor like others."""
        with plain():
            return self.as_subclass(torch.Tensor)


class Values(_Refusing, torch.Tensor):
    """The values of an anchor, without its gradient."""


class Anchor(_Refusing, torch.nn.Parameter):
    """The value of a table's variable."""

    @property
    def grad(self) -> Any:
        """The ticket, or None."""
        with plain():
            found = _GRAD.__get__(self)
            if found is not None and type(found) is not Ticket:
                found = _made(Ticket, found, self)
                _GRAD.__set__(self, found)
        return found

    @grad.setter
    def grad(self, value: Any) -> None:
        with plain():
            _GRAD.__set__(self, value)


def make_anchor(value: Any, variable: Any) -> None:
    """Makes a parameter the anchor of a variable."""
    if type(value) is torch.nn.Parameter:
        value.__class__ = Anchor
    setattr(value, _VARIABLE, weakref.ref(variable))


def variable_of(tensor: Any) -> Any:
    """Returns the variable that an anchor or a ticket is of, or None."""
    return getattr(tensor, _VARIABLE, lambda: None)()


def taken(anchor: Any) -> Any:
    """Returns the gradient of an anchor, a plain tensor or None, and takes it away."""
    with plain():
        found = _GRAD.__get__(anchor)
        _GRAD.__set__(anchor, None)
    return found


def _made(kind: Any, tensor: Any, of: Any) -> Any:
    """Returns a tensor as a ticket, or as values, of the same variable as `of`; others as they are."""
    if type(tensor) is not torch.Tensor or tensor.dtype == torch.bool or tensor.shape != (engine.SLOTS, 2):
        return tensor
    made = tensor.as_subclass(kind)
    setattr(made, _VARIABLE, getattr(of, _VARIABLE, None))
    return made


# --- functions ----------------------------------------------------------------------------------------------


def _listed(x: Any) -> Any:
    return x if isinstance(x, (list, tuple)) else (x,)


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    given = getattr(func, "__name__", "")
    is_attribute = given in ("__get__", "__set__")
    name = (func.__self__.__name__ if is_attribute else given).strip("_")
    all_given = [one for x in (*args, *kwargs.values()) for one in _listed(x)]
    ours = [one for one in all_given if isinstance(one, _Refusing)]
    has_tickets = any(type(one) is Ticket for one in ours)
    if func is torch.autograd.grad:
        return _gradients(*args, **kwargs)
    if name == "register_hook":
        return _hooked(*args, **kwargs)
    if name in _NORMS and has_tickets:
        return _norms(name, *args, **kwargs)
    allowed = is_attribute or name in _ASKED or name in _SAME or name.startswith("is_")
    allowed = allowed or (name == "copy" and _may_copy(*args[:2]))
    if not allowed and has_tickets:
        allowed = name in _LINEAR or (len(args) > 1 and _is_linear(name, *args[:2]))
    if not allowed and not _is_known_otherwise(ours):
        raise _refusal(given, args, ours)
    if name == "reduce_ex":
        args = (args[0].as_subclass(torch.Tensor), *args[1:])
    with plain():
        found = func(*args, **kwargs)
        if name in _ASKED:
            return found
        kind = Ticket if has_tickets or name == "zeros_like" else Values
        if isinstance(found, (list, tuple)):
            return type(found)(_made(kind, one, ours[0]) for one in found)
        return _made(kind, found, ours[0])


def _is_known_otherwise(ours: Any) -> bool:
    """Whether autograd refuses a derivative of a gradient's function, or an optimizer of Keras runs."""
    with plain():
        if any(type(one) is Ticket and one.requires_grad for one in ours):
            return True
    return any(isinstance(one, keras.optimizers.Optimizer) for one in callers.of("apply"))


def _may_copy(to: Any, source: Any) -> bool:
    """A ticket may be one's copy; and zeros may be put into an anchor."""
    if type(to) is Ticket or type(source) is Ticket:
        return type(to) is type(source)
    with plain():
        return not bool(source.any())


def _is_linear(name: str, first: Any, second: Any) -> bool:
    """Whether tickets are added to their like, or multiplied or divided by numbers; a list's, each one."""
    if name in _SUMS:
        if not isinstance(first, (list, tuple)):
            return all(
                type(one) is Ticket or (type(one) in (int, float) and one == 0) for one in (first, second)
            )
        return all(
            (type(a) is Ticket) == (type(b) is Ticket) for a, b in zip(first, _listed(second), strict=False)
        )
    if name in ("mul", "multiply") and type(second) is Ticket:
        first, second = second, first
    return (
        name in _SCALES
        and (type(first) is Ticket or isinstance(first, (list, tuple)))
        and not any(isinstance(one, _Refusing) for one in _listed(second))
        and all(not isinstance(one, torch.Tensor) or one.numel() == 1 for one in _listed(second))
    )


def _gradients(outputs: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
    """torch.autograd.grad: those of anchors are tickets."""
    with plain():
        found = torch.autograd.grad(outputs, inputs, *arguments, **named)
        pairs = zip(_listed(inputs), found, strict=True)
        return tuple(_made(Ticket, x, of) if isinstance(of, Anchor) else x for of, x in pairs)


def _hooked(anchor: Any, hook: Callable[[Any], Any]) -> Any:
    """Anchor.register_hook: the hook gets a ticket."""
    like = anchor.detach()  # has the variable, and does not refer to the anchor
    with plain():
        return anchor.register_hook(lambda gradient: hook(_made(Ticket, gradient, like)))


def _norms(name: str, x: Any, order: Any = 2, *axes: Any, **named: Any) -> Any:
    """A norm of tickets, each of all that it stands for."""
    order = named.pop("ord", named.pop("p", order))
    order = float(2 if order in (None, "fro") else order)
    if not order > 0 or any(one is not None for one in (*axes, named.get("dim"))):
        raise _refusal(name, (x,), [one for one in _listed(x) if type(one) is Ticket])
    with plain():
        norms = [
            _norm(one, order) if type(one) is Ticket else torch.linalg.vector_norm(one, order)
            for one in _listed(x)
        ]
    return norms if isinstance(x, (list, tuple)) else norms[0]


def _norm(ticket: Any, order: float) -> Any:
    given = ticket.detach().to("cpu", torch.float32).contiguous()
    call = engine.call_of(variable_of(ticket).call.specs)
    try:
        found = call.norm(given.data_ptr(), order)
    except RuntimeError:
        if not settings.several_workers():
            raise
        given = given.flip(1)  # it has the mark (variable.py)
        found = call.norm(given.data_ptr(), order)
    return torch.tensor(found, dtype=torch.float32, device=ticket.device)


def _refusal(name: str, args: Any, ours: Any) -> RuntimeError:
    names = {repr(table.name) for one in ours if (of := variable_of(one)) is not None for table in of.tables}
    what = f"table {', '.join(sorted(names))}"
    is_changed = not name.endswith("_") or any(type(one) is Ticket for one in _listed(args[0]))
    if is_changed and all(type(one) is Ticket for one in ours):
        return RuntimeError(
            f"{name} of a gradient of {what}: it stands for rows' gradients, which may be added, "
            "multiplied by numbers and measured by a norm of them all, but not changed or read one by one. "
            "Clip by torch.nn.utils.clip_grad_norm_, or limit rows by max_norm= of the table"
        )
    return RuntimeError(
        f"{name} of a parameter that stands for {what}, whose rows are in no tensor: they move by step() of "
        "an optimizer of torch.optim that has the parameter, or by one of Keras. Begin with initializer= of "
        "the table, penalize by its l2=, read rows by het_tf.Table(name), and leave it out of what updates, "
        "measures or averages weights by hand"
    )
