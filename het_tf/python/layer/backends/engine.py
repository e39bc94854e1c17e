"""The steps of a layer on arrays, by the C functions of capi/steps.h: what PyTorch and JAX share.

Ids, rows and gradients are read and written where they are, by their addresses.
"""

import ctypes
import functools
import json
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from het_tf.python import calling
from het_tf.python.backend import keras
from het_tf.python.session import collective, native, settings

Array = npt.NDArray[Any]
SLOTS = 64  # KeptGradients::kSlots
NO_SECOND = (
    "het_tf: the gradient of a gradient goes through the gradient of an embedding's rows, which has no "
    "derivative. Leave the tables' variables (layer.trainable_variables) out of the inner gradient"
)

_ADDRESS = ctypes.c_void_p
_lookup = calling.bound(native.library, "HetCallLookup", *[_ADDRESS] * 6)
_keep = calling.bound(
    native.library, "HetCallKeep", *[_ADDRESS] * 5, ctypes.c_uint64, ctypes.c_int64, _ADDRESS
)
_apply = calling.bound(native.library, "HetCallApply", *[_ADDRESS] * 3, ctypes.c_float)
_norm = calling.bound(native.library, "HetCallNorm", *[_ADDRESS] * 2, ctypes.c_double, _ADDRESS)
_accumulate = calling.bound(
    native.library, "HetCallAccumulate", _ADDRESS, ctypes.c_char_p, *[_ADDRESS] * 2, ctypes.c_float
)
_plan = calling.bound(native.library, "HetCallPlan", *[_ADDRESS] * 3, ctypes.c_size_t)


class Arrays(NamedTuple):
    """Contiguous arrays, one a feature, as the engine gets them; the caller keeps them alive.

    Attributes:
      addresses: Of their first elements; None where a feature has no mask.
      counts: Of their elements.
    """

    addresses: Sequence[int | None]
    counts: Sequence[int]

    @classmethod
    def of(cls, arrays: Sequence[Array]) -> "Arrays":
        """Returns arrays of numpy, which are contiguous."""
        return cls([address(one) for one in arrays], [one.size for one in arrays])


class Call:
    """The calls of one spec: a layer's lookups, or a variable's updates. Thread-safe.

    Args:
      specs: JSON of core/engine/call_spec.h.

    Attributes:
      specs: As given.
      dims: Floats of a row of each feature.
      variables: Number of different variables.
    """

    def __init__(self, specs: str) -> None:
        handle = ctypes.c_void_p()
        sizes = json.loads(native.call_in_step("HetCallOpen", specs, ctypes.byref(handle)))
        native.library.HetCallClose.restype = None
        weakref.finalize(self, native.library.HetCallClose, handle).atexit = False
        parsed = json.loads(specs)
        self._handle = handle
        self.specs = specs
        self._tables: int = sizes["tables"]
        self.dims = tuple(parsed["tables"][one["table"]]["dim"] for one in parsed["features"])
        self.variables: int = sizes["tickets"] // (2 * SLOTS)
        # ctypes makes a type of an array anew whenever none is alive.
        self._addresses, self._counts = ctypes.c_void_p * len(self.dims), ctypes.c_size_t * len(self.dims)
        self._rates = ctypes.c_float * self._tables

    def lookup(self, ids: Arrays, masks: Arrays, rows: Sequence[int | None], training: bool) -> int:
        """Writes the rows of all features. Returns the step's token; 0 without training.

        Args:
          ids: int64.
          masks: No arrays; or bools, False for ids that are left out: their rows are zeros.
          rows: For each feature the address of float32 [ids, dim].
          training: Whether a gradient may follow.
        """
        token = ctypes.c_uint64()
        _lookup(
            self._handle, *self._pointers(ids), self._addresses(*masks.addresses),
            self._addresses(*rows), ctypes.byref(token) if training else None,
        )  # fmt: skip
        return token.value

    def plan(self, ids: Sequence[Array], masks: Sequence[Array | None], window: int) -> None:
        """Announces a lookup of these ids (ext/streams/capi/plan.h).

        Args:
          ids: For each feature int64 of any shape, contiguous.
          masks: For each None, or bools of its shape: False for ids that the lookup leaves out.
          window: Batches that may be planned.
        """
        kept = [one if mask is None else one[mask] for one, mask in zip(ids, masks, strict=True)]
        _plan(self._handle, *self._pointers(Arrays.of(kept)), window)

    def keep(
        self,
        ids: Arrays,
        masks: Arrays,
        gradients: Sequence[int | None],
        token: int,
        worker: int,
        tickets: int,
    ) -> None:
        """Keeps the gradients of the rows that a token stands for.

        Args:
          ids: As in the lookup.
          masks: Likewise.
          gradients: For each feature the address of float32 [ids, dim].
          token: Of the lookup.
          worker: The rank.
          tickets: The address of float32 [64 * variables, 2], which gets them.
        """
        _keep(
            self._handle, *self._pointers(ids), self._addresses(*masks.addresses),
            self._addresses(*gradients), token, worker, tickets,
        )  # fmt: skip

    def apply(self, ticket: int, rates: Sequence[float], bulk_synchronous: bool) -> None:
        """Updates the rows of a variable by the kept gradients that a ticket, float32 [64, 2], chooses.

        Args:
          ticket: Its address.
          rates: One a table.
          bulk_synchronous: Of several workers, whether the next read of any must see this update.
        """
        arguments = ticket, self._rates(*rates), collective.gradient_scale()
        if settings.accumulates():
            _accumulate(self._handle, b"het_tf.accumulate", *arguments)
        else:
            _apply(self._handle, *arguments)
        if bulk_synchronous:
            settings.workers().sum(np.zeros(1, np.float32), "het_tf.updated")

    def norm(self, ticket: int, order: float) -> float:
        """Returns the norm of the gradient that `apply` would apply, of an order above 0."""
        norm = ctypes.c_double()
        _norm(self._handle, ticket, order, ctypes.byref(norm))
        return norm.value

    def applies(self) -> npt.NDArray[np.int64]:
        """Returns how often each table was updated."""
        counts = np.empty(self._tables, np.int64)
        native.call_in_step("HetCallApplies", self._handle, counts)
        return counts

    def _pointers(self, arrays: Arrays) -> tuple[Any, Any]:
        return self._addresses(*arrays.addresses), self._counts(*arrays.counts)


@functools.lru_cache(maxsize=1024)
def call_of(specs: str) -> Call:
    """Returns the calls of a spec, which are made once."""
    return Call(specs)


def address(array: Array) -> int:
    """Returns where an array of numpy begins; it may be read-only."""
    return int(array.__array_interface__["data"][0])


# --- what backends without graphs, strategies and replicas have in common -----------------------------------


def check(layer: str) -> None:
    """See __init__.py: nothing is refused."""
    del layer


def is_state(value: Any) -> bool:
    """Whether Keras puts a variable's own value back: zeros, which `fit` holds on JAX, or their average."""
    return value is None or not np.any(keras.ops.convert_to_numpy(value))


def not_converted(method: Any) -> Any:
    """Returns the method: nothing converts it."""
    return method
