"""Online export: the op HetLookup reads the live tables at the parameter server, through an inference cache.

    saved_model.pb     HetLookup(ids), with the tables' specs, the server's address and the bound on staleness

The SavedModel has no rows: it serves the present state of training, at most `max_lag` seconds or
`pull_bound` ticks behind (het_tf/ext/serving/cc/serve/online_reader.h). Loading it needs het_tf's library and
a parameter server that has the tables; a serving process does not make tables there, and a user of the
server with read rights is enough.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from het_tf.ext.ps.python import address as addresses
from het_tf.ext.serving.python.export import redirect
from het_tf.ext.serving.python.export.rows import Source
from het_tf.python.layer import ops
from het_tf.python.session import native, settings
from het_tf.python.session.native import tf
from het_tf.python.table.config import TableConfig
from het_tf.python.table.layer_state import Call


class Backend(redirect.Backend):
    """Lookups by HetLookup at a parameter server. See `redirect.Backend`.

    Args:
      sources: See `redirect.Backend`. They have no filters: the whole table is served.
      options: See `redirect.Backend`. Rows are float32, and unknown ids read their initial row.
      directory: See `redirect.Backend`.
      ps: Address of the parameter server, `redis://HOST[:PORT][,...]`, `rediss://...` or `unix://PATH`;
        None: this process's. In the serving process the environment's HET_SERVE_PS overrides it and
        may have a login and a client's certificate, which a SavedModel never has.
      max_lag: Seconds that a served row may be behind the server; or
      pull_bound: Updates that it may be behind. Give one of the two.
      cache_rows: Rows of each table that a serving process keeps; default 262,144.
      stale_ok: If the server does not answer within the deadline: False (default): the call
        fails. True: cached rows are served, counted ("stale" in `het_tf.serving.stats`) and
        reported on stderr; a call with rows that were never read fails.
      deadline: Seconds that a call waits for the server; default 2.
      connections: Number of simultaneous calls to the server; others wait for a connection. Default 4.

    Raises:
      ValueError: An argument is out of range, or does not suit this format.
      RuntimeError: The server lacks the namespace or a table.
      ConnectionError: No server answers.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        options: redirect.Options,
        directory: Path,
        *,
        ps: str | None = None,
        max_lag: float | None = None,
        pull_bound: int | None = None,
        cache_rows: int | None = None,
        stale_ok: bool | None = None,
        deadline: float | None = None,
        connections: int | None = None,
    ) -> None:
        super().__init__(sources, options, directory)
        if options.unknown != "initial":
            raise ValueError(
                f'unknown is {options.unknown!r}, but with format="online" an id without a row reads its '
                "initial row, as in training; leave it out"
            )
        address, stored = _address(ps)
        given = {
            "ps": stored,
            "max_lag": max_lag,
            "pull_bound": pull_bound,
            "cache_rows": cache_rows,
            "stale_ok": stale_ok,
            "deadline": deadline,
            "connections": connections,
        }
        self._online = {name: value for name, value in given.items() if value is not None}
        for namespace in dict.fromkeys(source.namespace for source in sources):
            tables = [source.table for source in sources if source.namespace == namespace]
            specs = self._specs(namespace, tables)
            specs["online"] = {**self._online, "ps": address}
            native.call("HetOnlineCheck", json.dumps(specs))

    def lookup(self, requests: Sequence[redirect.Request]) -> list[Any]:
        """Makes one op for all features, with one exchange per server. See `redirect.Backend`."""
        tables = list({request.table.name: request.table for request in requests}.values())
        numbers = {table.name: number for number, table in enumerate(tables)}
        specs = self._specs(requests[0].namespace, tables)
        specs["features"] = [
            {"table": numbers[request.table.name], "padding_id": None} for request in requests
        ]
        call = Call(
            tables=tuple(request.table.name for request in requests),
            dims=tuple(request.table.dim for request in requests),
            specs=json.dumps(specs),
        )
        with tf.device("CPU:0"):
            rows = ops.lookup(call, [request.ids for request in requests], tf.constant(0.0), False)
        return rows

    def _specs(self, namespace: str, tables: Sequence[TableConfig]) -> dict[str, Any]:
        """See core/engine/call_spec.h."""
        return {
            "namespace": namespace,
            "online": self._online,
            "tables": [table.spec for table in tables],
            "features": [],
        }

    def row_bytes(self) -> None:
        """Rows are not in the export."""
        return None


def _address(ps: str | None) -> tuple[str, str]:
    """Returns the address, and the part of it that a SavedModel may have."""
    if ps is not None and not isinstance(ps, str):
        raise ValueError(f"ps is {ps!r}; give an address, such as 'redis://HOST:PORT' or 'unix:///PATH'")
    address = settings.parameter_server() if ps is None else ps
    if not address:
        raise ValueError(
            'format="online" reads the tables of a parameter server, but there is none; give ps=..., or '
            'format="native"'
        )
    parsed = addresses.parse(address, settings.ask_password() if ps is None else None)
    stored = parsed.public()
    if stored == parsed:
        return address, address
    if ps is not None:
        what = "a password" if parsed.has_login else "the certificate of a client"
        raise ValueError(
            f"ps has {what}, which must not be in a SavedModel; leave it out of ps, and give the serving"
            " process the whole address by the environment's HET_SERVE_PS"
        )
    return address, stored.url()
