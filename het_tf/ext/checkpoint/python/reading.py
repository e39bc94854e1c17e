"""Reads files of rows into live tables: the order of the files, and the load as a whole."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from het_tf.ext.checkpoint.python.manifest import Manifest
from het_tf.ext.checkpoint.python.progress import Add
from het_tf.ext.checkpoint.python.ranks import Ranks
from het_tf.ext.checkpoint.python.row_files import verify_rows
from het_tf.ext.checkpoint.python.store import first_of, in_parallel, sources, store_info, tables_in
from het_tf.python.session import native
from het_tf.python.table import registry

_SECONDS = 120  # how long a store locks the tables of a silent loader


@dataclass(frozen=True)
class Part:
    """A file to load, and the tables to take from it, by their names in the file."""

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
    """The plan of a load; equal on all ranks.

    Attributes:
      namespace: Namespace of the live tables.
      chain: The manifests, the full one first.
      tables: Names in the checkpoint -> names of the live tables.
      slots: Whether to load the optimizers' slots.
      stages: Files; those of one stage are loaded in any order, before those of the next.
      loader: The store's name of this load.
    """

    namespace: str
    chain: list[Manifest]
    tables: dict[str, str]
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
    chain: list[Manifest], namespace: str, tables: dict[str, str], slots: bool, loader: str
) -> Reading:
    """Plans the files to read, and their order. Arguments: as `Reading`."""
    begins = {name: first_of(chain, name) for name in tables}
    stages = []
    for number, manifest in enumerate(chain):
        stage = []
        for file in manifest.files:
            inside = tables_in(file)
            wanted = [name for name in tables if name in inside and begins[name] <= number]
            if wanted:
                stage.append(Part(manifest.path / file["name"], file, wanted))
        if stage:
            stages.append(stage)
    return Reading(namespace, chain, tables, slots, stages, loader)


def verify_files(files: Iterable[tuple[Path, dict[str, Any]]]) -> None:
    """Checks size, header and checksums of files.

    Args:
      files: Paths, each with its entry in the manifest.

    Raises:
      FileNotFoundError: A file is missing.
      ValueError: A file is damaged; the message says where.
    """
    in_parallel(lambda one: verify_rows(*one), files)


def load(reading: Reading, ranks: Ranks, progress: Add) -> None:
    """Replaces the rows of tables by those of verified files. Every rank must call it.

    Until it ends no other worker can read or write the tables.

    Raises:
      RuntimeError, OSError, ConnectionError, TimeoutError, KeyboardInterrupt: It was abandoned half-way; the
        message says so.
    """
    if not reading.tables:
        return
    running = _Load(reading, progress)
    try:
        ranks.first("begin to load", running.begin)
    except KeyboardInterrupt:  # raised after the call, which may have begun the load
        with contextlib.suppress(Exception):
            running.begin()  # fails if another process loads: do not abandon its load
            running.give_up(ranks)
        raise
    try:
        with _renewed(running.begin) if ranks.rank == 0 else contextlib.nullcontext():
            ranks.first("empty the tables", running.clear)
            for stage in reading.stages:
                parts = ranks.share(stage)
                ranks.together("load rows", lambda parts=parts: running.read(parts))  # type: ignore[misc]
        positions = ranks.first("end the load", running.commit)
    except BaseException as error:  # Ctrl-C too: else this process could not load or train any more
        running.give_up(ranks)
        passed_on = (ConnectionError, TimeoutError, MemoryError, KeyboardInterrupt)
        if not isinstance(error, (Exception, KeyboardInterrupt)):
            raise
        kind = type(error) if isinstance(error, passed_on) else RuntimeError
        raise kind(
            f"loading {reading.chain[-1].path} was given up half-way, and the tables "
            f"{', '.join(map(repr, reading.tables.values()))} may hold a part of it: restore again before "
            f"they are used ({error or type(error).__name__})"
        ) from error
    ranks.together("follow the load", lambda: running.follow(ranks))
    registry.accept_rows(reading.namespace, reading.tables.values())
    for there, name in reading.tables.items():
        if reading.slots:  # else rows differ from the checkpoint's at equal clocks
            sources[reading.namespace, name] = (reading.chain[-1].id, there, positions[name])


class _Load:
    """The calls of one load, one for each phase."""

    def __init__(self, reading: Reading, progress: Add) -> None:
        self._reading = reading
        self._progress = progress
        newest = reading.chain[-1].tables
        self._floors = {live: newest[name]["clock_floor"] for name, live in reading.tables.items()}
        self._applies = {live: newest[name]["applies"] for name, live in reading.tables.items()}

    def begin(self) -> None:
        """Locks the tables against other processes for a while."""
        request = {"loader": self._reading.loader, "seconds": _SECONDS}
        native.call("HetLoadBegin", self._reading.namespace, json.dumps(request))

    def clear(self) -> None:
        """Empties them."""
        for name in self._reading.tables.values():
            native.call("HetLoadClear", self._reading.namespace, name)

    def read(self, parts: list[Part]) -> None:
        """Loads files, in any order."""
        in_parallel(self._read_one, parts, lambda part: self._progress(part.rows, part.entry["bytes"]))

    def _read_one(self, part: Part) -> Part:
        to, slots = self._reading.tables, self._reading.slots
        request = {"tables": {name: {"to": to[name], "slots": slots} for name in part.tables}}
        native.call("HetLoadRows", self._reading.namespace, str(part.path), json.dumps(request))
        return part

    def commit(self) -> dict[str, list[str]]:
        """Unlocks the tables. Returns the positions of each, from before others could change it again."""
        live = store_info(self._reading.namespace)["tables"]
        request = {"clock_floors": self._floors, "applies": self._applies}
        native.call("HetLoadCommit", self._reading.namespace, json.dumps(request))
        return {name: live[name]["positions"] for name in self._reading.tables.values()}

    def give_up(self, ranks: Ranks) -> None:
        """Ends the load without its rows."""
        if ranks.rank == 0:
            with contextlib.suppress(Exception):  # report the first error
                native.call("HetLoadAbort", self._reading.namespace)

    def follow(self, ranks: Ranks) -> None:
        """Drops the copies of rows from before the load, and sets the steps of schedules."""
        if ranks.rank == 0:  # as `begin` and `commit` did
            return
        native.call("HetRefresh", self._reading.namespace)
        for name, number in self._applies.items():
            native.call("HetSetApplies", self._reading.namespace, name, number)


@contextlib.contextmanager
def _renewed(begin: Callable[[], None]) -> Iterator[None]:
    """Renews the lock regularly: the store unlocks the tables soon after their loader has died."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(_SECONDS / 4):
            with contextlib.suppress(Exception):  # the load itself will fail
                begin()

    thread = threading.Thread(target=renew, name="het_checkpoint_renew", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
