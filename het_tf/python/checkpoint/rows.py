"""The files of rows: which partitions go into which file, and writing and reading them by several threads.

One call of the native library writes or reads one file; it holds no lock of Python's, so that a few threads
are busy at once. `write_tables` and `read_tables` save and restore tables for one process, without a
directory of checkpoints around: what other ways of saving are built on.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from het_tf.python import native
from het_tf.python.checkpoint import directory as directories
from het_tf.python.checkpoint import manifest as manifests
from het_tf.python.checkpoint.collective import Ranks
from het_tf.python.checkpoint.compare import match
from het_tf.python.checkpoint.manifest import Manifest
from het_tf.python.checkpoint.progress import Progress

FILES = 16  # of rows in a checkpoint, as far as there are so many partitions
_MOST_THREADS = 8
_SECONDS = 120  # for which a store keeps others off the tables if it hears no more of their loader
_ROW_BYTES = 8 + 8 + 4 + 2  # key, clock, last used, count

# Which checkpoint the tables of this process have come from: (namespace, table) -> (its id, epochs since).
_sources: dict[tuple[str, str], tuple[str, list[str]]] = {}


def store_info(namespace: str) -> dict[str, Any]:
    """The store of a namespace: "partitions", "hash_seed", "remote", and "tables" by name."""
    return dict(json.loads(native.call("HetStoreInfo", namespace)))


def in_parallel(
    action: Callable[[Any], Any], items: Iterable[Any], done: Callable[[Any], None] | None = None
) -> list[Any]:
    """Calls `action` on each item, by a few threads. Returns the results in the order of the items.

    After an error nothing new is begun, and it is raised when all that was begun has ended.

    Args:
      action: Called by the threads.
      items: What it is called with.
      done: Called by this thread with each result, when it is there.
    """
    threads = max(1, min(_MOST_THREADS, len(os.sched_getaffinity(0))))
    with ThreadPoolExecutor(threads, thread_name_prefix="het_checkpoint") as pool:
        futures = [pool.submit(action, item) for item in items]
        try:
            for future in as_completed(futures):
                result = future.result()
                if done is not None:
                    done(result)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [future.result() for future in futures]


# --- writing -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Writing:
    """What is to be written; equal on all ranks.

    Attributes:
      path: The directory of the files.
      namespace: Whose tables.
      tables: Their names.
      groups: For each file its name and its partitions.
      since: For each file, and each table of which only the changes are written: the files that say what the
        base has, oldest first.
      size: Bytes, about.
    """

    path: Path
    namespace: str
    tables: list[str]
    groups: list[tuple[str, list[int]]]
    since: list[dict[str, list[str]]]
    size: int

    @property
    def incremental(self) -> set[str]:
        """Tables of which only the changes are written."""
        return set().union(*(one.keys() for one in self.since)) if self.since else set()


def plan_writing(
    path: Path,
    namespace: str,
    info: dict[str, Any],
    tables: Iterable[str] | None = None,
    base: list[Manifest] | None = None,
    ranks: int = 1,
    files: int = FILES,
) -> Writing:
    """Decides which partitions share a file, and which tables are written by their changes alone.

    Args:
      path: Where the files go.
      namespace: Whose tables.
      info: Of `store_info`.
      tables: Their names; None: all.
      base: The manifests of the checkpoint that is built on, the full one first.
      ranks: How many write.
      files: How many there are to be, about.

    Raises:
      ValueError: There is no such table.
    """
    names = list(info["tables"]) if tables is None else list(dict.fromkeys(tables))
    unknown = [name for name in names if name not in info["tables"]]
    if unknown:
        listed = ", ".join(map(repr, info["tables"])) or "none"
        raise ValueError(
            f"there is no table {unknown[0]!r} in the namespace {namespace!r}; there are: {listed}"
        )
    groups = _groups(info["partitions"], ranks, files)
    changed = [name for name in names if base and _goes_on(namespace, info["tables"][name], name, base[-1])]
    since = [
        {name: [str(path) for path in _base_files(base or [], name, info, part)] for name in changed}
        for _, part in groups
    ]
    size = sum(
        info["tables"][name]["rows"] * (_ROW_BYTES + 4 * info["tables"][name]["row_floats"]) for name in names
    )
    return Writing(path, namespace, names, groups, since, size)


def _groups(partitions: int, ranks: int, files: int) -> list[tuple[str, list[int]]]:
    """Splits the partitions evenly, neighbours together: these often are on one server."""
    number = max(1, min(partitions, files if ranks == 1 else max(files, 2 * ranks)))
    bounds = [index * partitions // number for index in range(number + 1)]
    return [
        (f"rows-{index:05d}-of-{number:05d}.safetensors", list(range(bounds[index], bounds[index + 1])))
        for index in range(number)
    ]


def _goes_on(namespace: str, live: dict[str, Any], name: str, base: Manifest) -> bool:
    """Whether a table is the one that the base has, as it was then or later: not cleared or loaded since."""
    there = base.tables.get(name)
    if there is None or there["spec"] != live["spec"]:
        return False
    return live["epochs"] == there["epochs"] or _sources.get((namespace, name)) == (base.id, live["epochs"])


def _base_files(base: list[Manifest], name: str, info: dict[str, Any], partitions: list[int]) -> list[Path]:
    """Files of the base that may have keys of a table in these partitions, oldest first."""
    found: list[Path] = []
    for one in base[first_of(base, name) :]:
        alike = (
            one.partitions == info["partitions"] and one.document["store"]["hash_seed"] == info["hash_seed"]
        )
        for file in one.files:
            if tables_in(file) & {name} and (not alike or set(file["partitions"]) & set(partitions)):
                found.append(one.path / file["name"])
    return found


def tables_in(file: dict[str, Any]) -> set[str]:
    """Names of the tables of which a file has something; a name may have slashes."""
    return {tensor.rpartition("/")[0] for tensor in file["tensors"]}


def first_of(chain: list[Manifest], name: str) -> int:
    """Where in a chain a table begins: the newest checkpoint that has all of its rows.

    Raises:
      ValueError: None has, so that something is missing.
    """
    for number in range(len(chain) - 1, -1, -1):
        there = chain[number].tables.get(name)
        if there is None:
            break
        if there["complete"]:
            return number
    raise ValueError(
        f"{chain[-1].path} has changes of table {name!r} alone, and none of the checkpoints that it builds "
        "on has the table itself"
    )


def write_files(
    writing: Writing, numbers: Iterable[int], done: Callable[[dict[str, Any]], None] | None = None
) -> list[dict[str, Any]]:
    """Writes some of the files and waits until they are on disk. Returns their entries, "tables" included.

    Args:
      writing: What is to be written.
      numbers: Of the groups.
      done: Called with each entry.

    Raises:
      OSError: A file cannot be written.
      ConnectionError, TimeoutError: The parameter server does not answer.
    """

    def write(number: int) -> dict[str, Any]:
        name, partitions = writing.groups[number]
        since = writing.since[number]
        request = {
            "tables": writing.tables,
            "partitions": partitions,
            "since": {"tables": since} if since else None,
        }
        text = native.call("HetSaveRows", writing.namespace, str(writing.path / name), json.dumps(request))
        return {**json.loads(text), "name": name, "partitions": partitions}

    return in_parallel(write, numbers, done)


def describe(
    writing: Writing,
    info: dict[str, Any],
    entries: list[dict[str, Any]],
    step: int | None = None,
    base: Manifest | None = None,
) -> dict[str, Any]:
    """The manifest of files that were written; its "dense" is null.

    Args:
      writing: What was to be written.
      info: Of `store_info`, after it.
      entries: Of all files.
      step: Of the training.
      base: The checkpoint that is built on.
    """
    entries = sorted(entries, key=lambda one: one["name"])
    tables = []
    for name in writing.tables:
        live = info["tables"][name]
        tables.append(
            {
                "name": name,
                "spec": live["spec"],
                "limits": live["limits"],
                "applies": live["applies"],
                "rows": sum(one["tables"][name]["rows"] for one in entries if name in one["tables"]),
                "removed": sum(one["tables"][name]["removed"] for one in entries if name in one["tables"]),
                "complete": name not in writing.incremental,
                "clock_floor": live["clock_floor"],
                "slots": live["slots"],
                "epochs": live["epochs"],
            }
        )
    return {
        "format": manifests.FORMAT,
        "version": manifests.VERSION,
        "id": uuid.uuid4().hex,
        "created": time.time(),
        "step": step,
        "namespace": writing.namespace,
        "base": {"name": base.path.name, "id": base.id} if base is not None and writing.incremental else None,
        "store": {"partitions": info["partitions"], "hash_seed": info["hash_seed"]},
        "tables": tables,
        "files": [{name: value for name, value in one.items() if name != "tables"} for one in entries],
        "dense": None,
    }


def require_same(writing: Writing, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Whether the tables are still those of which the files were begun.

    Raises:
      RuntimeError: One was cleared, loaded or dropped meanwhile.
    """
    for name in writing.tables:
        if name not in after["tables"] or after["tables"][name]["epochs"] != before["tables"][name]["epochs"]:
            raise RuntimeError(
                f"table {name!r} was cleared, loaded or dropped while it was saved; save again"
            )


def write_tables(
    directory: str | os.PathLike[str],
    namespace: str,
    tables: Iterable[str] | None = None,
    since: list[Manifest] | None = None,
    files: int = FILES,
) -> dict[str, Any]:
    """Writes tables as this process sees them, its own unsent updates included. Not collective.

    The directory appears when all is on disk; a process that dies before leaves at most a directory beside it
    whose name begins with ".tmp-".

    Args:
      directory: Must not exist yet.
      namespace: Whose tables.
      tables: Their names; None: all.
      since: Writes what has changed since this checkpoint: its manifests, the full one first, all next to
        `directory`.
      files: How many files of rows there are to be; there is at most one for each partition.

    Returns:
      The manifest.

    Raises:
      FileExistsError: There is such a directory.
      ValueError: There is no such table.
      OSError: A file cannot be written.
      ConnectionError, TimeoutError: The parameter server does not answer.
    """
    target = Path(directory)
    path = directories.beside(target)
    try:
        native.call("HetFlush", namespace)
        info = store_info(namespace)
        writing = plan_writing(path, namespace, info, tables, since, files=files)
        entries = write_files(writing, range(len(writing.groups)))
        after = store_info(namespace)
        require_same(writing, info, after)
        document = manifests.write(path, describe(writing, after, entries, base=since[-1] if since else None))
        directories.publish(path, target)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return document


# --- reading -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A file that is to be loaded, with the tables that are wanted of it."""

    path: Path
    entry: dict[str, Any]
    tables: list[str]

    @property
    def rows(self) -> int:
        """Rows of these tables."""
        tensors = self.entry["tensors"]
        return sum(tensors[f"{name}/keys"]["rows"] for name in self.tables if f"{name}/keys" in tensors)


@dataclass(frozen=True)
class Reading:
    """What is to be loaded; equal on all ranks.

    Attributes:
      namespace: Into which tables.
      chain: The manifests, the full one first.
      tables: Names.
      slots: Whether the slots of the optimizers come along.
      stages: Files; those of one stage are loaded in any order, those of the next one after them.
      loader: What the store calls this load while it lasts.
    """

    namespace: str
    chain: list[Manifest]
    tables: list[str]
    slots: bool
    stages: list[list[Part]] = field(repr=False)
    loader: str

    @property
    def parts(self) -> list[Part]:
        """All files."""
        return [part for stage in self.stages for part in stage]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(int(part.entry["bytes"]) for part in self.parts)


def plan_reading(
    chain: list[Manifest], namespace: str, tables: Iterable[str], slots: bool, loader: str
) -> Reading:
    """Decides which files are read, in which order."""
    names = list(tables)
    begins = {name: first_of(chain, name) for name in names}
    stages = []
    for number, manifest in enumerate(chain):
        stage = []
        for file in manifest.files:
            inside = tables_in(file)
            wanted = [name for name in names if name in inside and begins[name] <= number]
            if wanted:
                stage.append(Part(manifest.path / file["name"], file, wanted))
        if stage:
            stages.append(stage)
    return Reading(namespace, chain, names, slots, stages, loader)


def verify_files(files: Iterable[tuple[Path, dict[str, Any]]]) -> None:
    """Checks size, header and checksums of files.

    Args:
      files: Paths, and what the manifest says of each.

    Raises:
      FileNotFoundError: One is missing.
      ValueError: One is damaged; the message says where.
    """

    def verify(one: tuple[Path, dict[str, Any]]) -> None:
        path, entry = one
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing, and the manifest of the checkpoint names it")
        native.call("HetVerifyRows", str(path), json.dumps(entry))

    in_parallel(verify, files)


def load(reading: Reading, ranks: Ranks, progress: Progress) -> None:
    """Replaces the rows of tables by those of the files, which were verified. Every rank must call it.

    Until all of it is done no other worker can read or write the tables.

    Raises:
      RuntimeError, OSError, ConnectionError, TimeoutError: It was given up half-way; the message says so.
    """
    namespace = reading.namespace
    newest = reading.chain[-1].tables
    applies = {name: newest[name]["applies"] for name in reading.tables}

    def begin() -> None:
        request = {"loader": reading.loader, "seconds": _SECONDS}
        native.call("HetLoadBegin", namespace, json.dumps(request))

    def clear() -> None:
        for name in reading.tables:
            native.call("HetLoadClear", namespace, name)

    def read(part: Part) -> Part:
        request = {"tables": {name: {"to": name, "slots": reading.slots} for name in part.tables}}
        native.call("HetLoadRows", namespace, str(part.path), json.dumps(request))
        return part

    def read_all(parts: list[Part]) -> None:
        in_parallel(read, parts, lambda part: progress.add(part.rows, part.entry["bytes"]))

    def commit() -> None:
        floors = {name: newest[name]["clock_floor"] for name in reading.tables}
        native.call("HetLoadCommit", namespace, json.dumps({"clock_floors": floors, "applies": applies}))

    def count() -> None:
        for name, number in applies.items():
            native.call("HetSetApplies", namespace, name, number)

    ranks.first("begin to load", begin)
    try:
        with _renewed(begin) if ranks.rank == 0 else contextlib.nullcontext():
            ranks.first("empty the tables", clear)
            for stage in reading.stages:
                parts = ranks.share(stage)
                ranks.together("load rows", lambda parts=parts: read_all(parts))  # type: ignore[misc]
        ranks.first("end the load", commit)
    except Exception as error:
        if ranks.rank == 0:
            with contextlib.suppress(Exception):  # the first error is the one to tell
                native.call("HetLoadAbort", namespace)
        kind = (
            type(error) if isinstance(error, (ConnectionError, TimeoutError, MemoryError)) else RuntimeError
        )
        raise kind(
            f"loading {reading.chain[-1].path} was given up half-way, and the tables "
            f"{', '.join(map(repr, reading.tables))} may hold a part of it: restore again before they are "
            f"used ({error})"
        ) from error
    ranks.together("count updates", count)
    epochs = {name: live["epochs"] for name, live in store_info(namespace)["tables"].items()}
    for name in reading.tables:
        if reading.slots:  # else rows differ from those of the checkpoint, and their clocks do not
            _sources[namespace, name] = (reading.chain[-1].id, epochs[name])


@contextlib.contextmanager
def _renewed(begin: Callable[[], None]) -> Iterator[None]:
    """Calls `begin` every now and then: the store lets the tables go soon after their loader has died."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(_SECONDS / 4):
            with contextlib.suppress(Exception):  # the load itself will meet it
                begin()

    thread = threading.Thread(target=renew, name="het_checkpoint_renew", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def read_tables(
    directory: str | os.PathLike[str],
    namespace: str,
    tables: Iterable[str] | None = None,
    strict: bool = True,
    slots: bool = True,
) -> Manifest:
    """Gives live tables the rows that `write_tables` or `save` has written. Not collective.

    All files are verified before a table is touched.

    Args:
      directory: The directory with the manifest.
      namespace: Whose tables.
      tables: Names; None: all that the checkpoint has and all live ones.
      strict: Both sides must have these tables.
      slots: Whether the slots of the optimizers come along.

    Returns:
      The manifest, with the names of tables that only one side has.

    Raises:
      FileNotFoundError, NotADirectoryError: There is no such checkpoint, or a file of it is missing.
      ValueError: It is damaged, or does not fit the live tables.
    """
    ranks = Ranks(alone=True)
    chain = directories.chain(Path(directory))
    found = match(chain[-1], store_info(namespace)["tables"], tables, strict, slots)
    loader = f"het_tf-{uuid.uuid4().hex}"
    reading = plan_reading(chain, namespace, found.tables, slots, loader)
    verify_files([(part.path, part.entry) for part in reading.parts])
    load(reading, ranks, Progress(False, "", 0))
    return replace(chain[-1], only_in_checkpoint=found.only_in_checkpoint, only_live=found.only_live)
