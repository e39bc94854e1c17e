"""Restoring, verifying: everything is read and compared before a table or a weight is touched."""

import os
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from het_tf.python.checkpoint import directory as directories
from het_tf.python.checkpoint import manifest as manifests
from het_tf.python.checkpoint import progress as bars
from het_tf.python.checkpoint import reading
from het_tf.python.checkpoint.collective import Ranks
from het_tf.python.checkpoint.compare import match
from het_tf.python.checkpoint.manifest import Manifest
from het_tf.python.checkpoint.model import dense
from het_tf.python.checkpoint.model.save import namespace_of
from het_tf.python.checkpoint.store import store_info
from het_tf.python.session import native


def restore(
    path: str | os.PathLike[str],
    model: Any = None,
    *,
    strict: bool = True,
    slots: bool = True,
    namespace: str | None = None,
    progress: bool = False,
) -> Manifest:
    """Gives live tables, and the dense weights of a model, what a checkpoint has.

        het_tf.checkpoint.restore("ckpts", model)       # the newest one

    The layers that use the tables must have been made. The number of workers, of partitions and of servers
    may be another one than when it was saved, and so may the namespace. All files are verified first: after
    an error of a file or of a table that does not fit nothing has changed. Rows that the tables had are gone
    afterwards. Under Horovod every rank must call it, with the same arguments; the ranks share the work.

    A table must be declared as it was saved: dim, optimizer and its parameters, initializer and seed. The
    learning rate, l2, max_norm and the limits (ttl, ...) may be others; those of the live table hold, and its
    limits apply to what is loaded. Counts of updates, by which learning-rate schedules go, are restored.

    Args:
      path: A checkpoint, or a directory of checkpoints: its newest one.
      model: A built Keras model. Its weights are restored, and the state of its optimizer (its learning rate
        too) if it is compiled. None: tables alone.
      strict: The checkpoint and the namespace must have the same tables, and the model the same variables.
        False: what both have is restored, the rest is as it was; the Manifest that is returned names the
        tables.
      slots: False: values are restored, and the slots of the tables' optimizers begin anew. Then the
        optimizers may be others.
      namespace: None: that of the model's tables, or without a model the current one.
      progress: Shows a bar; under Horovod on rank 0.

    Returns:
      The manifest of the checkpoint.

    Raises:
      FileNotFoundError, NotADirectoryError: There is no checkpoint, or a file of it, or the checkpoint that
        an increment builds on, is missing.
      ValueError: A file is damaged, or of a newer het_tf; the checkpoint does not fit, and the message shows
        the differences; it has no dense weights, and a model is given; the ranks were given different
        arguments.
      TypeError, RuntimeError: `model` is no Keras model, or has no weights yet. RuntimeError also: the load
        broke off half-way, and the tables are to be restored again before they are used.
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
    target, loader = ranks.first(
        "find the checkpoint", lambda: (directories.resolve(place), f"het_tf-{uuid.uuid4().hex}")
    )
    # What has been pushed and not yet applied is not to meet the rows that are loaded.
    ranks.together("send what its caches held back", lambda: native.call("HetFlush", name))

    def look() -> tuple[list[Manifest], Any, reading.Reading, Any]:
        chain = directories.chain(target)
        found = match(chain[-1], store_info(name)["tables"], strict, slots)
        pairs = None if model is None else _match_dense(chain[-1], model, strict)
        return chain, found, reading.plan_reading(chain, name, found.tables, slots, loader), pairs

    plan: Any = None

    def plan_here() -> str:
        nonlocal plan
        plan = look()
        return str(plan[0][-1].id)

    ids = ranks.together("read the checkpoint", plan_here)
    chain, found, loads, pairs = plan
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
        ranks.together("assign the dense weights", lambda: dense.assign(file, pairs))
    newest: Manifest = chain[-1]
    return replace(newest, only_in_checkpoint=found.only_in_checkpoint, only_live=found.only_live)


def _match_dense(manifest: Manifest, model: Any, strict: bool) -> Any:
    entry = manifest.dense
    if entry is None:
        raise ValueError(
            f"{manifest.path} was saved without a model and has no dense weights; restore the tables alone, "
            "without model"
        )
    file = manifest.path / entry["name"]
    return dense.match(file, dense.read_header(file), model, strict)


def verify(path: str | os.PathLike[str]) -> Manifest:
    """Reads a checkpoint, with all that it builds on, and compares it with its checksums. Needs no tables.

    Args:
      path: A checkpoint, or a directory of checkpoints: its newest one.

    Returns:
      Its manifest.

    Raises:
      FileNotFoundError, NotADirectoryError: There is none, or something of it is missing.
      ValueError: Something is damaged; the message says what.
    """
    chain = directories.chain(directories.resolve(path))
    for one in chain:
        reading.verify_files([(Path(one.path) / file["name"], file) for file in one.files])
        if one.dense is not None:
            file = one.path / one.dense["name"]
            manifests.verify(file, one.dense)
            dense.read_header(file)
    return chain[-1]
