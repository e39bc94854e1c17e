"""Native export that follows training: rows and dense weights change while the SavedModel is served.

    SavedModel/
      assets/rows-000.het          the rows at the export, as without `follow`
             dense.safetensors     the dense weights at the export (publishing/blob.py)
             follow.json           what a follower and the ops need
      het_live/                    made by a follower: present rows and dense weights
      saved_model.pb               HetFollowDense ─ dense weights ─► the model's layers
                                        └ ticket ─► HetFollowLookup(ids) ─ rows ─► the model's layers

The model is traced with its weights replaced by the outputs of HetFollowDense. Each lookup takes the op's
ticket, so that a request reads its rows after its dense weights (het_tf/core/follow/followed_model.h).
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from het_tf.python.checkpoint.store import store_info
from het_tf.python.export import native, redirect
from het_tf.python.export.rows import Source
from het_tf.python.layer import ops
from het_tf.python.ps import address as addresses
from het_tf.python.ps.client import Client
from het_tf.python.ps.partitions import positions
from het_tf.python.publishing import blob, weights
from het_tf.python.session import native as plugin
from het_tf.python.session import settings
from het_tf.python.session.native import tf

FILE = "follow.json"
DENSE = "dense.safetensors"


@dataclass(frozen=True)
class Follow:
    """How an export follows training: the argument `follow` of `het_tf.export`.

    Attributes:
      address: The parameter server that trains the tables, `redis://HOST[:PORT][,...]`, `rediss://...` or
        `unix://PATH`, without a password and a client's certificate: the follower gets those by the
        environment's HET_SERVE_PS.
      max_age: Seconds: the largest allowed age of a served row. The age is the time since the follower asked
        the server for the state that it shows; it is unknown, and beyond, before a follower has run.
      stale: What happens beyond: "serve": rows are served, counted, and reported on stderr; "fail": the
        request fails.
      max_skew: Seconds: how much newer than the dense weights in force rows should be at most. Beyond, rows
        go on, and `het serve status` reports it. None: no limit.

    Raises:
      ValueError: An argument is out of range.
    """

    address: str
    max_age: float = 2.0
    stale: str = "serve"
    max_skew: float | None = None

    def __post_init__(self) -> None:
        """Checks the arguments."""
        if not isinstance(self.address, str):
            raise ValueError(f"address is {self.address!r}; give one such as 'redis://HOST:PORT'")
        parsed = addresses.parse(self.address)
        if parsed.public() != parsed:
            what = "a password" if parsed.has_login else "the certificate of a client"
            raise ValueError(
                f"address has {what}, which must not be in a SavedModel; leave it out, and give the follower "
                "the whole address by the environment's HET_SERVE_PS"
            )
        if not _is_time(self.max_age):
            raise ValueError(f"max_age is {self.max_age!r}; give seconds > 0")
        if self.stale not in ("serve", "fail"):
            raise ValueError(f"stale is {self.stale!r}; give 'serve' or 'fail'")
        if self.max_skew is not None and not _is_time(self.max_skew):
            raise ValueError(f"max_skew is {self.max_skew!r}; give seconds > 0, or None for no limit")


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")


class Backend(native.Backend):
    """Lookups by HetFollowLookup, dense weights by HetFollowDense. See `redirect.Backend`.

    Args:
      sources: See `redirect.Backend`. They have no filters, and are of one namespace.
      options: See `redirect.Backend`.
      directory: See `redirect.Backend`.
      follow: A `Follow`, or its address.

    Raises:
      TypeError: `follow` is neither.
      ValueError: Rows are filtered; the model has tables of several namespaces.
      RuntimeError: The tables are not at a parameter server.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        options: redirect.Options,
        directory: Path,
        *,
        follow: Follow | str,
    ) -> None:
        self._follow = Follow(follow) if isinstance(follow, str) else follow
        if not isinstance(self._follow, Follow):
            raise TypeError(f"follow is {follow!r}; give het_tf.Follow(address), or an address")
        if any(source.filter.min_count or source.filter.max_age is not None for source in sources):
            raise ValueError(
                "min_count and max_age leave rows out, but a follower brings all that the server has; leave "
                "them out (follow=het_tf.Follow(address, max_age=...) bounds the age of a served row)"
            )
        namespaces = sorted({source.namespace for source in sources})
        if len(namespaces) > 1:
            raise ValueError(f"the tables are of several namespaces, {namespaces}; one follower reads one")
        self._namespace = namespaces[0]
        self._store = store_info(self._namespace)
        if not self._store["remote"]:
            raise RuntimeError(
                "the tables are in this process, so no follower can read them; train at a parameter server "
                "(het_tf.init(ps=...)), or leave follow out"
            )
        # Rows change while they are read: a follower needs the changes since the beginning.
        server = addresses.parse(settings.parameter_server(), settings.ask_password())
        with Client(server) as client:
            self._positions = positions(client, self._namespace)
        super().__init__(sources, options, directory)
        self._asset: Any = None
        self._weights: list[tuple[str, Any]] = []  # names and variables
        self._ticket: Any = None

    @contextlib.contextmanager
    def around(self, model: Any) -> Iterator[None]:
        """Replaces the model's weights by those in force. See `redirect.Backend`."""
        if self._asset is None:
            with tf.init_scope():
                self._write(model)
        with tf.device("CPU:0"):
            values, self._ticket = plugin.ops.het_follow_dense(
                path=self._asset.asset_path,
                dtypes=[variable.dtype for _, variable in self._weights],
                weights=blob.described(weights.specs(self._weights)),
            )
        mapping = []
        for (_, variable), value in zip(self._weights, values, strict=True):
            value.set_shape(variable.shape)
            mapping.append((variable, value))
        with tf.keras.StatelessScope(state_mapping=mapping):
            yield

    def lookup(self, requests: Sequence[redirect.Request]) -> list[Any]:
        """Makes one op for all features. See `redirect.Backend`."""
        with tf.device("CPU:0"):
            return list(
                plugin.ops.het_follow_lookup(
                    ids=[request.ids for request in requests],
                    hints=[ops.hint(request.table.dim) for request in requests],
                    path=self._asset.asset_path,
                    ticket=self._ticket,
                    tables=[request.table.name for request in requests],
                )
            )

    def trackables(self) -> Any:
        """The files."""
        return [*super().trackables(), self._asset, self._dense]

    def _write(self, model: Any) -> None:
        """Writes the base's dense weights and follow.json."""
        self._weights = weights.variables_of(model)
        specs = weights.specs(self._weights)
        (self.directory / DENSE).write_bytes(blob.pack(weights.read(model)))
        document = {
            "address": addresses.parse(self._follow.address).url(),
            "namespace": self._namespace,
            "partitions": self._store["partitions"],
            "hash_seed": self._store["hash_seed"],
            "positions": self._positions,
            "tables": [
                {"name": source.table.name, "file": path.name, "spec": source.table.spec}
                for source, path in zip(self.sources.values(), self.files.values(), strict=True)
            ],
            "dense": {
                "file": DENSE,
                "signature": blob.signature(specs),
                "weights": json.loads(blob.described(specs)),
            },
            "max_age": self._follow.max_age,
            "stale": self._follow.stale,
            "max_skew": self._follow.max_skew,
        }
        (self.directory / FILE).write_text(json.dumps(document, indent=1) + "\n")
        self._asset = tf.saved_model.Asset(str(self.directory / FILE))
        self._dense = tf.saved_model.Asset(str(self.directory / DENSE))
