"""What a store says of its jobs, each of which has a namespace: tables, ranks of workers, followers.

INFO het_tables                 rows and bytes of tables, by servers
het:NS:workers:RANK             the report of a rank (reports.py)
het:NS:workers:HOST-PID         of a process that trains alone
het:NS:followers:NAME           that of a `het serve follow`
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from het_tf.ext.ps.python import reports
from het_tf.ext.ps.python.node import Node

TABLE = "het_table_"
"""With what the names of INFO begin whose values are tables."""
_REPORT = re.compile(rf"het:(.*):({'|'.join(reports.KINDS)}):([^{{}}]+)", re.DOTALL)
_NUMBERED = re.compile(r"\d{1,9}")


@dataclass
class Job:
    """The job of a namespace at one moment.

    Attributes:
      tables: Name -> "rows" and "bytes" in the store; "limit_rows" where there is a limit.
      workers: Rank -> its report (session/reporting.py), with its age in seconds as "seen". A process that
        trains alone is rank 0, unless there are reports of a job of several ranks.
      followers: Name -> likewise (ext/serving/python/following/report.py).
    """

    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    workers: dict[int, dict[str, Any]] = field(default_factory=dict)
    followers: dict[str, dict[str, Any]] = field(default_factory=dict)


def of_tables(servers: Iterable[Mapping[str, str]]) -> dict[str, Job]:
    """Returns the job of each namespace with its tables, from INFO of the servers of all rows."""
    jobs: dict[str, Job] = {}
    for info in servers:
        for line in (value for name, value in info.items() if name.startswith(TABLE)):
            found = dict(pair.split("=", 1) for pair in line.split(","))
            job = jobs.setdefault(unquote(found["namespace"]), Job())
            table = job.tables.setdefault(unquote(found["name"]), {"rows": 0, "bytes": 0})
            table["rows"] += int(found["rows"])
            table["bytes"] += int(found["bytes"])
            if limit := int(found["max_rows"]):
                table["limit_rows"] = limit
    return jobs


def add_reports(jobs: dict[str, Job], primaries: Iterable[Node]) -> None:
    """Adds the reports of ranks and followers.

    Args:
      jobs: Of `of_tables`. A report in another namespace is of one that was removed.
      primaries: Connections to the servers.

    Raises:
      Unreachable, Refused: As `Node.ask`.
    """
    alone: dict[str, dict[str, Any]] = {name: {} for name in jobs}  # of each namespace
    for node in primaries:
        told = [
            (key, found)
            for key in node.scan("het:*")
            if (found := _REPORT.fullmatch(key)) and found[1] in jobs
        ]
        texts = node.ask_all([("GET", key) for key, _ in told])
        left = node.ask_all([("PTTL", key) for key, _ in told])
        for (_, found), text, rest in zip(told, texts, left, strict=True):
            _add_report(jobs[found[1]], alone[found[1]], found[2], found[3], text, rest)
    for name, found_alone in alone.items():
        if found_alone and not jobs[name].workers:
            jobs[name].workers = {0: _one_of(found_alone)}


def _one_of(alone: dict[str, Any]) -> Any:
    """Of processes that train alone the same one each time, as long as it lives."""
    living = [who for who, report in alone.items() if report["seen"] < reports.LIVES]
    return alone[min(living) if living else min(alone, key=lambda who: alone[who]["seen"])]


def _add_report(
    job: Job, alone: dict[str, dict[str, Any]], kind: str, who: str, text: Any, left: Any
) -> None:
    report = reports.unpacked(text) if isinstance(text, str) else None
    if report is None:  # it has expired meanwhile, or is none
        return
    report["seen"] = max(0.0, reports.KEEP - left / 1000)
    if kind == "followers":
        job.followers[who] = report
    elif _NUMBERED.fullmatch(who):
        job.workers[int(who)] = report
    else:
        alone[who] = report
