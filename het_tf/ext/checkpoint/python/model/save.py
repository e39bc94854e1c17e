"""Saves: all ranks flush and meet, each writes its share of the files, rank 0 the rest.

The order makes a crash harmless: files go into a temporary directory and are on disk before the manifest; the
manifest is on disk before the directory gets its name; old checkpoints are removed after that.
"""

import os
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from het_tf.ext.checkpoint.python import directory as directories
from het_tf.ext.checkpoint.python import manifest as manifests
from het_tf.ext.checkpoint.python import progress as bars
from het_tf.ext.checkpoint.python import writing
from het_tf.ext.checkpoint.python.manifest import Manifest
from het_tf.ext.checkpoint.python.model import dense, order
from het_tf.ext.checkpoint.python.ranks import Ranks
from het_tf.ext.checkpoint.python.store import store_info
from het_tf.python.checks import whole_or_none
from het_tf.python.session import native, scopes
from het_tf.python.table import dense_layers, layer_state


def save(
    directory: str | os.PathLike[str],
    model: Any = None,
    *,
    step: int | None = None,
    keep: int | None = None,
    since: str | os.PathLike[str] | Manifest | None = None,
    namespace: str | None = None,
    progress: bool = False,
) -> Path:
    """Writes a checkpoint: all tables of a namespace, and a model's dense weights, at one moment.

        het_tf.checkpoint.save("ckpts", model, step=1000, keep=3)

    Training must pause meanwhile: call it between steps. Under Horovod every rank must call it, with the same
    arguments and a directory that all of them see; the ranks share the work. The checkpoint appears under its
    name when all of it is on disk. Until then, and after an error, the directory is unchanged.

    Args:
      directory: The directory of checkpoints; made if needed. The new one is DIRECTORY/ckpt-NUMBER.
      model: A built Keras model: its dense weights, and the state of its optimizer, are saved too. None:
        only tables.
      step: NUMBER, from 0, larger than those in the directory. None: the next one.
      keep: The number of checkpoints to keep, this one included: older ones are removed once it is
        complete, except bases of kept increments. None: all.
      since: Writes an increment: only updated rows and removals, for tables that were not cleared or loaded
        since. A checkpoint in `directory` by its path or Manifest, or "latest": the newest one, or all rows
        if there is none. Dense weights are always written.
      namespace: None: the namespace of the model's tables, or without a model the current one.
      progress: Shows a bar; under Horovod on rank 0.

    Returns:
      The path of the checkpoint.

    Raises:
      ValueError: An argument is out of range or differs between ranks, there are no tables, or `since` is not
        a checkpoint of this directory.
      TypeError: `model` is not a Keras model, or has a variable of a type that a file cannot hold.
      RuntimeError: The model has no weights yet, a table was cleared while it was saved, or another process
        saves in this directory.
      OSError: A file cannot be written (for example on a full disk), or `since` does not exist.
      ConnectionError, TimeoutError: The parameter server does not answer.
      Under Horovod an error of one rank is raised on all.
    """
    ranks = Ranks()
    chosen = ranks.together("begin", lambda: _checked(directory, model, step, keep, since, namespace))
    where, name, number = Path(chosen[ranks.rank][0]), *chosen[ranks.rank][1:]
    ranks.agree("arguments", {"directory": str(where), "namespace": name, "step": number, "keep": keep,
                              "since": str(since.path if isinstance(since, Manifest) else since),
                              "model": model is not None})  # fmt: skip
    ranks.together("send what its caches held back", lambda: native.call("HetFlush", name))
    native.call("HetSettle", name)
    saving = _Save(where, name, number, model, keep)
    try:
        planned = writing.Writing(**ranks.first("begin to save", lambda: saving.begin(since, ranks.size)))
        size = planned.size // ranks.size
        with bars.shown(progress and ranks.rank == 0, f"saving into {where.resolve().name}", size) as add:
            plan, entries = _write(
                ranks,
                planned,
                lambda one: add(sum(table["rows"] for table in one["tables"].values()), one["bytes"]),
            )
        path = Path(ranks.first("end the save", lambda: str(saving.finish(plan, entries))))
    finally:
        saving.abandon()  # no rank is still writing
    ranks.together("go on", lambda: native.call("HetMarkDurable", name))
    if ranks.rank == 0:
        writing.warn_of_whole(planned, plan)
    return path


def _write(
    ranks: Ranks, plan: writing.Writing, done: Callable[[dict[str, Any]], None]
) -> tuple[writing.Writing, list[dict[str, Any]]]:
    """Writes the files, each rank its share. Returns the plan that they fulfil, and their entries."""
    entries: dict[str, dict[str, Any]] = {}
    numbers_of_files = list(range(len(plan.groups)))
    while numbers_of_files:
        write = partial(writing.write_files, plan, ranks.share(numbers_of_files), done)
        written = ranks.together("write its share", write)
        entries.update((one["name"], one) for part in written for one in part)
        plan, numbers_of_files = writing.files_to_repeat(plan, list(entries.values()))
    return plan, list(entries.values())


class _Save:
    """The part of rank 0: makes the directory of a checkpoint, and publishes it at the end."""

    def __init__(self, where: Path, namespace: str, number: int | None, model: Any, keep: int | None) -> None:
        self._where = where
        self._namespace = namespace
        self._number = number
        self._model = model
        self._keep = keep
        self._pending: directories.Pending | None = None
        self._base: Manifest | None = None
        self._info: dict[str, Any] = {}

    def begin(self, since: Any, ranks: int) -> dict[str, Any]:
        """Plans the files of all ranks. Returns the fields of a `Writing`."""
        directories.make(self._where)
        self._pending = directories.Pending(self._where, self._number)
        self._info = store_info(self._namespace)
        if not self._info["tables"] and self._model is None:
            raise ValueError(
                f"the namespace {self._namespace!r} has no tables, and no model is given: nothing to save"
            )
        self._base = _base(self._where, self._namespace, since)
        path, name = self._pending.path, self._namespace
        return asdict(writing.plan_writing(path, name, self._info, base=self._base, ranks=ranks))

    def finish(self, plan: writing.Writing, entries: list[dict[str, Any]]) -> Path:
        """Adds dense weights and manifest to the files of rows, and publishes the checkpoint."""
        assert self._pending is not None
        after = store_info(self._namespace)
        writing.require_same(plan, self._info, after)
        document = writing.describe(plan, self._info, after, entries, self._number, self._base)
        if self._model is not None:
            variables = dense.variables_of(self._model)
            states = [dense_layers.take(layer) for layer in dense_layers.layers_of(self._model)]
            document["dense"] = {
                **dense.write(self._pending.path, variables, states),
                **order.of_model(self._model, self._namespace),
                "build": self._model.get_build_config(),
            }
        manifests.write(self._pending.path, document)
        path, self._pending = self._pending.publish(), None
        if self._keep is not None:
            directories.keep_newest(self._where, self._keep)
        return path

    def abandon(self) -> None:
        """Removes an unpublished checkpoint."""
        if self._pending is not None:
            self._pending.abandon()


def _checked(
    directory: Any, model: Any, step: Any, keep: Any, since: Any, namespace: str | None
) -> tuple[str, str, int | None]:
    """Returns the directory, the namespace and the step; refuses invalid arguments."""
    step = whole_or_none("step", step, 0)
    whole_or_none("keep", keep)
    if since is not None and not isinstance(since, (str, os.PathLike, Manifest)):
        raise ValueError(f'since is {since!r}; give the path or Manifest of a checkpoint, or "latest"')
    if isinstance(since, (str, os.PathLike)):
        directories.path_of("since", since)
    if model is not None:
        dense.variables_of(model)
    where = directories.path_of("directory", directory)
    return str(where), namespace_of(model, namespace), step


def namespace_of(model: Any, namespace: str | None) -> str:
    """Returns the given namespace, the model's, or the current one.

    Raises:
      ValueError: The model's tables are in several namespaces, or not in the given one.
    """
    found = (
        []
        if model is None
        else list(dict.fromkeys(layer.namespace for layer in layer_state.layers_of(model)))
    )
    if len(found) > 1:
        raise ValueError(
            f"the tables of model {model.name!r} are in the namespaces {', '.join(map(repr, found))}, but a "
            "checkpoint has only one; save its parts separately, each in its own directory"
        )
    if namespace is not None and found and found[0] != namespace:
        raise ValueError(
            f"namespace is {namespace!r}, but the tables of model {model.name!r} are in {found[0]!r}: its "
            "dense weights would be saved without them"
        )
    if namespace is None:
        return found[0] if found else scopes.current_namespace()
    return namespace


def _base(where: Path, namespace: str, since: Any) -> Manifest | None:
    """Returns the manifest of the base; None: write all rows."""
    if since is None:
        return None
    if since == "latest":
        newest = directories.latest(where)
        if newest is None:
            return None
        path = newest
    else:
        path = directories.path_of("since", since.path if isinstance(since, Manifest) else since)
    if path.parent.resolve() != where.resolve():
        raise ValueError(
            f"since is {path}, but the new checkpoint will be in {where}; an increment and its base "
            "must be in one directory"
        )
    base = directories.chain(path)[-1]
    if base.namespace != namespace:
        raise ValueError(
            f"since is {path}, which is of the namespace {base.namespace!r}, not of {namespace!r}"
        )
    if isinstance(since, Manifest) and since.id != base.id:
        raise ValueError(f"since is the Manifest of a checkpoint that {path} has replaced; read it again")
    return base
