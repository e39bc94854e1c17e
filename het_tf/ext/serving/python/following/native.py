"""The follower of rows in C++ (capi/tools/follow.h)."""

import contextlib
import ctypes
import json
from collections.abc import Iterator
from typing import Any

from het_tf.ext.serving.python.following.target import Target
from het_tf.ext.serving.python.publishing.versions import Version
from het_tf.python import calling, versions
from het_tf.python.checks import is_number

_SILENCE = 5.0  # seconds without a byte after which a server counts as dead


class Follower:
    """A thread that keeps the rows of a live directory up with a parameter server. See `opened`."""

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self._handle = handle

    def offer(self, version: Version, dense: str) -> None:
        """Offers a version, which comes into force when all rows have reached its cut.

        Args:
          version: The version.
          dense: The file of its dense weights, relative to the live directory.

        Raises:
          ValueError: Its cut is of another store.
        """
        calling.tools()("HetFollowOffer", self._handle, _described(version, dense))

    def roll_back(self, version: Version, dense: str) -> None:
        """Goes back to the dense weights of a version; rows go on. Arguments and errors as of `offer`."""
        calling.tools()("HetFollowRollBack", self._handle, _described(version, dense))

    def status(self) -> dict[str, Any]:
        """Returns what capi/tools/follow.h says of HetFollowStatus."""
        return dict(json.loads(calling.tools()("HetFollowStatus", self._handle)))


def _described(version: Version, dense: str) -> str:
    through = version.trained_through
    fields = {
        "number": version.number,
        "dense": dense,
        "cut": version.cut,
        "trained_through": float(through) if is_number(through) else None,
    }
    return json.dumps(fields)


def _files(target: Target) -> dict[str, Any]:
    return {"directory": str(target.live), "base": [str(file) for file in target.files]}


def inspect(target: Target) -> dict[str, Any]:
    """Returns what capi/tools/follow.h says of HetFollowInspect."""
    return dict(json.loads(calling.tools()("HetFollowInspect", json.dumps(_files(target)))))


@contextlib.contextmanager
def opened(target: Target, address: str, poll: float, rows: str) -> Iterator[Follower]:
    """Follows while the context is open.

    Args:
      target: The export.
      address: The parameter server.
      poll: Seconds between two questions to a partition.
      rows: The format in which rows come, which rounds them: "float32", "float16", "int8" or "int4".

    Raises:
      ConnectionError: No server answers.
      RuntimeError: Another process follows, or the server does not have the namespace.
      OSError: The live files cannot be made.
    """
    fields = {
        "address": address,
        "namespace": target.namespace,
        **_files(target),
        "positions": target.positions,
        "page_bytes": 1 << 20,
        "poll": poll,
        "rows": rows,
        "timeout": _SILENCE,
    }
    handle = ctypes.c_void_p()
    calling.tools()("HetFollowOpen", json.dumps(fields), ctypes.byref(handle))
    try:
        yield Follower(handle)
    finally:
        calling.load(versions.ENGINE).HetFollowClose(handle)
