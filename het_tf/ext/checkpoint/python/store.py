"""Shared by writing and reading of rows: the store, files and threads.

One call of the native library writes or reads one file without Python's lock, so that a few threads work at
once.
"""

import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from het_tf.ext.checkpoint.python.manifest import Manifest
from het_tf.python.session import native

_MOST_THREADS = 8

# The checkpoint that each table of this process was loaded from, its name there, and the store's positions at
# the end of the load: (namespace, table) -> (the checkpoint's id, name, positions).
sources: dict[tuple[str, str], tuple[str, str, list[str]]] = {}


def store_info(namespace: str) -> dict[str, Any]:
    """Returns the store of a namespace: "partitions", "hash_seed", "remote", and "tables" by name."""
    return dict(json.loads(native.call("HetStoreInfo", namespace)))


def changes_since(namespace: str, positions: dict[str, list[str]]) -> dict[str, str]:
    """Returns for each table which changes since the positions the store knows.

    Args:
      namespace: Namespace of the tables.
      positions: For each table one position a partition, of `store_info`.

    Returns:
      For each table "changes": all; "keys": all except removals; or "whole": none.
    """
    request = json.dumps({"tables": positions})
    return dict(json.loads(native.call("HetChangesSince", namespace, request))["tables"])


def save_rows(
    namespace: str,
    path: Path,
    tables: list[str],
    partitions: list[int],
    since: dict[str, list[str]] | None = None,
) -> dict[str, Any]:
    """Writes some partitions of tables into a new file of rows. Returns its entry, with "tables".

    Args:
      namespace: Namespace of the tables.
      path: The new file.
      tables: Names of the tables.
      partitions: Numbers of the partitions.
      since: For each table that is written as an increment: the base's positions.
    """
    request = {"tables": tables, "partitions": partitions, "since": {"tables": since} if since else None}
    return dict(json.loads(native.call("HetSaveRows", namespace, str(path), json.dumps(request))))


def in_parallel(
    action: Callable[[Any], Any], items: Iterable[Any], done: Callable[[Any], None] | None = None
) -> list[Any]:
    """Calls `action` on each item in a few threads. Returns the results in the order of the items.

    After an error no further item is started; the error is raised when all running calls have ended.

    Args:
      action: Called by the threads.
      items: The arguments of the calls.
      done: Called by this thread with each result.
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
    """Names of the tables in a file; a name may have slashes."""
    return {tensor.rpartition("/")[0] for tensor in file["tensors"]}


def first_of(chain: list[Manifest], name: str) -> int:
    """Index of the newest checkpoint of a chain that has all rows of a table.

    Raises:
      ValueError: No checkpoint has all rows: one is missing.
    """
    for number in range(len(chain) - 1, -1, -1):
        there = chain[number].tables.get(name)
        if there is None:
            break
        if there["complete"]:
            return number
    raise ValueError(
        f"{chain[-1].path} has only changes of table {name!r}, and none of its bases has the table itself"
    )
