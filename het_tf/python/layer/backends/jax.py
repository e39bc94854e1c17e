"""The layer on JAX: ordered callbacks, with a derivative of their own; inside of jit, or at once.

    _look    rows of ids, by the engine        its derivative: _keep
    _keep    keeps gradients, gives tickets    its derivative: refused, nothing computes it

JAX runs ordered callbacks in the order of the program, also those of later calls. It returns before they
have run: `het_tf.Table` and all else that asks the engine waits for them first (session/native.py). An error
of one ends the program as a JaxRuntimeError, whose text has that of the error.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np

from het_tf.python import backend
from het_tf.python.backend import keras
from het_tf.python.layer.backends import dense, engine
from het_tf.python.table.layer_state import Call, Update

JIT = True
merged = engine.merged
not_converted = engine.not_converted
prepare = dense.prepare
cast = keras.ops.cast


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
    return (isinstance(value, jax.Array) and value.is_deleted()) or engine.is_state(value)


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
    """
    step = engine.call_of(call.specs)
    flat, masks = tuple(one for one, _ in ids), tuple(mask for _, mask in ids)
    if training:
        return list(_look(step, jnp.asarray(anchor), flat, masks))
    return list(_read(step, False, flat, masks)[0])


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
        raise RuntimeError(
            f"het_tf: {what} of tables under jax.vmap, which has no order of its calls: call the layer on "
            "ids [B, ...] outside of vmap"
        ) from None


def _joined(arrays: Any) -> Any:
    """Returns arrays as one vector: a callback takes one array sooner than many."""
    return jnp.concatenate([one.ravel() for one in arrays]) if len(arrays) > 1 else arrays[0].ravel()


def _parts(vector: Any, shapes: Any) -> list[Any]:
    """Returns the arrays of a vector, in place."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    begins = [0, *ends[:-1]]
    return [vector[begin:end].reshape(shape) for begin, end, shape in zip(begins, ends, shapes, strict=True)]


class _Inputs:
    """The ids and masks of a lookup, joined for a callback.

    A mask leaves ids out: their rows are zeros, and their gradients go nowhere.

    Attributes:
      arrays: One vector of ids, and one of masks if a feature has one.
      shapes: Of the rows of each feature.
      floats: Of all rows.
    """

    def __init__(self, step: engine.Call, ids: Any, masks: Any) -> None:
        self.shapes = [(*one.shape, dim) for one, dim in zip(ids, step.dims, strict=True)]
        self.floats = sum(math.prod(shape) for shape in self.shapes)
        self.arrays = [_joined(ids)]
        self._dims = step.dims
        self._counts = [math.prod(one.shape) for one in ids]
        if any(one is not None for one in masks):
            pairs = zip(ids, masks, strict=True)
            self.arrays.append(_joined([jnp.ones(x.shape, bool) if m is None else m for x, m in pairs]))

    def kept(self, ids: Any, mask: Any = None) -> "_Kept":
        """Returns the ids that a callback got, but those that are masked."""
        ids, counts, floats = np.ascontiguousarray(ids, np.int64), self._counts, None
        if mask is not None:
            mask = np.asarray(mask)
            each = np.split(mask, np.cumsum(counts)[:-1])
            ids, counts = ids[mask], [int(one.sum()) for one in each]
            floats = np.concatenate([one.repeat(dim) for one, dim in zip(each, self._dims, strict=True)])
        return _Kept(ids, counts, self._dims, floats)


class _Kept:
    """The ids of a callback that are not masked.

    Attributes:
      ids: Their arrays.
    """

    def __init__(self, ids: Any, counts: list[int], dims: tuple[int, ...], mask: Any) -> None:
        self._vector = ids  # which `ids` has the addresses of
        self._floats = [count * dim for count, dim in zip(counts, dims, strict=True)]
        self._mask = mask  # of floats
        self.ids = engine.Arrays(_begins(ids, counts), counts)

    def read(self, step: engine.Call, training: bool) -> tuple[Any, int]:
        """Returns the rows of all features as one vector, and the step's token."""
        rows = np.empty(sum(self._floats), np.float32)
        token = step.lookup(self.ids, _begins(rows, self._floats), training)
        if self._mask is not None:
            rows, given = np.zeros(len(self._mask), np.float32), rows
            rows[self._mask] = given
        return rows, token

    def keep(self, step: engine.Call, gradients: Any, token: int) -> Any:
        """Keeps the gradients of all rows, one vector, and returns tickets."""
        given = gradients if self._mask is None else gradients[self._mask]
        return step.keep(self.ids, _begins(given, self._floats), token)


def _begins(vector: Any, counts: list[int]) -> list[int]:
    """Returns the addresses of the parts of a vector."""
    size = vector.itemsize
    offsets = itertools.accumulate(counts, initial=0)
    first = engine.address(vector)
    return [first + size * offset for offset, _ in zip(offsets, counts, strict=False)]


def _read(step: engine.Call, training: bool, ids: Any, masks: Any) -> tuple[Any, Any]:
    """Returns rows, and the token in two halves: JAX may have no 64-bit integers."""
    inputs = _Inputs(step, ids, masks)

    def read(*arrays: Any) -> Any:
        rows, token = inputs.kept(*arrays).read(step, training)
        return rows, np.array([token >> 32, token & 0xFFFFFFFF], np.uint32)

    shapes = jax.ShapeDtypeStruct((inputs.floats,), jnp.float32), jax.ShapeDtypeStruct((2,), jnp.uint32)
    rows, token = _host("a lookup", read, shapes, *inputs.arrays)
    return tuple(_parts(rows, inputs.shapes)), token


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _read_once(step: engine.Call, anchor: Any, ids: Any, masks: Any) -> Any:
    """Rows and token of a lookup whose gradient is taken, which depend on the anchor once more."""
    del anchor
    return _read(step, True, ids, masks)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _look(step: engine.Call, anchor: Any, ids: Any, masks: Any) -> Any:
    """Rows of ids; the gradient of the anchor has their tickets."""
    del anchor
    return _read(step, True, ids, masks)[0]


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
    inputs = _Inputs(step, ids, masks)

    def keep(token: Any, gradients: Any, *arrays: Any) -> Any:
        high, low = (int(one) for one in np.asarray(token))
        return inputs.kept(*arrays).keep(step, np.asarray(gradients), high << 32 | low)

    shape = jax.ShapeDtypeStruct((engine.SLOTS * step.variables, 2), jnp.float32)
    return _host("a gradient", keep, shape, token, _joined(gradients), *inputs.arrays)


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
    arrays = [one for one in rates if isinstance(one, jax.Array)]

    def update(ticket: Any, *arrays: Any) -> Any:
        given = iter(arrays)
        step.apply(
            np.asarray(ticket),
            [float(next(given)) if isinstance(one, jax.Array) else _number(one) for one in rates],
            bulk_synchronous,
        )
        return ()

    _host("an update", update, (), ticket, *arrays)


def _number(rate: Any) -> float:
    return float(np.asarray(rate._value)) if isinstance(rate, keras.Variable) else float(rate)
