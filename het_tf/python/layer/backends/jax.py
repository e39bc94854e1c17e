"""The layer on JAX: foreign functions and callbacks in one order; inside of jit, or at once.

    _look    rows of ids, by the engine        its derivative: _keep
    _keep    keeps gradients, gives tickets    its derivative: refused, nothing computes it
    apply    updates rows; where it reads variables of rates or meets other workers, a callback

JAX runs them in the order of the program, also those of later calls. It may return before they have run:
`het_tf.Table` and all else that asks the engine waits for them first (session/native.py). An error of one
ends the program as a JaxRuntimeError, whose text has that of the error.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax.interpreters import batching, mlir

from het_tf.python import backend, callers
from het_tf.python.backend import keras
from het_tf.python.layer.backends import dense, engine
from het_tf.python.session import native, settings
from het_tf.python.table.layer_state import Call, Update

JIT = True
not_converted = engine.not_converted
prepare = dense.prepare
cast = keras.ops.cast

(_ORDER,) = jax.make_jaxpr(lambda: jax.experimental.io_callback(tuple, (), ordered=True))().effects
(_TOKEN,) = jax.make_jaxpr(jax.lax.create_token)().out_avals  # the type of what carries the order


def check(layer: str) -> None:
    """Refuses programs over several processes: JAX runs a callback in one of them, with the batch of all."""
    if keras.distribution.distribution() is not None and jax.process_count() > 1:
        raise NotImplementedError(
            f"{layer!r} is used under keras.distribution over {jax.process_count()} processes, where one "
            "of them would look up the ids of all: leave the distribution out, and call "
            "het_tf.workers.distribute(model)"
        )


def anchor(variables: list[Any]) -> Any:
    """See __init__.py."""
    values = [one.value for one in variables]
    return values[0] if len(values) == 1 else jnp.concatenate(values)


def is_state(value: Any) -> bool:
    """See engine.py. Also an array that a step was given and that failed: Keras puts it back."""
    if isinstance(value, jax.core.Tracer):
        return False
    return is_deleted(value) or engine.is_state(value)


def is_deleted(value: Any) -> bool:
    """Whether it is an array that a step was given to reuse its memory."""
    return isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer) and value.is_deleted()


def keep_average(optimizer: Any, index: int, shape: tuple[int, ...]) -> None:
    """Leaves None, where Keras skips a variable; but not where it overwrites variables by their averages."""
    if optimizer.ema_overwrite_frequency:
        raise NotImplementedError(
            f"ema_overwrite_frequency is {optimizer.ema_overwrite_frequency} with tables on JAX, where Keras "
            "would multiply their variables; leave it out: fit still ends with the averages of the dense part"
        )


def lookup(call: Call, ids: list[dense.Ids], anchor: Any, training: bool) -> list[Any]:
    """Reads the rows of all features of a layer.

    Args:
      call: The layer's attributes.
      ids: For each feature integers of any shape, and None or their mask.
      anchor: The values of the variables of its tables, float32 [64 * variables, 2]; or anything.
      training: Whether a gradient may follow.

    Returns:
      One float32 array a feature, of shape `ids.shape + [dim]`.

    Raises:
      RuntimeError: A gradient is taken through jax.checkpoint.
    """
    step = engine.call_of(call.specs)
    flat, masks = tuple(one for one, _ in ids), tuple(mask for _, mask in ids)
    if training:
        if isinstance(anchor, jax.core.Tracer) and callers.of("fun_remat"):
            raise RuntimeError(
                "het_tf: a lookup of tables under jax.checkpoint (remat), which cannot keep the order of "
                "lookups: call the layer outside of it, and give it the rows"
            )
        return list(_look(step, jnp.asarray(anchor), flat, masks))
    return list(_look_up(step, *flat, *_masks(flat, masks), training=0))


def _host(what: str, function: Callable[..., Any], shapes: Any, *arrays: Any) -> Any:
    """Returns function(*arrays of numpy): at once, or in a traced program as an ordered callback."""
    flat = jax.tree.leaves(arrays)
    if not any(isinstance(one, jax.core.Tracer) for one in flat):
        backend.settle()
        return jax.tree.map(jnp.asarray, function(*arrays))
    try:
        return jax.experimental.io_callback(function, shapes, *arrays, ordered=True)
    except ValueError as error:
        if "vmap" not in str(error) and "batching" not in str(error).lower():
            raise
        raise _no_vmap(what) from None


def _no_vmap(what: str) -> RuntimeError:
    return RuntimeError(
        f"het_tf: {what} of tables under jax.vmap, which has no order of its calls: call the layer on "
        "ids [B, ...] outside of vmap"
    )


# --- foreign functions --------------------------------------------------------------------------------------


class _Foreign:
    """A function of capi/xla.h as a primitive of JAX, in the order of io_callback's ordered callbacks.

    A program for one CPU calls it with the addresses of its arrays. A program for a GPU, or for several
    devices, calls `host` back. Outside of programs `host` runs at once.

    Args:
      name: Of the function, for XLA.
      target: That of capi/xla.h.
      what: For messages.
      host: (step, *arrays of numpy, **attributes) -> list of arrays.
      results: (step, *arrays, **attributes) -> shapes and dtypes of these.
    """

    def __init__(self, name: str, target: str, what: str, host: Any, results: Any) -> None:
        def at_once(*arrays: Any, specs: str, **attributes: int) -> Any:
            return _host(what, functools.partial(host, engine.call_of(specs), **attributes), None, *arrays)

        def shapes(*arrays: Any, specs: str, **attributes: int) -> Any:
            return results(engine.call_of(specs), *arrays, **attributes), {_ORDER}

        def callback(*arrays: Any, specs: str, **attributes: int) -> Any:
            step = engine.call_of(specs)
            found = results(step, *arrays, **attributes)
            return _host(what, functools.partial(host, step, **attributes), found, *arrays)

        def foreign(ctx: Any, *arrays: Any, specs: str, **attributes: int) -> Any:
            devices = ctx.module_context.axis_context
            if not isinstance(devices, mlir.ShardingContext) or devices.num_devices > 1:
                return by_callback(ctx, *arrays, specs=specs, **attributes)
            with_token = ctx.replace(avals_in=[_TOKEN, *ctx.avals_in], avals_out=[_TOKEN, *ctx.avals_out])
            numbers = {key: np.int64(one) for key, one in attributes.items()}
            token, *found = jax.ffi.ffi_lowering(name, has_side_effect=True)(
                with_token, ctx.tokens_in.get(_ORDER), *arrays, specs=specs, **numbers
            )
            wait(ctx.replace(avals_in=ctx.avals_in[-1:], avals_out=[]), arrays[-1])
            ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({_ORDER: token})))
            return found

        def refuse(*_: Any, **__: Any) -> Any:
            raise _no_vmap(what)

        by_callback, wait = mlir.lower_fun(callback), mlir.lower_fun(_wait)
        primitive = jax.extend.core.Primitive(name)
        primitive.multiple_results = True
        primitive.def_impl(at_once)
        primitive.def_effectful_abstract_eval(shapes)
        batching.primitive_batchers[primitive] = refuse
        mlir.register_lowering(primitive, by_callback)
        mlir.register_lowering(primitive, foreign, platform="cpu")
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(native.library[target]), platform="cpu")
        self._primitive = primitive

    def __call__(self, step: engine.Call, *arrays: Any, **attributes: int) -> Any:
        return self._primitive.bind(*arrays, specs=step.specs, **attributes)


def _wait(x: Any) -> list[Any]:
    """Lets JAX wait for the program: it does so for one that has a callback of Python, taken or not.

    So an error is that of its program alone. Else JAX would hand it on with the order, to all later ones.
    """
    taken = jnp.ravel(x)[:1].sum() == 0x5EED
    jax.lax.cond(taken, lambda: jax.experimental.io_callback(lambda: None, None), lambda: None)
    return []


def _masks(ids: Any, masks: Any) -> tuple[Any, ...]:
    """Returns a mask for each feature, or none if no feature has one.

    A mask leaves ids out: their rows are zeros, and their gradients go nowhere.
    """
    if all(one is None for one in masks):
        return ()
    return tuple(jnp.ones(x.shape, bool) if m is None else m for x, m in zip(ids, masks, strict=True))


def _look_on_host(step: engine.Call, *arrays: Any, training: int) -> list[Any]:
    ids, masks = _inputs(step, arrays)  # alive until the call has ended
    rows = [np.empty(one.shape, one.dtype) for one in _shapes_of_rows(step, *arrays, training=0)]
    addresses = engine.Arrays.of(rows).addresses
    token = step.lookup(engine.Arrays.of(ids), engine.Arrays.of(masks), addresses, bool(training))
    return [*rows, np.array([token >> 32, token & 0xFFFFFFFF], np.uint32)][: len(rows) + training]


def _shapes_of_rows(step: engine.Call, *arrays: Any, training: int) -> list[Any]:
    """Of rows, and in training of the token in two halves: JAX may have no 64-bit integers."""
    shapes = [(*one.shape, dim) for one, dim in zip(arrays, step.dims, strict=False)]
    rows = [jax.core.ShapedArray(shape, np.dtype("float32")) for shape in shapes]
    return [*rows, jax.core.ShapedArray((2,), np.dtype("uint32"))][: len(rows) + training]


def _keep_on_host(step: engine.Call, token: Any, *arrays: Any, worker: int) -> list[Any]:
    high, low = (int(one) for one in np.asarray(token))
    gradients = [np.ascontiguousarray(one) for one in arrays[: len(step.dims)]]
    ids, masks = _inputs(step, arrays[len(step.dims) :])
    addresses = engine.Arrays.of(gradients).addresses
    of_ids, of_masks = engine.Arrays.of(ids), engine.Arrays.of(masks)
    tickets = np.empty((engine.SLOTS * step.variables, 2), np.float32)
    step.keep(of_ids, of_masks, addresses, high << 32 | low, worker, engine.address(tickets))
    return [tickets]


def _shapes_of_tickets(step: engine.Call, *_: Any, worker: int) -> list[Any]:
    del worker
    return [jax.core.ShapedArray((engine.SLOTS * step.variables, 2), np.dtype("float32"))]


def _inputs(step: engine.Call, arrays: Any) -> tuple[list[Any], list[Any]]:
    """Returns ids, and masks if there are some, as arrays of numpy."""
    ids = [np.ascontiguousarray(one, np.int64) for one in arrays[: len(step.dims)]]
    return ids, [np.ascontiguousarray(one) for one in arrays[len(step.dims) :]]


def _apply_on_host(step: engine.Call, ticket: Any, rates: Any) -> list[Any]:
    ticket = np.ascontiguousarray(ticket, np.float32)
    step.apply(engine.address(ticket), [float(one) for one in np.asarray(rates)], False)
    return []


def _shapes_of_nothing(*_: Any) -> list[Any]:
    return []


_look_up = _Foreign("het_lookup", "HetXlaLookup", "a lookup", _look_on_host, _shapes_of_rows)
_keep_gradients = _Foreign("het_keep", "HetXlaKeep", "a gradient", _keep_on_host, _shapes_of_tickets)
_apply_kept = _Foreign("het_apply", "HetXlaApply", "an update", _apply_on_host, _shapes_of_nothing)


# --- derivatives --------------------------------------------------------------------------------------------


def _read(step: engine.Call, ids: Any, masks: Any) -> tuple[Any, Any]:
    *rows, token = _look_up(step, *ids, *_masks(ids, masks), training=1)
    return tuple(rows), token


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _read_once(step: engine.Call, anchor: Any, ids: Any, masks: Any) -> Any:
    """Rows and token of a lookup whose gradient is taken, which depend on the anchor once more."""
    del anchor
    return _read(step, ids, masks)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _look(step: engine.Call, anchor: Any, ids: Any, masks: Any) -> Any:
    """Rows of ids; the gradient of the anchor has their tickets."""
    del anchor
    return _read(step, ids, masks)[0]


def _look_forward(step: engine.Call, anchor: Any, ids: Any, masks: Any) -> Any:
    rows, token = _read_once(step, anchor, ids, masks)
    return rows, (token, ids, masks)


def _look_backward(step: engine.Call, kept: Any, gradients: Any) -> Any:
    token, ids, masks = kept
    tickets = _keep(step, token, ids, masks, gradients)
    return (tickets, *jax.tree.map(_no_gradient, (ids, masks)))


def _no_gradient(x: Any) -> Any:
    return np.zeros(x.shape, jax.dtypes.float0)


_look.defvjp(_look_forward, _look_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _keep(step: engine.Call, token: Any, ids: Any, masks: Any, gradients: Any) -> Any:
    """Keeps the gradients of rows, and returns their tickets."""
    rank = settings.workers().rank
    return _keep_gradients(step, token, *gradients, *ids, *_masks(ids, masks), worker=rank)[0]


def _refuse(*arguments: Any) -> Any:
    raise RuntimeError(engine.NO_SECOND)


_keep.defvjp(_refuse, _refuse)
_read_once.defvjp(_refuse, _refuse)


def updates(call: Update, ticket: Any) -> Any:
    """Returns how often each table was updated, int32 [tables], in the program that has the ticket."""
    step = engine.call_of(call.specs)

    def count(_: Any) -> Any:
        return np.minimum(step.applies(), 2**31 - 1).astype(np.int32)

    return _host("a schedule", count, jax.ShapeDtypeStruct((len(call.tables),), jnp.int32), ticket)


def apply(call: Update, ticket: Any, rates: list[Any], bulk_synchronous: bool) -> None:
    """Updates rows by the gradients that a ticket, float32 [64, 2], stands for.

    Args:
      call: The variable's.
      ticket: float32 [64, 2].
      rates: Each table's learning rate: a float, a variable, which is read when rows are updated, or a scalar
        array.
      bulk_synchronous: Whether the next read of any worker must see this update.
    """
    step = engine.call_of(call.specs)
    if settings.workers().size == 1 and not any(isinstance(one, keras.Variable) for one in rates):
        numbers = jnp.stack([jnp.asarray(one, jnp.float32) for one in rates])
        _apply_kept(step, jnp.asarray(ticket, jnp.float32), numbers)
        return
    arrays = [one for one in rates if isinstance(one, jax.Array)]

    def update(ticket: Any, *arrays: Any) -> Any:
        given = iter(arrays)
        numbers = [float(next(given)) if isinstance(one, jax.Array) else _number(one) for one in rates]
        ticket = np.ascontiguousarray(ticket, np.float32)
        step.apply(engine.address(ticket), numbers, bulk_synchronous)
        return ()

    _host("an update", update, (), ticket, *arrays)


def _number(rate: Any) -> float:
    return float(np.asarray(rate._value)) if isinstance(rate, keras.Variable) else float(rate)
