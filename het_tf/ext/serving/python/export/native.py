"""Native export: rows in files that serving processes map, read by the op HetServe.

    SavedModel/
      assets/rows-ID-000.het       the rows, one file a table (het_tf/ext/serving/cc/serve/serve_format.h)
             follow.json           what a follower and the ops need
             dense.safetensors     with `follow`: the dense weights at the export
      het_live/                    made by a follower: present rows and dense weights
      saved_model.pb               HetFollowDense ─ dense weights ─► the model's layers (with `follow`)
                                        └ ticket ─► HetServe(ids) ─ rows ─► the model's layers

The files are mapped in place: a SavedModel still works after it is moved or copied as a whole, processes
that serve it share one copy of its rows in memory, and unused rows take no memory. The first request opens
them. Their names have a random ID of the export: a SavedModel that was loaded before another replaced it is
refused then, rather than given the other's rows. Loading it needs het_tf's library: `import het_tf`, or
`tf.load_op_library(".../het_tf/lib/libhet_tf.so")`.

With `follow` the model is traced with its weights replaced by the outputs of HetFollowDense. Each lookup
takes the op's ticket, so that a request reads its rows after its dense weights
(cc/follow/followed_model.h). Without, a follower may come later and bring rows; the dense weights
stay those of the export.
"""

import contextlib
import json
import math
import secrets
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from het_tf.ext.checkpoint.python import tensors
from het_tf.ext.checkpoint.python.model import dense
from het_tf.ext.checkpoint.python.store import store_info
from het_tf.ext.ps.python import address as addresses
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.partitions import positions
from het_tf.ext.serving.python.export import redirect
from het_tf.ext.serving.python.export.formats import Native
from het_tf.ext.serving.python.export.rows import Source
from het_tf.python.layer.backends import tensorflow as ops
from het_tf.python.session import native, settings
from het_tf.python.session.native import tf
from het_tf.python.table import dense_layers
from het_tf.python.table.notes import HetWarning

FILE = "follow.json"
DENSE = "dense.safetensors"


class Backend(redirect.Backend):
    """Lookups by HetServe; with `follow`, dense weights by HetFollowDense. See `redirect.Backend`.

    Args:
      sources: See `redirect.Backend`. With `follow` they have no filters, and are of one namespace.
      format, directory: See `redirect.Backend`.

    Raises:
      ValueError: With `follow`: rows are filtered; the model has tables of several namespaces.
      RuntimeError: With `follow`: the tables are not at a parameter server.
    """

    def __init__(self, sources: Sequence[Source], format: Native, directory: Path) -> None:
        super().__init__(sources, format, directory)
        self._follow = format.follow
        self._document = self._described(sources)
        self._files: dict[tuple[str, str], Path] = {}
        self._bytes: dict[tuple[str, str], int] = {}
        export = secrets.token_hex(4)
        for number, source in enumerate(sources):
            path = directory / f"rows-{export}-{number:03d}.het"
            written = write(path, source, format)
            self._files[source.key] = path
            self._bytes[source.key] = written["rows"] * written["row_bytes"]
        self._document["tables"] = [
            {"name": source.table.name, "file": path.name}
            for source, path in zip(sources, self._files.values(), strict=True)
        ]
        self._assets = [tf.saved_model.Asset(str(path)) for path in self._files.values()]
        self._asset: Any = None
        self._weights: list[dense.Entry] = []  # with `follow`
        self._ticket: list[Any] = []
        if self._follow is None:
            self._write()

    def _described(self, sources: Sequence[Source]) -> dict[str, Any]:
        """Returns what follow.json says. Before rows are read: a follower needs the changes from then on."""
        follow = self._follow
        namespaces = sorted({source.namespace for source in sources})
        refused = ""
        if any(source.min_count or source.since is not None for source in sources):
            refused = (
                "min_count and max_age leave rows out, but a follower brings all that the server has; leave "
                "them out (Follow(address, max_age=...) bounds the age of a served row)"
            )
        elif len(namespaces) > 1:
            refused = f"the tables are of several namespaces, {namespaces}; one follower reads one"
        remote = store_info(namespaces[0])["remote"]
        if follow is not None and refused:
            raise ValueError(refused)
        if follow is not None and not remote:
            raise RuntimeError(
                "the tables are in this process, so no follower can read them; train at a parameter server "
                "(het_tf.init(ps=...)), or leave follow out"
            )
        address = ""
        since: tuple[str, ...] = ()
        if remote and not refused:
            server = addresses.parse(settings.parameter_server(), settings.ask_password())
            address = (addresses.parse(follow.address) if follow else server.public()).url()
            with Client(server) as client:
                since = positions(client, namespaces[0])
        return {
            "address": address,
            "namespace": namespaces[0],
            "positions": since,
            "refused": refused,
            "dense": None,
            "max_age": follow.max_age if follow else None,
            "stale": follow.stale if follow else "serve",
            "max_skew": follow.max_skew if follow else None,
        }

    def _write(self) -> None:
        """Writes follow.json."""
        path = self.directory / FILE
        path.write_text(json.dumps(self._document, indent=1) + "\n")
        self._asset = tf.saved_model.Asset(str(path))
        self._assets.append(self._asset)

    @contextlib.contextmanager
    def around(self, model: Any) -> Iterator[None]:
        """With `follow`, replaces the model's weights by those in force. See `redirect.Backend`."""
        if self._follow is None:
            yield
            return
        if self._asset is None:
            with tf.init_scope():
                self._write_dense(model)
        with tf.device("CPU:0"):
            values, ticket = native.ops.het_follow_dense(
                path=self._asset.asset_path,
                dtypes=[one.dtype for one in self._weights],
                weights=tensors.described(one.spec for one in self._weights),
            )
        self._ticket = [ticket]
        mapping = []
        for one, value in zip(self._weights, values, strict=True):
            value.set_shape(one.shape)
            mapping.append((one.variable, value))
        flat = model._flatten_layers()
        copies = [
            one for one in flat if isinstance(one, tf.keras.layers.Normalization)
        ]  # weights in a tensor
        try:
            with tf.keras.StatelessScope(state_mapping=mapping):
                for layer in copies:
                    layer.finalize_state()
                yield
        finally:
            with tf.init_scope():
                for layer in copies:
                    layer.finalize_state()

    def _write_dense(self, model: Any) -> None:
        derived = [
            layer.name
            for layer in dense_layers.layers_of(model)
            if dense_layers.take(layer).variables and not isinstance(layer, tf.keras.layers.Normalization)
        ]
        if derived:
            warnings.warn(
                f"layers {', '.join(map(repr, derived))} have a load_own_variables of their own; what they "
                "derive there stays that of the export while their weights follow. Compute it in call()",
                HetWarning,
                stacklevel=2,
            )
        weights = dense.weights_of(model)
        self._weights = [one for one in weights if one.variable is not None]
        path = self.directory / DENSE
        path.write_bytes(tensors.pack(dense.values(weights)))
        self._assets.append(tf.saved_model.Asset(str(path)))
        signature = tensors.signature(one.spec for one in weights)
        self._document["dense"] = {"file": DENSE, "signature": signature}
        self._write()

    def lookup(self, requests: Sequence[redirect.Request]) -> list[Any]:
        """Makes one op for all features, whose waits for memory overlap. See `redirect.Backend`."""
        with tf.device("CPU:0"):
            return list(
                native.ops.het_serve(
                    ids=[request.ids for request in requests],
                    hints=[ops.hint(request.table.dim) for request in requests],
                    path=self._asset.asset_path,
                    ticket=self._ticket,
                    files=[self._files[request.key].name for request in requests],
                )
            )

    def trackables(self) -> Any:
        """The files."""
        return self._assets

    def row_bytes(self) -> dict[tuple[str, str], int]:
        """Bytes of each table's rows, without the index."""
        return self._bytes


def write(path: Path, source: Source, format: Native) -> dict[str, Any]:
    """Writes the rows of a table to a serving file in chunks.

    Args:
      path: The new file.
      source: The table and its filter; gets the number of dropped rows.
      format: The type of stored rows, and the rows of unknown ids.

    Returns:
      "rows", "row_bytes", and "dropped": the number of rows that the filter left out.

    Raises:
      ValueError: A value is too large for float16.
      LookupError: The table does not exist.
      OSError: `path` exists, or cannot be written.
    """
    how = {"rows": format.row_dtype, "unknown": format.unknown, "min_count": source.min_count}
    if source.since is not None:
        how["last_used"] = max(0, math.ceil(source.since))
    text = native.call("HetServeWrite", source.namespace, source.table.name, str(path), json.dumps(how))
    written = dict(json.loads(text))
    source.kept, source.dropped = written["rows"], written["dropped"]
    return written
