"""How `het ps status` looks."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from het_tf.ext.ps.python.status import REPLICATION, Picture, Server
from het_tf.python.show import number, size

_COLOURS = {"up": "green", "loading": "yellow", "failing": "yellow", "down": "red"}


def render(picture: Picture) -> Group:
    """Returns some lines for each server, then the faults. Long lines wrap; nothing is cut."""
    lines = [line for server in picture.servers for line in _lines(server)]
    lines.append(Text(_totals(picture)))
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


def _totals(picture: Picture) -> str:
    primaries = [server for server in picture.servers if server.role == "primary" and server.info]
    rows = sum(server.number("het_rows") for server in primaries)
    table_bytes = sum(server.number("het_bytes") for server in primaries)
    each = f", {table_bytes / rows:.0f} bytes a row" if rows else ""
    return f"{number(rows)} rows, {size(table_bytes)} in partitions{each}"
