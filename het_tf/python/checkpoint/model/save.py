"""Saving: all ranks flush and meet, each writes its share of the files, rank 0 the rest.

The order of what happens is what makes a crash harmless: files into a temporary directory, each on disk
before the manifest, the manifest before the directory has its name, old checkpoints go after that.
"""

import numbers
import os
from pathlib import Path
from typing import Any

from het_tf.python.checkpoint import directory as directories
from het_tf.python.checkpoint import manifest as manifests
from het_tf.python.checkpoint import progress as bars
from het_tf.python.checkpoint import writing
from het_tf.python.checkpoint.collective import Ranks
from het_tf.python.checkpoint.manifest import Manifest
from het_tf.python.checkpoint.model import dense
from het_tf.python.checkpoint.store import store_info
from het_tf.python.session import native, scopes
from het_tf.python.table import layer_state


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
    """Writes a checkpoint: all tables of a namespace, and the dense weights of a model, of the same moment.

        het_tf.checkpoint.save("ckpts", model, step=1000, keep=3)

    Training must stand still meanwhile: call it between steps. Under Horovod every rank must call it, with
    the same arguments and a directory that all of them see; the ranks share the work. The checkpoint appears
    under its name when all of it is on disk. Until then, and after an error, the directory has what it had.

    Args:
      directory: Where checkpoints are kept; it is made if need be. The new one is DIRECTORY/ckpt-NUMBER.
      model: A built Keras model: its weights that are no tables, and the state of its optimizer, are saved
        too. None: tables alone.
      step: NUMBER, from 0, larger than those in the directory. None: the next one.
      keep: How many checkpoints the directory keeps, this one included: older ones are removed when it is
        complete, but for those that a kept increment builds on. None: all.
      since: Writes an increment: of tables that have not been cleared or loaded since, only rows that were
        updated, and removals. A checkpoint in `directory` by its path or Manifest, or "latest": the newest
        one; while there is none, all rows are written. Dense weights are always written.
      namespace: None: that of the model's tables, or without a model the current one.
      progress: Shows a bar; under Horovod on rank 0.

    Returns:
      The path of the checkpoint.

    Raises:
      ValueError: An argument is out of range, the ranks were given different ones, there are no tables, or
        `since` is no checkpoint of this directory.
      TypeError: `model` is no Keras model, or has a variable of a type that a file cannot hold.
      RuntimeError: The model has no weights yet, a table was cleared while it was saved, or another process
        saves in this directory.
      OSError: A file cannot be written (among them a full disk), or there is no checkpoint `since`.
      ConnectionError, TimeoutError: The parameter server does not answer.
      Under Horovod an error of one rank is raised on all.
    """
    ranks = Ranks()
    chosen = ranks.together("begin", lambda: _checked(directory, model, step, keep, since, namespace))
    where, name, number = chosen[ranks.rank]
    ranks.agree("arguments", {"directory": str(where), "namespace": name, "step": number, "keep": keep,
                              "since": str(since.path if isinstance(since, Manifest) else since),
                              "model": model is not None})  # fmt: skip
    ranks.together("send what its caches held back", lambda: native.call("HetFlush", name))
    saving = _Save(where, name, number, model, keep)
    try:
        plan = ranks.first("begin to save", lambda: saving.begin(since, ranks.size))
        numbers_of_files = ranks.share(list(range(len(plan.groups))))
        size = plan.size // ranks.size
        with bars.shown(progress and ranks.rank == 0, f"saving into {where.resolve().name}", size) as add:
            written = ranks.together(
                "write its share",
                lambda: writing.write_files(
                    plan,
                    numbers_of_files,
                    lambda one: add(sum(table["rows"] for table in one["tables"].values()), one["bytes"]),
                ),
            )
        entries = [one for part in written for one in part]
        path = ranks.first("end the save", lambda: saving.finish(plan, entries))
    finally:
        saving.abandon()  # all ranks have ended what they wrote
    ranks.together("go on", lambda: native.call("HetMarkDurable", name))
    return path


class _Save:
    """What rank 0 does alone: makes the directory of a checkpoint, and gives it its name in the end."""

    def __init__(self, where: Path, namespace: str, number: int | None, model: Any, keep: int | None) -> None:
        self._where = where
        self._namespace = namespace
        self._number = number
        self._model = model
        self._keep = keep
        self._pending: directories.Pending | None = None
        self._base: list[Manifest] = []
        self._info: dict[str, Any] = {}

    def begin(self, since: Any, ranks: int) -> writing.Writing:
        """Decides which rank writes what."""
        directories.make(self._where)
        self._pending = directories.Pending(self._where, self._number)
        self._info = store_info(self._namespace)
        if not self._info["tables"] and self._model is None:
            raise ValueError(
                f"the namespace {self._namespace!r} has no tables, and no model is given: nothing to save"
            )
        self._base = _base(self._where, self._namespace, since)
        return writing.plan_writing(
            self._pending.path, self._namespace, self._info, base=self._base, ranks=ranks
        )

    def finish(self, plan: writing.Writing, entries: list[dict[str, Any]]) -> Path:
        """Adds dense weights and manifest to the files of rows, and publishes all of it."""
        assert self._pending is not None
        after = store_info(self._namespace)
        writing.require_same(plan, self._info, after)
        base = self._base[-1] if self._base else None
        document = writing.describe(plan, after, entries, self._number, base)
        if self._model is not None:
            document["dense"] = dense.write(self._pending.path, dense.variables_of(self._model))
        manifests.write(self._pending.path, document)
        path, self._pending = self._pending.publish(), None
        if self._keep is not None:
            directories.keep_newest(self._where, self._keep)
        return path

    def abandon(self) -> None:
        """Removes what was not published."""
        if self._pending is not None:
            self._pending.abandon()


def _checked(
    directory: Any, model: Any, step: Any, keep: Any, since: Any, namespace: str | None
) -> tuple[Path, str, int | None]:
    """The directory, the namespace and the step; refuses what no checkpoint can be made of."""
    for argument, value, least in (("step", step, 0), ("keep", keep, 1)):
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if value is not None and (not whole or value < least):
            raise ValueError(f"{argument} is {value!r}; give an integer from {least}, or None")
    if since is not None and not isinstance(since, (str, os.PathLike, Manifest)):
        raise ValueError(f'since is {since!r}; give the path or Manifest of a checkpoint, or "latest"')
    if model is not None:
        dense.variables_of(model)
    where = directories.path_of("directory", directory)
    return where, namespace_of(model, namespace), None if step is None else int(step)


def namespace_of(model: Any, namespace: str | None) -> str:
    """The namespace that is meant: the one given, the model's, or the current one.

    Raises:
      ValueError: The model's tables are in another one than that which is given, or in several.
    """
    found = (
        []
        if model is None
        else list(dict.fromkeys(layer.namespace for layer in layer_state.layers_of(model)))
    )
    if len(found) > 1:
        raise ValueError(
            f"the tables of model {model.name!r} are in the namespaces {', '.join(map(repr, found))}, and a "
            "checkpoint is of one; save its parts apart, each with its own directory"
        )
    if namespace is not None and found and found[0] != namespace:
        raise ValueError(
            f"namespace is {namespace!r}, and the tables of model {model.name!r} are in {found[0]!r}: its "
            "dense weights would be saved without them"
        )
    if namespace is None:
        return found[0] if found else scopes.current_namespace()
    return namespace


def _base(where: Path, namespace: str, since: Any) -> list[Manifest]:
    """The manifests of the checkpoint that is built on, the full one first; empty: all rows are written."""
    if since is None:
        return []
    if since == "latest":
        newest = directories.latest(where)
        if newest is None:
            return []
        path = newest
    else:
        path = Path(os.path.abspath(since.path if isinstance(since, Manifest) else since))
    if path.parent.resolve() != where.resolve():
        raise ValueError(
            f"since is {path}, and the new checkpoint will be in {where}; an increment and what it builds on "
            "are in one directory"
        )
    chain = directories.chain(path)
    if chain[-1].namespace != namespace:
        raise ValueError(
            f"since is {path}, which is of the namespace {chain[-1].namespace!r}, not of {namespace!r}"
        )
    if isinstance(since, Manifest) and since.id != chain[-1].id:
        raise ValueError(f"{path} is another checkpoint than the Manifest that since is; read it again")
    return chain
