"""The versions of a model: the stream het:NAMESPACE:versions at the parameter server.

An entry's ID is "V-0" for version V, so the server refuses a second version V. The fields:

    kind             "version"
    dense            where the dense weights are: redis:KEY or file:PATH (dense_store.py)
    sha256, bytes    of the blob of dense weights
    signature        of its names, shapes and dtypes (blob.py)
    cut              JSON list: each partition's position, "INCARNATION:CHANGES"; the version needs at least
                     these changes of rows
    trained_through  JSON value of the publisher's
    time             when it was published, in seconds since 1970

Anybody with rights at the server may have written an entry: `Version.parse` checks every field. Nothing here
imports TensorFlow.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from het_tf.python.files import parse_json
from het_tf.python.ps.client import Client
from het_tf.python.ps.cluster import SLOTS
from het_tf.python.ps.errors import ServerError
from het_tf.python.ps.node import Refused
from het_tf.python.ps.partitions import meta_key

MOST_KEPT = 1000
"""The most versions that a stream keeps."""
MOST_TEXT = 64 << 10
"""The most bytes of `trained_through`."""
_MOST_CUT = 48 * SLOTS  # bytes of a cut's JSON
_MOST_NUMBER = 2**63 - 1
_DIGEST = re.compile(r"[0-9a-f]{64}")
_POSITION = re.compile(r"[0-9]{1,20}:[0-9]{1,20}")
_FIELDS = ("kind", "dense", "sha256", "bytes", "signature", "cut", "trained_through", "time")


class VersionError(ValueError):
    """An entry of the stream is no version. `number` is the version that its ID names; 0: none."""

    def __init__(self, entry: str, why: str, number: int = 0) -> None:
        super().__init__(f"the entry {entry[:60]!r} is no version that this het_tf reads: {why}")
        self.number = number


class TakenError(ServerError):
    """Another process has published a version of this number, or a later one."""


@dataclass(frozen=True)
class Version:
    """One published version of a model.

    Attributes:
      number: From 1; later versions have larger ones.
      dense: Where the dense weights are: "redis:KEY" or "file:PATH".
      sha256: Of their blob, 64 hexadecimal digits.
      bytes: Of their blob.
      signature: sha256 of their names, shapes and dtypes.
      cut: Position of each partition, "INCARNATION:CHANGES": the rows that belong to the dense weights have
        at least these changes.
      trained_through: How far training had come, a JSON value of the publisher's; by default its time in
        seconds since 1970, when the caches were flushed.
      time: When it was published, in seconds since 1970.
      kind: "version".
    """

    number: int
    dense: str
    sha256: str
    bytes: int
    signature: str
    cut: tuple[str, ...]
    trained_through: Any
    time: float
    kind: str = "version"

    def fields(self) -> list[str]:
        """Returns names and values of the entry's fields, as XADD takes them."""
        values = {**vars(self), "cut": json.dumps(self.cut), "time": repr(self.time)}
        values["trained_through"] = json.dumps(self.trained_through, allow_nan=False)
        return [word for name in _FIELDS for word in (name, str(values[name]))]

    @classmethod
    def parse(cls, entry: str, fields: Sequence[str]) -> "Version":
        """Reads an entry: its ID, and names and values of its fields; unknown ones are ignored.

        Raises:
          VersionError: The ID or a field is not of a version.
        """
        sequence, _, rest = entry.partition("-")
        if not sequence.isascii() or not sequence.isdigit() or rest != "0":
            raise VersionError(entry, "its ID is no V-0")
        number = int(sequence)
        if not 1 <= number <= _MOST_NUMBER:
            raise VersionError(entry, f"its number is not in 1..{_MOST_NUMBER}")
        values = dict(zip(fields[::2], fields[1::2], strict=False))

        def no(name: str, what: str) -> VersionError:
            return VersionError(entry, f"{name} is {values[name][:80]!r}, {what}", number)

        if missing := [name for name in _FIELDS if name not in values]:
            raise VersionError(entry, f"it lacks {', '.join(missing)}", number)
        if values["kind"] != "version":
            raise no("kind", "which a newer het_tf may know")
        if not values["dense"].startswith(("redis:", "file:/")):
            raise no("dense", "not redis:KEY or file:/PATH")
        for name in ("sha256", "signature"):
            if not _DIGEST.fullmatch(values[name]):
                raise no(name, "not 64 hexadecimal digits")
        if not re.fullmatch("[0-9]{1,15}", values["bytes"]):
            raise no("bytes", "not a number of bytes")
        cut = _json(values["cut"], _MOST_CUT)
        if not isinstance(cut, list) or not 1 <= len(cut) <= SLOTS:
            raise no("cut", "not a list of positions")
        if not all(isinstance(one, str) and _POSITION.fullmatch(one) for one in cut):
            raise no("cut", "and a position is not INCARNATION:CHANGES")
        through = _json(values["trained_through"], MOST_TEXT)
        if through is _BAD:
            raise no("trained_through", f"not JSON of at most {MOST_TEXT} bytes")
        try:
            when = float(values["time"])
        except ValueError:
            when = math.nan
        if not 0 <= when < math.inf:
            raise no("time", "not seconds since 1970")
        return cls(
            number, values["dense"], values["sha256"], int(values["bytes"]), values["signature"],
            tuple(cut), through, when,
        )  # fmt: skip


_BAD = object()  # no value of JSON


def _json(text: str, most: int) -> Any:
    content = text.encode(errors="replace")
    try:
        return parse_json(content) if len(content) <= most else _BAD
    except ValueError:
        return _BAD


class Versions:
    """The versions of one namespace.

    Args:
      client: The parameter server.
      namespace: The namespace of the model's tables.

    Every method raises `Unreachable` and `Refused` as `Client.ask`, and those that return versions
    VersionError.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        self.key = f"{meta_key(namespace)}:versions"

    def append(self, version: Version, keep: int) -> None:
        """Appends a version, and removes the oldest ones until `keep` are left.

        Raises:
          TakenError: There is a version of this number, or a later one.
        """
        words = ("XADD", self.key, "MAXLEN", keep, f"{version.number}-0", *version.fields())
        try:
            self._client.ask(self.key, *words)
        except Refused as error:
            if "equal or smaller" not in error.reply:
                raise
            # The client may have sent it twice, after a lost answer.
            there = self.last(1)
            if not there or there[0] != version:
                raise TakenError(
                    f"version {version.number} of namespace {self.namespace!r} was not published: another "
                    f"process has published version {there[0].number if there else version.number} "
                    "meanwhile. A namespace has one publisher: end the other one"
                ) from None

    def last(self, count: int = MOST_KEPT) -> list[Version]:
        """Returns the newest `count` versions, the oldest of them first."""
        found = self._client.ask(self.key, "XREVRANGE", self.key, "+", "-", "COUNT", count)
        return [Version.parse(*entry) for entry in reversed(found)]

    def after(self, number: int, wait: float = 0.0) -> list[Version]:
        """Returns all versions later than `number`, the oldest first.

        Args:
          number: A version, which need not exist; 0: all versions.
          wait: Seconds to wait for one if there is none, below the client's `timeout`.
        """
        block = ("BLOCK", max(1, int(wait * 1000))) if wait > 0 else ()
        found = self._client.ask(self.key, "XREAD", *block, "STREAMS", self.key, f"{number}-0")
        return [Version.parse(*entry) for _, entries in found or () for entry in entries]

    def get(self, number: int) -> Version:
        """Returns one version. LookupError: it was never published, or is no longer kept."""
        found = self._client.ask(self.key, "XRANGE", self.key, f"{number}-0", f"{number}-0")
        if not found:
            numbers = [one.number for one in self.last()]
            kept = f"{numbers[0]} to {numbers[-1]} are" if numbers else "none is"
            raise LookupError(
                f"namespace {self.namespace!r} at {self._client.address} has no version {number}; {kept} kept"
            )
        return Version.parse(*found[0])
