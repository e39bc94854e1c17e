"""Several workers on PyTorch and JAX, whose collectives are on arrays (mesh.py)."""

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from het_tf.python.backend import keras
from het_tf.python.session import collective, settings

# What torch.py and jax.py have of this file.
__all__ = ["end_passes", "fits", "have_values", "outside_graphs", "settle", "value"]

outside_graphs = contextlib.nullcontext


def have_values(weights: Iterable[Any]) -> bool:
    """Whether weights have values: those of a built model have."""
    del weights
    return True


def value(variable: Any) -> Any:
    """Returns the value of a variable as an array."""
    return keras.ops.convert_to_numpy(variable)


def fits(model: Any, fit: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `fit`, which refuses data of unknown length. Every rank must call it."""
    del model
    signature = inspect.signature(fit)

    @wraps(fit)
    def run(x: Any = None, *args: Any, **kwargs: Any) -> Any:
        if settings.workers().size == 1:
            return fit(x, *args, **kwargs)
        try:
            given = signature.bind(x, *args, **kwargs).arguments
        except TypeError:  # fit raises a better error, on every rank
            return fit(x, *args, **kwargs)
        unknown = given.get("steps_per_epoch") is None and not _has_length(x)
        for rank, kind in enumerate(collective.gather(type(x).__name__ if unknown else "", "lengths")):
            if kind:
                raise ValueError(
                    f"x is a {kind} of unknown length on rank {rank}: when the data of one rank has ended, "
                    "the others would wait for ever; give steps_per_epoch, or data that has a length"
                )
        return fit(x, *args, **kwargs)

    return run


def _has_length(x: Any) -> bool:
    """Whether Keras knows the number of batches of an epoch."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and isinstance(x, tensorflow.data.Dataset):
        return int(x.cardinality()) >= 0
    if inspect.isgenerator(x) or getattr(x, "num_batches", 0) is None:  # or a PyDataset
        return False
    if hasattr(x, "__iter__") and not hasattr(x, "__array__") and not isinstance(x, (list, tuple, dict)):
        with contextlib.suppress(TypeError):  # a DataLoader of a stream
            return len(x) >= 0
        return hasattr(x, "num_batches")
    return True


def settle() -> None:
    """Does nothing: no stream holds back rows."""


end_passes = settle
