"""Checks of a feature's inputs, the same on all backends."""

from typing import Any

from het_tf.python import ids as ids_lib
from het_tf.python.quoting import quoted
from het_tf.python.table.config import FeatureConfig


def named(feature: FeatureConfig) -> str:
    """Its name in messages."""
    return f"feature {quoted(str(feature.name))}"


def check_declared(feature: FeatureConfig, dtype: Any, rank: int | None) -> None:
    """`check_ids` for a declared input: JAX would cut its ids to 32 bits before a layer sees them."""
    check_ids(feature, dtype, rank)
    ids_lib.refuse_wide(dtype, f"{named(feature)}: ids")


def check_ids(feature: FeatureConfig, dtype: Any, rank: int | None) -> None:
    """Refuses ids of a wrong type or rank, also in symbolic calls without ids.

    Raises:
      ValueError: Names the feature, the fault and the remedy.
    """
    ids_lib.check_dtype(feature.name, dtype)
    if rank == 0:
        raise ValueError(f"{named(feature)}: ids are a scalar; give them a batch axis, shape [B] or [B, L]")
