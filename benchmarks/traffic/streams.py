"""The streams of traffic: ids of real and Criteo-like rows, in files that the C++ program maps.

A file's layout stands in benchmarks/traffic/stream.h. Fields share one space of keys, each behind the ones
before it, as the tables of het_tf's models do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from criteo_like import curve, draw_ids
from criteo_like import fields as criteo_fields
from data import CRITEO_FIELDS, load

from benchmarks.placing import orders
from benchmarks.traffic.graph_like import graph_like
from het_tf.ext.streams.python.location import LOCATION, SLOTS, keys_of
from het_tf.ext.streams.python.placement import RULE, Placement, hashes
from het_tf.python.session import native
from het_tf.python.session.native import tf

MAGIC = 0x31534D4152545348
FORMAT = 5
"""Part of the file's name: another generator, another name."""

GRAPH_FANOUTS = (10, 5)
GRAPH_PIECE = 1 << 14

HEAD = 256
JOIN = 64

Int64Array = npt.NDArray[np.int64]


def write_stream(path: Path, keys: Int64Array) -> None:
    """Writes the keys of samples, int64 `[samples, fields]`, as a stream file."""
    low = int(keys.min())
    span = int(keys.max()) - low + 1
    if span <= 1 << 28:  # a table of all keys is faster than sorting them
        there = np.zeros(span, bool)
        there[(keys - low).ravel()] = True
        distinct = np.flatnonzero(there) + low
        number = np.cumsum(there, dtype=np.int64) - 1
        ids = number[keys - low]
    else:
        distinct, ids = np.unique(keys, return_inverse=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    with partial.open("wb") as file:
        np.array([MAGIC, *keys.shape, len(distinct)], np.uint64).tofile(file)
        distinct.astype(np.int64).tofile(file)
        ids.astype(np.uint32).tofile(file)
    partial.rename(path)


def read_stream(path: Path) -> tuple[Int64Array, npt.NDArray[np.uint32]]:
    """Returns a stream's keys, int64 `[distinct]`, and the numbers of its ids, uint32 `[samples, fields]`."""
    _, samples, fields, distinct = (int(word) for word in np.fromfile(path, np.uint64, 4))
    keys = np.fromfile(path, np.int64, distinct, offset=32)
    ids = np.memmap(path, np.uint32, "r", 32 + 8 * distinct, (samples, fields))
    return keys, ids


def join_fields(columns: Sequence[Int64Array], sizes: Sequence[int]) -> Int64Array:
    """Returns the keys, int64 `[samples, fields]`, of one column of ids a field, each id below its size."""
    begins = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return np.stack([column + begin for column, begin in zip(columns, begins, strict=True)], axis=1)


def criteo_like_keys(samples: int, seed: int) -> Int64Array:
    """Returns the keys of the first `samples` rows of the Criteo-like stream `seed`."""
    return join_fields(list(draw_ids(samples, seed).values()), list(criteo_fields().values()))


def scaled_rank(rank: npt.NDArray[np.int64]) -> Int64Array:
    """Returns the ranks of a field whose rare ids are joined, by the ranks by frequency of all its ids.

    The first `HEAD` ids stay apart. Later ones are joined, r / HEAD to one, and `JOIN` at the end: a joined
    id is never more frequent than one before it, for a rank's frequency falls faster than 1 / rank.
    """
    ratio = np.maximum(rank, HEAD) / HEAD
    later = np.where(ratio <= JOIN, HEAD * np.log(ratio), HEAD * math.log(JOIN) + (rank - JOIN * HEAD) / JOIN)
    return np.where(rank < HEAD, rank, HEAD + later.astype(np.int64))


def criteo_scaled_keys(samples: int, seed: int) -> Int64Array:
    """Returns the keys of a Criteo-like stream whose rare ids are joined, `JOIN` to one.

    An epoch of Criteo, 45.8 million rows, meets 33.8 million ids. A short part of it meets hardly a rare id
    twice, so no cache could keep them, however large. Here a part of 1 / JOIN meets each of the joined ids as
    often as an epoch meets one of Criteo's, the most frequent ids are the same, and about the same share of
    all uses goes to the tenth of the ids that is used most, 97 %. (To smaller parts goes less than in an
    epoch, for the frequent ids, which are as many, are a larger part here.)
    """
    columns, sizes = [], []
    for name, ids in draw_ids(samples, seed).items():
        law = curve(name)
        rank = (ids - law.shift) % law.cardinality * pow(law.factor, -1, law.cardinality) % law.cardinality
        size = int(scaled_rank(np.array([law.cardinality - 1]))[0]) + 1
        # Ids do not come sorted by frequency.
        factor = round(size * (math.sqrt(5) - 1) / 2)
        while math.gcd(factor, size) != 1:
            factor += 1
        columns.append(scaled_rank(rank) * factor % size)
        sizes.append(size)
    return join_fields(columns, sizes)


def real_keys(name: str, samples: int, seed: int) -> Int64Array:
    """Returns the fields of one id a row of "census" or "movielens", epoch after epoch, each shuffled."""
    splits = load(name)
    keys = np.stack([splits.train.columns[field] for field in splits.fields], axis=1)
    rng = np.random.default_rng(seed)
    epochs = -(-samples // len(keys))
    order = np.concatenate([rng.permutation(len(keys)) for _ in range(epochs)])[:samples]
    return keys[order]


def graph_keys(samples: int, seed: int) -> Int64Array:
    """Returns the nodes that GraphSAGE reads in an epoch of a `graph_like` of `samples` nodes, with two hops.

    A sample is a node, its 10 neighbours and 5 of each of these: 61 ids.
    """
    graph = graph_like(samples, seed)
    order = np.random.default_rng(seed).permutation(samples)
    keys = np.empty((samples, 1 + sum(np.cumprod(GRAPH_FANOUTS).tolist())), np.int64)
    for begin in range(0, samples, GRAPH_PIECE):
        nodes = order[begin : begin + GRAPH_PIECE]
        hops = graph.sample(nodes, GRAPH_FANOUTS, seed=seed, batch=begin)
        keys[begin : begin + len(nodes)] = np.concatenate(
            [np.reshape(hop, [len(nodes), -1]) for hop in hops], 1
        )
    return keys


def order_of(keys: Int64Array, name: str, seed: int, placement: Placement) -> Int64Array:
    """Returns which samples each worker takes in each step, int64 `[steps, workers, batch]`."""
    if placement.by == "community":
        return by_value(placement, graph_like(len(keys), seed).communities()[keys[:, 0]])
    if placement.by != LOCATION:
        return by_value(placement, keys[:, CRITEO_FIELDS.index(placement.by)])
    slots, owners = tf.zeros([SLOTS], tf.uint32), []
    for number, begin in enumerate(range(0, len(keys) - placement.samples + 1, placement.samples)):
        hashed = keys_of(0, tf.constant(keys[begin : begin + placement.samples]))
        of, slots = native.ops.het_place_samples(
            hashed, slots=slots, number=number, workers=placement.workers, batch=placement.batch
        )
        owners.append(of.numpy())
    return orders(placement, np.concatenate(owners))


def by_value(placement: Placement, values: Int64Array) -> Int64Array:
    """Returns the samples that each worker takes in each step, by the values of a field."""
    return orders(placement, placement.owners(hashes(tf.constant(values))).numpy())


def make_stream(place: Path, name: str, samples: int, seed: int, placement: Placement | None = None) -> Path:
    """Returns the file of a stream, made if it is not there.

    Args:
      place: the folder of such files.
      name: "criteo_scaled", "criteo_hashed", which has hashes of 64 bits in place of its ids, "criteo_like",
        "graph", "census" or "movielens".
      samples: rows of it.
      seed: of the generator, or of the order of real rows.
      placement: of the samples of each step on the workers: by a field of a Criteo-like stream, by "location"
        or by the "community" of a graph's node; the last, incomplete step is left out.
    """
    placed = "" if placement is None else f"-{placement.by}-{placement.workers}-{placement.batch}-r{RULE}"
    path = place / f"{name}-{samples}-{seed}{placed}-v{FORMAT}.bin"
    if not path.exists():
        if name == "criteo_scaled":
            keys = criteo_scaled_keys(samples, seed)
        elif name == "criteo_hashed":
            keys = hashes(tf.constant(criteo_scaled_keys(samples, seed))).numpy().astype(np.int64)
        elif name == "criteo_like":
            keys = criteo_like_keys(samples, seed)
        elif name == "graph":
            keys = graph_keys(samples, seed)
        else:
            keys = real_keys(name, samples, seed)
        if placement is not None:
            keys = keys[order_of(keys, name, seed, placement).ravel()]
        write_stream(path, keys)
    return path
