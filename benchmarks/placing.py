"""Placed streams of benchmarks: which samples each worker takes of a whole stream."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from het_tf.ext.streams.python.placement import Placement
from het_tf.python.session.native import tf


def orders(placement: Placement, owners: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the samples of each global batch, by the owner of each sample of the stream.

    Returns:
      int64 `[steps, workers, batch]`: numbers of samples; a last incomplete global batch is left out.
    """
    steps = len(owners) // placement.samples
    blocks = owners[: steps * placement.samples].reshape(steps, -1)
    found = [placement.order(tf.constant(block)).numpy() for block in blocks]
    return np.stack(found) + np.arange(steps)[:, None, None] * placement.samples
