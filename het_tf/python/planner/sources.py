"""What `het-plan profile --data` reads: files of samples, graphs, and datasets of Python modules."""

from __future__ import annotations

import dataclasses
import glob
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from het_tf.python.data.cli.samples import SEVERAL, Samples
from het_tf.python.data.placement import Numpy, hashes

SCHEMES = "criteo:FILE, parquet:GLOB, tfrecord:GLOB, graph:FILE or module:function"

_BLOCK = 1 << 13
Batch = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Source:
    """Samples of files.

    Attributes:
      fields: By which ids can be counted.
      total: What the numbers that come with batches sum up to; None: not known.
      batches: Of the fields that it is given: a batch as `Profiler.add` takes it, and how far it brings the pass.
      left_out: Why other fields are no ids, by name.
    """

    fields: list[str]
    total: int | None
    batches: Callable[[Sequence[str]], Iterator[tuple[Batch, int]]]
    left_out: dict[str, str]


def open_files(kind: str, pattern: str) -> Source:
    """Files of samples.

    Args:
      kind: criteo, parquet or tfrecord.
      pattern: Of their names; they are read in the order of these.

    Raises:
      ValueError: There is no such file, it is none of the kind, or has no field of ids.
    """
    paths = [Path(pattern)] if Path(pattern).exists() else [Path(one) for one in sorted(glob.glob(pattern))]
    if not paths:
        raise ValueError(f"--data {kind}:{pattern}: there is no such file; give one, or a pattern of names")
    samples = _samples(kind, paths)
    reasons = samples.fields()
    fields = [name for name, reason in reasons.items() if reason in ("", SEVERAL)]
    left_out = {name: reason for name, reason in reasons.items() if name not in fields}
    if not fields:
        raise ValueError(f"{paths[0]} has no field of integers or strings: {left_out or 'it has no samples'}")

    def batches(names: Sequence[str]) -> Iterator[tuple[Batch, int]]:
        lists = [name for name in names if reasons[name] == SEVERAL]
        single = [name for name in names if name not in lists]
        more = {"names": names} if kind == "parquet" else {}
        for rows in samples.blocks(_BLOCK, **more):
            batch = {name: _ids(values) for name, values in samples.columns(rows, single).items()}
            for name, (values, counts) in samples.lists(rows, lists).items():
                batch[name] = _ids(values), counts
            yield batch, samples.units(rows)
        samples.require_unchanged()

    return Source(fields, samples.total, batches, left_out)


def _samples(kind: str, paths: list[Path]) -> Samples[Any]:
    if kind == "criteo":
        from het_tf.python.data.cli.criteo import CriteoLines

        return CriteoLines(paths)
    if kind == "parquet":
        from het_tf.python.data.cli.parquet import ParquetRows

        return ParquetRows(paths)
    from het_tf.python.data.cli.tfrecord import Records

    return Records(paths)


def _ids(values: Any) -> Any:
    """int64 of integers, and of strings by their hash."""
    return hashes(values).view(np.int64) if Numpy.is_text(values) else values


def open_graph(path: str, fanout: tuple[int, ...]) -> Source:
    """What GraphSAGE reads of a graph in an epoch: each node, its neighbours, and theirs.

    Raises:
      ValueError: There is no such file, or it is no graph; fanout has counts below 1.
    """
    from het_tf.python.data.graph.graph import Graph

    try:
        graph = Graph.open(path)
    except FileNotFoundError as error:
        raise ValueError(f"--data graph:{path}: {error}; give a file that het_tf.data.Graph wrote") from None
    graph.check_fanouts(fanout)
    order = np.random.default_rng(0).permutation(graph.nodes)

    def batches(names: Sequence[str]) -> Iterator[tuple[Batch, int]]:
        for begin in range(0, graph.nodes, _BLOCK):
            nodes = order[begin : begin + _BLOCK]
            hops = graph.sample(nodes, fanout, batch=begin)
            ids = np.concatenate([np.reshape(hop, [len(nodes), -1]) for hop in hops], axis=1)
            yield dict.fromkeys(names, ids), len(nodes)

    return Source(["nodes"], graph.nodes, batches, {})


def call(module: str, function: str) -> tuple[Any, Any, Any]:
    """The dataset, layer and inputs that a function of a module returns.

    Raises:
      ValueError: There is no such module or function, or it returns something else.
    """
    sys.path.insert(0, "")  # as of python -m
    try:
        made = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"--data {module}:{function}: {error}; give {SCHEMES}") from None
    finally:
        sys.path.remove("")
    if not callable(made):
        raise ValueError(f"--data {module}:{function} is a {type(made).__name__}; give a function")
    found = made()
    if not isinstance(found, tuple) or len(found) not in (2, 3):
        raise ValueError(
            f"{module}:{function} returns {type(found).__name__}; let it return (dataset, layer) or (dataset, "
            "layer, inputs), as het_tf.plan takes them"
        )
    return found if len(found) == 3 else (*found, None)
