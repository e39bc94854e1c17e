"""The streams of run.py: ids by table, int64 `[samples, ids of a sample]`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.traffic.streams import make_stream, read_stream

Tables = dict[str, npt.NDArray[np.int64]]
SEED = 1


def recorded(place: Path, name: str, samples: int) -> npt.NDArray[np.int64]:
    """The ids of a stream of benchmarks/traffic/streams.py, `[samples, fields]`."""
    _, ids = read_stream(make_stream(place, name, samples, SEED))
    return np.asarray(ids, np.int64)


def criteo(place: Path, samples: int) -> Tables:
    """26 fields of Criteo-like clicks, each a table."""
    ids = recorded(place, "criteo_scaled", samples)
    return {f"C{field + 1}": ids[:, field : field + 1] for field in range(ids.shape[1])}


def movielens(place: Path, samples: int) -> Tables:
    """Seven fields of MovieLens-100k, its epochs one after the other, shuffled."""
    ids = recorded(place, "movielens", samples)
    return {f"field_{field}": ids[:, field : field + 1] for field in range(ids.shape[1])}


def graph(place: Path, samples: int) -> Tables:
    """GraphSAGE's nodes and neighbours, 61 of one table."""
    return {"nodes": recorded(place, "graph", samples)}


STREAMS = {
    "criteo_like": (criteo, 262_144),
    "movielens": (movielens, 262_144),
    "graph": (graph, 65_536),
}
