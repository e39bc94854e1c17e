"""The hidden truth of the Criteo-like stream: the logit of a click, and noisy numeric views of it.

    logit(row) = bias + sum over fields of w[field, id] + sum over pairs of <v[field, id], v[other, id']>

Weights w and latent vectors v are normal variates hashed from (field, id), so nothing is stored, and
each of the 33.8 million ids has its own. They belong to the data set, not to a seed: streams of different
seeds share one truth, and a model trained on one may be tested on another.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping

import numpy as np

from het_tf.python.hashing import GAMMA, UInt64Array, mix, salt
from het_tf.zoo.data.criteo_curves import criteo_like_parameters
from het_tf.zoo.data.criteo_ids import BLOCK, field_names, row_bits
from het_tf.zoo.data.examples import Examples, FloatArray, Int64Array

TRUTH = 775
"""Salt of the weights, chosen among 1,800 for the click rate and AUCs of criteo_like.json."""

# criteo_like.json's `latent_sd` of 0.2 is the latent vectors' variance: as a standard deviation it gives the
# oracle an AUC of 0.78; as a variance the oracle has the stated 0.82 and the first order 0.77.

INFORMATIVE = 4
SIGNAL = 0.2
TRUTH_MEAN = -1.39
TRUTH_SD = 1.5
"""Numeric columns I1 to I4 correlate by SIGNAL with the logit, which has this mean and standard deviation."""

NUMERIC_NAMES = tuple(f"I{number}" for number in range(1, 14))


@functools.cache
def _normal_quantiles() -> FloatArray:
    """Returns the standard normal quantiles of 2^16 equal parts, float32."""
    inverse = statistics.NormalDist().inv_cdf
    return np.array([inverse((part + 0.5) / 65536) for part in range(65536)], np.float32)


def _normals(bits: UInt64Array, number: int) -> FloatArray:
    """Returns the `number`-th (0 to 3) standard normal variate of 64-bit hashes, float32 `[N]`."""
    part = (bits >> np.uint64(16 * number)) & np.uint64(0xFFFF)
    return np.take(_normal_quantiles(), part.view(np.int64), mode="clip")


def logits(ids: Mapping[str, Int64Array], pairs: bool = True) -> FloatArray:
    """Returns the true logits of rows of ids.

    Args:
      ids: int64 `[N]` by field name, from `draw_ids`.
      pairs: False for only the first-order terms.

    Returns:
      float32 `[N]`.
    """
    rows = len(next(iter(ids.values())))
    result = np.empty(rows, np.float32)
    for begin in range(0, rows, BLOCK):
        part = slice(begin, begin + BLOCK)
        result[part] = _block_logits({name: column[part] for name, column in ids.items()}, pairs)
    return result


def _block_logits(ids: Mapping[str, Int64Array], pairs: bool) -> FloatArray:
    labels = criteo_like_parameters()["labels"]
    hashes = {
        name: mix(ids[name].astype(np.uint64) * GAMMA + salt("truth", TRUTH, name)) for name in field_names()
    }
    result = np.full(len(ids["C1"]), labels["bias"], np.float32)
    for bits in hashes.values():
        result += np.float32(labels["first_order_sd"]) * _normals(bits, 0)
    if pairs:
        paired = {name for pair in labels["pairs"] for name in pair}
        vectors = {name: [_normals(hashes[name], 1 + part) for part in range(3)] for name in paired}
        for one, other in labels["pairs"]:
            for u, v in zip(vectors[one], vectors[other], strict=True):
                result += np.float32(labels["latent_sd"]) * u * v
    return result


def oracle_logit(examples: Examples, pairs: bool = True) -> FloatArray:
    """Returns the true logits of `criteo_like` rows: the output of a perfect model.

    Args:
      examples: rows from `criteo_like` or a `CriteoLikeStream`, of any seed.
      pairs: False for only the first-order terms, the best that a purely linear truth could explain.

    Returns:
      float32 `[N]`; the click probability is their sigmoid.

    Raises:
      ValueError: if a field of C1 to C26 is missing.
    """
    missing = [name for name in field_names() if name not in examples.categorical]
    if missing:
        raise ValueError(f"the examples lack the fields {missing}; pass rows that criteo_like made.")
    return logits(examples.categorical, pairs)


def draw_labels(truth: FloatArray, seed: int, start: int) -> FloatArray:
    """Returns labels, float32 `[N]`, drawn with the probabilities sigmoid(truth) for rows from `start` on."""
    bits = row_bits(np.arange(start, start + len(truth)), seed, "label")
    uniform = ((bits >> np.uint64(40)).astype(np.float32) + np.float32(0.5)) * np.float32(2**-24)
    clicked: FloatArray = (uniform * (1 + np.exp(-truth)) < 1).astype(np.float32)
    return clicked


def draw_numeric(truth: FloatArray, seed: int, start: int) -> FloatArray:
    """Returns the numeric columns, float32 `[N, 13]`, of rows from `start` on; none is negative."""
    rows = np.arange(start, start + len(truth))
    result = np.empty((len(truth), len(NUMERIC_NAMES)), np.float32)
    standard = (truth - np.float32(TRUTH_MEAN)) / np.float32(TRUTH_SD)
    signal = np.float32(SIGNAL)
    noise = np.sqrt(1 - signal * signal)
    for column in range(len(NUMERIC_NAMES)):
        if column % 4 == 0:
            bits = row_bits(rows, seed, f"numeric {column // 4}")
        value = _normals(bits, column % 4)
        if column < INFORMATIVE:
            value = signal * standard + noise * value
        # A mean of 1 to 4 and an sd of 1.2 on the scale of log(x + 1): counts up to some hundreds, and zeros.
        result[:, column] = np.maximum(1 + column % 4 + np.float32(1.2) * value, 0)
    return result
