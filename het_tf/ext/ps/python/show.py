"""How `het ps status` looks."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from het_tf.ext.ps.python.jobs import Job
from het_tf.ext.ps.python.status import REPLICATION, Picture, Server
from het_tf.python.quoting import quoted
from het_tf.python.show import number, size

_COLOURS = {"up": "green", "loading": "yellow", "failing": "yellow", "down": "red"}


def render(picture: Picture) -> Group:
    """Returns some lines for each server, then the faults. Long lines wrap; nothing is cut."""
    lines = [line for server in picture.servers for line in _lines(server)]
    lines.append(Text(_totals(picture)))
    lines += [Text(line) for name, job in picture.jobs.items() for line in _job(name, job)]
    lines += [Text(f"note: {note}", style="yellow") for note in picture.notes]
    lines += [Text(f"fault: {fault}", style="red") for fault in picture.faults]
    return Group(*lines)


def _lines(server: Server) -> Iterator[RenderableType]:
    shard = "no shard" if server.shard is None else f"shard {server.shard}"
    head = Text(f"{shard}  {server.role}  ")
    head.append(server.state, style=_COLOURS[server.state])
    head.append(f"  {server.place}  {server.name}".rstrip())
    yield head
    if not server.info:
        return
    does = f"{number(server.number('het_partitions'))} partitions, {number(server.number('het_rows'))} rows"
    if server.pushes is not None and server.pulls is not None:
        does += f", {number(server.pushes)} pushes/s, {number(server.pulls)} rows pulled/s"
    does += f", {server.number('connected_clients')} clients"
    if server.lag is not None:
        does += f", {size(server.lag)} behind its primary"
    most = f" of {size(server.number('maxmemory'))}" if server.number("maxmemory") else ""
    memory = (
        f"memory {size(server.number('used_memory'))}{most}: {size(server.number('het_bytes'))} partitions, "
        f"{size(server.number(REPLICATION))} replication; on disk: {server.persistence}"
    )
    for line in (does, memory):
        yield Padding(Text(line), (0, 0, 0, 4), expand=False)


def _job(name: str, job: Job) -> Iterator[str]:
    yield f"namespace {quoted(name)}: {number(len(job.tables))} tables"
    for table, of_table in job.tables.items():
        yield f"    table {quoted(table)}: {number(of_table['rows'])} rows, {size(of_table['bytes'])}"
    for rank, report in sorted(job.workers.items()):
        caches = [table["cache"] for table in report["tables"].values() if "cache" in table]
        reads, hits = (sum(cache.get(name, 0) for cache in caches) for name in ("reads", "hits"))
        hit = f"{100 * hits / reads:.1f} % of reads hit" if reads else "no reads"
        lag = max((cache["staleness"]["p99_at_most"] for cache in caches), default=0)
        yield f"    rank {rank}: {hit}, 99 % of lags at most {lag:g}, seen {report['seen']:.0f} s ago"
    for follower, report in job.followers.items():
        age = "unknown" if report["age"] is None else f"{report['age']:.1f} s"
        yield f"    follower {follower}: rows {age} old, seen {report['seen']:.0f} s ago"


def _totals(picture: Picture) -> str:
    primaries = [server for server in picture.servers if server.role == "primary" and server.info]
    rows = sum(server.number("het_rows") for server in primaries)
    table_bytes = sum(server.number("het_bytes") for server in primaries)
    each = f", {table_bytes / rows:.0f} bytes a row" if rows else ""
    return f"{number(rows)} rows, {size(table_bytes)} in partitions{each}"
