"""The steps of a layer on arrays, by the C functions of capi/steps.h: what PyTorch and JAX share.

Ids, rows and gradients are read and written where they are. A mask leaves ids out: their rows are zeros, and
their gradients go nowhere; only features with one are copied.
"""

import ctypes
import functools
import json
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.backend import keras
from het_tf.python.session import collective, native, settings

Array = npt.NDArray[Any]
SLOTS = 64  # KeptGradients::kSlots
NO_SECOND = (
    "het_tf: the gradient of a gradient goes through the gradient of an embedding's rows, which has no "
    "derivative. Leave the tables' variables (layer.trainable_variables) out of the inner gradient"
)


class Call:
    """The calls of one spec: a layer's lookups, or a variable's updates. Thread-safe.

    Args:
      specs: JSON of core/engine/call_spec.h.

    Attributes:
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
        self._tables: int = sizes["tables"]
        self.dims = tuple(parsed["tables"][one["table"]]["dim"] for one in parsed["features"])
        self.variables: int = sizes["tickets"] // (2 * SLOTS)

    def lookup(
        self, ids: Sequence[Array], masks: Sequence[Array | None], rows: Sequence[Array], training: bool
    ) -> int:
        """Writes the rows of all features. Returns the step's token; 0 without training.

        Args:
          ids: For each feature int64 of any shape, contiguous.
          masks: For each None, or bools of its shape: False for ids to leave out.
          rows: For each float32 `ids.shape + [dim]`, contiguous.
          training: Whether a gradient may follow.
        """
        token = ctypes.c_uint64()
        kept = _chosen(ids, masks)
        into = [
            out if mask is None else np.empty((len(one), dim), np.float32)
            for one, mask, out, dim in zip(kept, masks, rows, self.dims, strict=True)
        ]
        self._call(
            "HetCallLookup", _pointers(kept), _counts(kept), _pointers(into),
            ctypes.byref(token) if training else None,
        )  # fmt: skip
        for mask, part, out in zip(masks, into, rows, strict=True):
            if mask is not None:
                out.fill(0)
                out[mask] = part
        return token.value

    def plan(self, ids: Sequence[Array], masks: Sequence[Array | None], window: int) -> None:
        """Announces a lookup of these ids, as `lookup` will have them (ext/window/capi/plan.h)."""
        kept = _chosen(ids, masks)
        self._call("HetCallPlan", _pointers(kept), _counts(kept), ctypes.c_size_t(window))

    def keep(
        self, ids: Sequence[Array], masks: Sequence[Array | None], gradients: Sequence[Array], token: int
    ) -> npt.NDArray[np.float32]:
        """Keeps the gradients of the rows that a token stands for. Returns tickets, [64 * variables, 2].

        Args:
          ids: As in the lookup.
          masks: As in the lookup.
          gradients: For each feature float32 as its rows, contiguous.
          token: Of the lookup.
        """
        tickets = np.empty((SLOTS * self.variables, 2), np.float32)
        kept = _chosen(ids, masks)
        given = [
            one if mask is None else np.ascontiguousarray(one[mask])
            for mask, one in zip(masks, gradients, strict=True)
        ]
        self._call(
            "HetCallKeep", _pointers(kept), _counts(kept), _pointers(given), ctypes.c_uint64(token),
            settings.workers().rank, tickets,
        )  # fmt: skip
        return tickets

    def apply(self, ticket: Array, rates: Sequence[float]) -> None:
        """Updates the rows of a variable by the kept gradients that a ticket, float32 [64, 2], chooses."""
        self._call(
            "HetCallApply", np.ascontiguousarray(ticket, np.float32), np.asarray(rates, np.float32),
            ctypes.c_float(collective.gradient_scale()),
        )  # fmt: skip

    def applies(self) -> npt.NDArray[np.int64]:
        """Returns how often each table was updated."""
        counts = np.empty(self._tables, np.int64)
        self._call("HetCallApplies", counts)
        return counts

    def _call(self, function: str, *arguments: Any) -> None:
        native.call_in_step(function, self._handle, *arguments)


@functools.lru_cache(maxsize=1024)
def call_of(specs: str) -> Call:
    """Returns the calls of a spec, which are made once."""
    return Call(specs)


def _chosen(ids: Sequence[Array], masks: Sequence[Array | None]) -> list[Array]:
    return [one if mask is None else one[mask] for one, mask in zip(ids, masks, strict=True)]


def _pointers(arrays: Sequence[Array]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*[one.__array_interface__["data"][0] for one in arrays])


def _counts(arrays: Sequence[Array]) -> Any:
    return (ctypes.c_size_t * len(arrays))(*[one.size for one in arrays])


# --- what backends without graphs, strategies and replicas have in common -----------------------------------


def check(layer: str) -> None:
    """See __init__.py: nothing is refused."""
    del layer


def merged(ticket: Any, update: Callable[[Any], None]) -> None:
    """Calls `update` with the ticket: there are no replicas."""
    update(ticket)


def is_state(value: Any) -> bool:
    """Whether Keras puts a variable's own value back: zeros, which `fit` holds on JAX, or their average."""
    return value is None or not np.any(keras.ops.convert_to_numpy(value))


def not_converted(method: Any) -> Any:
    """Returns the method: nothing converts it."""
    return method
