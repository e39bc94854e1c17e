"""What writing and reading of rows have in common: the store, files and threads.

One call of the native library writes or reads one file; it holds no lock of Python's, so that a few threads
are busy at once.
"""

import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from het_tf.python.checkpoint.manifest import Manifest
from het_tf.python.session import native

_MOST_THREADS = 8

# Which checkpoint the tables of this process have come from: (namespace, table) -> (its id, epochs since).
sources: dict[tuple[str, str], tuple[str, list[str]]] = {}


def store_info(namespace: str) -> dict[str, Any]:
    """The store of a namespace: "partitions", "hash_seed", "remote", and "tables" by name."""
    return dict(json.loads(native.call("HetStoreInfo", namespace)))


def save_rows(
    namespace: str,
    path: Path,
    tables: list[str],
    partitions: list[int],
    since: dict[str, list[str]] | None = None,
) -> dict[str, Any]:
    """Writes some partitions of tables into a new file of rows. Returns its entry, with "tables".

    Args:
      namespace: Whose tables.
      path: Of the file.
      tables: Their names.
      partitions: Their numbers.
      since: Of each table of which only the changes are written: the files that say what the base has, oldest
        first.
    """
    request = {"tables": tables, "partitions": partitions, "since": {"tables": since} if since else None}
    return dict(json.loads(native.call("HetSaveRows", namespace, str(path), json.dumps(request))))


def merge_rows(
    path: Path, store: dict[str, int], partitions: list[int], tables: list[dict[str, Any]]
) -> dict[str, Any]:
    """Writes the newest rows of chains of files into a new one. Returns its entry, with "tables".

    Args:
      path: Of the file.
      store: Its shape: "partitions", "hash_seed".
      partitions: Those of it that the file has.
      tables: Of each "name", "dim", "slot_floats", "complete" and "files", the oldest first.
    """
    request = {"store": store, "partitions": partitions, "tables": tables}
    return dict(json.loads(native.call("HetMergeRows", str(path), json.dumps(request))))


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
