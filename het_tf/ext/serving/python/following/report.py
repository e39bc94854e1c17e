"""The report that a follower leaves at its parameter server, for `het ps exporter` and `het ps status`."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from het_tf.ext.ps.python import reports
from het_tf.ext.ps.python.address import Address
from het_tf.ext.serving.python.following import live
from het_tf.ext.serving.python.following.target import Target


def of(target: Target) -> dict[str, Any]:
    """Returns the report: what `het serve status` shows."""
    state = live.read(target)
    limits = {"max_age": target.max_age, "max_skew": target.max_skew}
    return {"age": state.age, "skew": state.skew, "version": state.version, "rows": state.rows, **limits}


@contextlib.contextmanager
def reporting(target: Target, address: Address, say: Callable[[str], None]) -> Iterator[None]:
    """Reports while the context is open."""
    who = f"{socket.gethostname()}:{quote(str(target.directory.absolute()))}"
    key = reports.key(target.namespace, "followers", who)
    reporter = reports.Reporter(
        address, lambda: {key: of(target)}, lambda why: say(f"het ps exporter will lack this follower: {why}")
    )
    try:
        yield
    finally:
        reporter.stop()
