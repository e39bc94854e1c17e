"""The report that each rank leaves at its parameter server, for `het ps exporter` and `het ps status`.

It has the counters of the rank's caches, without those that are 0, and the times of its phases. Nobody is
asked for it but the caches, so a server that is away delays nothing.
"""

import atexit
import json
import logging
import os
import socket
from typing import Any

from het_tf.python import extensions
from het_tf.python.session import collective, native, settings

log = logging.getLogger("het_tf")
_LEFT_OUT = ("table", "dim", "mode", "planned", "rows", "bytes")  # of a table's own figures
_reporter: Any = None


def report() -> dict[str, dict[str, Any]]:
    """Returns the report for each namespace that this process uses."""
    rank, size = collective.ranks()
    who = {"rank": rank, "size": size, "host": socket.gethostname(), "pid": os.getpid()}
    found = json.loads(native.call("HetReport"))
    return {
        space: {**who, **_without_zeros(of_space)} for space, of_space in found.items() if of_space["tables"]
    }


def _without_zeros(of_space: dict[str, Any]) -> dict[str, Any]:
    tables = {}
    for table, stats in of_space["tables"].items():
        tables[table] = {figure: value for figure, value in stats.items() if figure not in _LEFT_OUT}
        if cache := stats.get("cache"):
            tables[table]["cache"] = {figure: value for figure, value in cache.items() if value != 0}
    phases = {part: phase for part, phase in of_space["phases"].items() if any(phase["counts"])}
    return {"tables": tables, "phases": phases}


def name(one: dict[str, Any]) -> str:
    """Of a report: its rank; of a process alone, which may share a namespace, HOST-PID."""
    return str(one["rank"]) if one["size"] > 1 else f"{one['host']}-{one['pid']}"


def start() -> None:
    """Reports to the present parameter server from now on; without one, no more."""
    global _reporter
    stop()
    if not settings.parameter_server():
        return
    reports = extensions.of("reports")

    def read() -> dict[str, dict[str, Any]]:
        return {reports.key(space, "workers", name(one)): one for space, one in report().items()}

    where = extensions.of("address").parse(settings.parameter_server(), settings.ask_password())
    _reporter = reports.Reporter(
        where, read, lambda why: log.warning("het ps exporter will lack this rank: %s", why)
    )
    atexit.unregister(stop)
    atexit.register(stop)  # now: it runs before the server of the job is stopped


def stop() -> None:
    """Ends the reports."""
    global _reporter
    reporter, _reporter = _reporter, None
    if reporter is not None and reporter.mine():
        reporter.stop()
