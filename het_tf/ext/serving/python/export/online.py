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
from het_tf.ext.serving.python.export.formats import Online
from het_tf.ext.serving.python.export.rows import Source
from het_tf.python.layer.backends import tensorflow as ops
from het_tf.python.session import native, settings
from het_tf.python.session.native import tf
from het_tf.python.table.config import TableConfig
from het_tf.python.table.layer_state import Call


class Backend(redirect.Backend):
    """Lookups by HetLookup at a parameter server. See `redirect.Backend`.

    Args:
      sources: See `redirect.Backend`. They have no filters: the whole table is served.
      format, directory: See `redirect.Backend`.

    Raises:
      ValueError: An argument is out of range; there is no parameter server.
      RuntimeError: The server lacks the namespace or a table.
      ConnectionError: No server answers.
    """

    def __init__(self, sources: Sequence[Source], format: Online, directory: Path) -> None:
        super().__init__(sources, format, directory)
        address, stored = _address(format.ps)
        given = {**vars(format), "ps": stored}
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
    if ps is not None:
        return ps, ps
    address = settings.parameter_server()
    if not address:
        raise ValueError(
            "Online() reads the tables of a parameter server, but there is none; give Online(ps=...), or "
            "take het_tf.serving.Native()"
        )
    return address, addresses.parse(address, settings.ask_password()).public().url()
