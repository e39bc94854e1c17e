"""How `het-ps status` looks."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from het_tf.python.ps.status import Picture, Server
from het_tf.python.show import number, size

_COLOURS = {"up": "green", "loading": "yellow", "failing": "yellow", "down": "red"}


def render(picture: Picture) -> Group:
    """The table, and under it what is wrong."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("shard", justify="right")
    for title in ("server", "role", "state"):
        table.add_column(title)
    for title in ("partitions", "rows", "memory", "pushes/s", "rows pulled/s", "clients", "lag"):
        table.add_column(title, justify="right")
    table.add_column("on disk")
    for server in picture.servers:
        table.add_row(*_cells(server))
    totals = _totals(picture)
    lines = [Text(f"note: {note}", style="yellow") for note in picture.notes]
    lines += [Text(f"fault: {fault}", style="red") for fault in picture.faults]
    return Group(table, Text(totals), *lines)


def _cells(server: Server) -> list[Text | str]:
    name = f"{server.name} {server.place}".strip()
    state = Text(server.state, style=_COLOURS[server.state])
    head: list[Text | str] = [
        "-" if server.shard is None else str(server.shard),
        Text(name, no_wrap=True),
        server.role,
        state,
    ]
    if not server.info:
        return [*head, "", "", "", "", "", "", "", ""]
    memory = size(server.number("used_memory"))
    if server.number("maxmemory"):
        memory += f" of {size(server.number('maxmemory'))}"
    return [
        *head,
        number(server.number("het_partitions")),
        number(server.number("het_rows")),
        memory,
        "" if server.pushes is None else number(server.pushes),
        "" if server.pulls is None else number(server.pulls),
        str(server.number("connected_clients")),
        "" if server.lag is None else size(server.lag),
        server.persistence,
    ]


def _totals(picture: Picture) -> str:
    primaries = [server for server in picture.servers if server.role == "primary" and server.info]
    rows = sum(server.number("het_rows") for server in primaries)
    table_bytes = sum(server.number("het_bytes") for server in primaries)
    each = f", {table_bytes / rows:.0f} bytes a row" if rows else ""
    return f"{number(rows)} rows, {size(table_bytes)} in partitions{each}"
