"""Restores and verifies: reads and compares everything before it changes a table or a weight."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from het_tf.ext.checkpoint.python import directory as directories
from het_tf.ext.checkpoint.python import manifest as manifests
from het_tf.ext.checkpoint.python import progress as bars
from het_tf.ext.checkpoint.python import reading
from het_tf.ext.checkpoint.python.compare import match
from het_tf.ext.checkpoint.python.manifest import Manifest
from het_tf.ext.checkpoint.python.model import dense, order
from het_tf.ext.checkpoint.python.model.save import namespace_of
from het_tf.ext.checkpoint.python.ranks import Ranks
from het_tf.ext.checkpoint.python.store import store_info
from het_tf.python.backend import keras
from het_tf.python.session import native
from het_tf.python.table import notes


def restore(
    path: str | os.PathLike[str],
    model: Any = None,
    *,
    strict: bool = True,
    slots: bool = True,
    namespace: str | None = None,
    progress: bool = False,
) -> Manifest:
    """Restores live tables, and the dense weights of a model, from a checkpoint.

        het_tf.checkpoint.restore("ckpts", model)       # the newest one

    The layers that use the tables must exist. The number of workers, partitions and servers may differ from
    the save, and so may the namespace. All files are verified first: after an error of a file, or of a table
    that does not fit, nothing has changed. The tables' previous rows are removed. Under Horovod every rank
    must call it with the same arguments; the ranks share the work.

    Tables with a name are found by it. Those of layers without a name are found by the order of the model's
    layers, whatever else the process has built.

    A table must be declared as it was saved: dim, optimizer and its parameters, initializer and seed. The
    learning rate, l2, max_norm and the limits (ttl, ...) may differ; the live table's hold, and its limits
    apply to the loaded rows. Counts of updates, which drive learning-rate schedules, are restored.

    Args:
      path: A checkpoint, or a directory of checkpoints: its newest one.
      model: A built Keras model. Its weights are restored, and the state of its optimizer (with the learning
        rate) if it is compiled. None: only tables.
      strict: The checkpoint and the namespace must have the same tables, and the model the same variables.
        False: restores those that both have, in the same shape. A `het_tf.HetWarning` lists the
        rest, and so does the returned Manifest.
      slots: False: restores only values; the slots of the tables' optimizers start anew, and the optimizers
        may differ.
      namespace: None: the namespace of the model's tables, or without a model the current one.
      progress: Shows a bar; under Horovod on rank 0.

    Returns:
      The manifest of the checkpoint.

    Raises:
      FileNotFoundError, NotADirectoryError: The checkpoint, one of its files, or a base of an increment is
        missing.
      ValueError: A file is damaged, or of a newer het_tf; the checkpoint does not fit (the message shows
        the differences), with strict=False if it holds nothing of the model, or not the tables of its
        layers without a name; it has no dense weights, but a model is given; the ranks' arguments differ.
      TypeError, RuntimeError: `model` is not a Keras model, or has no weights yet. RuntimeError also: the
        load broke off half-way, and the tables must be restored again before use.
      ConnectionError, TimeoutError: The parameter server does not answer.
      Under Horovod an error of one rank is raised on all.
    """
    ranks = Ranks()
    chosen = ranks.together(
        "begin", lambda: (str(directories.path_of("path", path)), namespace_of(model, namespace))
    )
    place, name = chosen[ranks.rank]
    ranks.agree("arguments", {"path": place, "namespace": name, "strict": strict, "slots": slots,
                              "model": model is not None})  # fmt: skip
    where, word = ranks.first("find the checkpoint", lambda: (str(directories.resolve(place)), uuid4().hex))
    target, loader = Path(where), f"het_tf-{word}"
    ranks.together("build the model", lambda: _build(target, model))
    here = ranks.first("list the tables", lambda: order.of_model(model, name))  # one list for all ranks
    # Pending pushes must not be applied to the loaded rows.
    ranks.together("send what its caches held back", lambda: native.call("HetFlush", name))
    native.call("HetSettle", name)

    def look() -> tuple[list[Manifest], Any, reading.Reading, Any]:
        chain = directories.chain(target)
        pairs = (None, [], []) if model is None else _match_dense(chain[-1], model, strict)
        live = store_info(name)["tables"]
        found = match(chain[-1], live, strict, slots, here)
        return chain, found, reading.plan_reading(chain, name, found.tables, slots, loader), pairs

    plan: Any = None

    def plan_here() -> str:
        nonlocal plan
        plan = look()
        return str(plan[0][-1].id)

    ids = ranks.together("read the checkpoint", plan_here)
    chain, found, loads, (pairs, layers, left_out) = plan
    if any(one != ids[0] for one in ids):
        raise ValueError(f"the ranks see different checkpoints at {target}; give a directory that all share")

    def verify() -> None:
        reading.verify_files([(part.path, part.entry) for part in ranks.share(loads.parts)])
        if pairs is not None and ranks.rank == 0:
            manifests.verify(target / chain[-1].dense["name"], chain[-1].dense)

    ranks.together("verify its share of the files", verify)
    show = progress and ranks.rank == 0
    with bars.shown(show, f"restoring {target.name}", loads.size // ranks.size) as add:
        reading.load(loads, ranks, add)
    if pairs is not None:
        file = target / chain[-1].dense["name"]
        ranks.together("assign the dense weights", lambda: dense.assign(file, pairs, layers))
    newest: Manifest = replace(
        chain[-1],
        only_in_checkpoint=found.only_in_checkpoint,
        only_live=found.only_live,
        dense_left_out=tuple(left_out),
    )
    if not strict and ranks.rank == 0:
        _warn(newest, [one["table"] for one in here["tables"] or []])
    return newest


def _warn(found: Manifest, mine: list[str]) -> None:
    """Warns of what a restore with strict=False has left out."""
    lines = [f"table {table!r} has no rows in the checkpoint" for table in found.only_live if table in mine]
    lines += [f"table {table!r} of the checkpoint is not used" for table in found.only_in_checkpoint]
    lines += found.dense_left_out
    if lines:
        notes.warn(f"{found.path} is restored without:" + "".join(f"\n  {line}" for line in lines))


def _build(target: Path, model: Any) -> None:
    """Builds a model whose inputs' shapes the checkpoint knows: a subclass, or Sequential without Input."""
    entry = None if getattr(model, "built", True) else manifests.read_manifest(target).dense
    if entry is not None and entry["build"]:
        with keras.name_scope(model.name, caller=model):  # as in a call: variables have its name
            model.build_from_config(entry["build"])
        model.built = all(layer.built for layer in model._flatten_layers(include_self=False))


def _match_dense(manifest: Manifest, model: Any, strict: bool) -> Any:
    entry = manifest.dense
    if entry is None:
        raise ValueError(
            f"{manifest.path} was saved without a model and has no dense weights; restore only the tables, "
            "without model"
        )
    file = manifest.path / entry["name"]
    pairs, left_out = dense.match(file, dense.read_header(file), model, strict)
    layers, more = dense.match_layers(file, dense.read_layers(file), model, strict)
    return pairs, layers, left_out + more


def verify(path: str | os.PathLike[str]) -> Manifest:
    """Reads a checkpoint with all its bases and compares their checksums. Needs no tables.

    Args:
      path: A checkpoint, or a directory of checkpoints: its newest one.

    Returns:
      Its manifest.

    Raises:
      FileNotFoundError, NotADirectoryError: The checkpoint or one of its files is missing.
      ValueError: A file is damaged; the message names it.
    """
    chain = directories.chain(directories.resolve(path))
    for one in chain:
        reading.verify_files([(Path(one.path) / file["name"], file) for file in one.files])
        if one.dense is not None:
            file = one.path / one.dense["name"]
            manifests.verify(file, one.dense)
            dense.read_header(file)
            dense.read_layers(file)
    return chain[-1]
