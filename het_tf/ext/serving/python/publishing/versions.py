"""The versions of a model: the stream het:NAMESPACE:versions at the parameter server.

An entry's ID is "V-0" for version V, so the server refuses a second version V. The fields:

    kind             "version", or "candidate": followers wait for its release
    dense            where the dense weights are: redis:KEY or file:PATH (dense_store.py)
    sha256, bytes    of the file of dense weights
    signature        of its names, shapes and dtypes (ext/checkpoint/python/tensors.py)
    cut              JSON list: each partition's position, "INCARNATION:CHANGES"; the version needs at least
                     these changes of rows
    trained_through  JSON value of the publisher's
    time             when it was published, in seconds since 1970

A decision about versions is an entry, too. Its ID is "V-N" with N > 0, where V is the newest version at
that time: so the server refuses a decision that was made without the knowledge of a newer entry. Its fields:

    kind             "release", "rollback" or "resume"
    version          the version that it is about; of "resume": the one that followers had gone back to
    time             as above

Anybody with rights at the server may have written an entry: `Version.parse` and `Decision.parse` check
every field. Nothing here imports TensorFlow.
"""

import json
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.cluster import SLOTS
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.node import Refused
from het_tf.ext.ps.python.partitions import meta_key
from het_tf.python.files import parse_json

MOST_KEPT = 1000
"""The most versions that a stream keeps."""
MOST_TEXT = 64 << 10
"""The most bytes of `trained_through`."""
_TRIES = 10
_MOST_CUT = 48 * SLOTS  # bytes of a cut's JSON
_MOST_NUMBER = 2**63 - 1
_DIGEST = re.compile(r"[0-9a-f]{64}")
_POSITION = re.compile(r"[0-9]{1,20}:[0-9]{1,20}")
_FIELDS = ("kind", "dense", "sha256", "bytes", "signature", "cut", "trained_through", "time")


class VersionError(ValueError):
    """An entry of the stream is neither a version nor a decision. `entry` is its ID."""

    def __init__(self, entry: str, why: str) -> None:
        super().__init__(f"the entry {entry[:60]!r} is no version that this het_tf reads: {why}")
        self.entry = entry


class TakenError(ServerError):
    """Another process has published a version of this number, or a later one."""


@dataclass(frozen=True)
class Version:
    """One published version of a model.

    Attributes:
      number: From 1; later versions have larger ones.
      dense: Where the dense weights are: "redis:KEY" or "file:PATH".
      sha256: Of their file, 64 hexadecimal digits.
      bytes: Of their file.
      signature: sha256 of their names, shapes and dtypes.
      cut: Position of each partition, "INCARNATION:CHANGES": the rows that belong to the dense weights have
        at least these changes.
      trained_through: How far training had come, a JSON value of the publisher's; by default its time in
        seconds since 1970, when the caches were flushed.
      time: When it was published, in seconds since 1970.
      kind: "version", or "candidate": followers wait for its release.
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
        number, sequence = _numbers(entry)
        if sequence != 0:
            raise VersionError(entry, "its ID is no V-0")
        if not 1 <= number <= _MOST_NUMBER:
            raise VersionError(entry, f"its number is not in 1..{_MOST_NUMBER}")
        values = _values(entry, fields, _FIELDS)

        def no(name: str, what: str) -> VersionError:
            return VersionError(entry, f"{name} is {values[name][:80]!r}, {what}")

        if values["kind"] not in ("version", "candidate"):
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
        return cls(
            number, values["dense"], values["sha256"], int(values["bytes"]), values["signature"],
            tuple(cut), through, _time(entry, values["time"]), values["kind"],
        )  # fmt: skip


@dataclass(frozen=True)
class Decision:
    """What followers shall do with the versions.

    Attributes:
      kind: "release": the candidate comes into force. "rollback": followers go back to the version's dense
        weights and stay there. "resume": they go on.
      version: The version's number.
      time: When it was made, in seconds since 1970.
      entry: Its ID in the stream; "": it was not appended yet.
    """

    kind: str
    version: int
    time: float
    entry: str = ""

    def fields(self) -> list[str]:
        """As `Version.fields`."""
        return ["kind", self.kind, "version", str(self.version), "time", repr(self.time)]

    @classmethod
    def parse(cls, entry: str, fields: Sequence[str]) -> "Decision":
        """Reads an entry, as `Version.parse`.

        Raises:
          VersionError: A field is not of a decision.
        """
        values = _values(entry, fields, ("kind", "version", "time"))
        if values["kind"] not in ("release", "rollback", "resume"):
            raise VersionError(entry, f"kind is {values['kind'][:80]!r}, which a newer het_tf may know")
        if not re.fullmatch("[0-9]{1,19}", values["version"]):
            raise VersionError(entry, "its version is no number")
        return cls(values["kind"], int(values["version"]), _time(entry, values["time"]), entry)


def parse_entry(entry: str, fields: Sequence[str]) -> Version | Decision:
    """Reads an entry of the stream. VersionError: it is neither."""
    return Version.parse(entry, fields) if _numbers(entry)[1] == 0 else Decision.parse(entry, fields)


def _numbers(entry: str) -> tuple[int, int]:
    if not re.fullmatch("[0-9]{1,20}-[0-9]{1,20}", entry):
        raise VersionError(entry, "its ID is no V-N")
    number, _, sequence = entry.partition("-")
    return int(number), int(sequence)


def _values(entry: str, fields: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    values = dict(zip(fields[::2], fields[1::2], strict=False))
    if missing := [name for name in names if name not in values]:
        raise VersionError(entry, f"it lacks {', '.join(missing)}")
    return values


def _time(entry: str, text: str) -> float:
    try:
        when = float(text)
    except ValueError:
        when = math.nan
    if not 0 <= when < math.inf:
        raise VersionError(entry, f"time is {text[:80]!r}, not seconds since 1970")
    return when


_BAD = object()  # no value of JSON


def _json(text: str, most: int) -> Any:
    content = text.encode(errors="replace")
    try:
        return parse_json(content) if len(content) <= most else _BAD
    except ValueError:
        return _BAD


class History:
    """What the entries of a stream say when they are read in order.

    Attributes:
      versions: The kept versions by number, in order.
      released: The numbers of those that may come into force.
      rollback: The decision that followers obey; None: they follow the newest released version.
      last: ID of the newest entry.
    """

    def __init__(self) -> None:
        self.versions: dict[int, Version] = {}
        self.released: set[int] = set()
        self.rollback: Decision | None = None
        self.last = "0-0"
        self._decisions: list[Decision] = []

    def add(self, entry: Version | Decision) -> None:
        """Adds the next entry."""
        if isinstance(entry, Version):
            self.last = f"{entry.number}-0"
            self.versions[entry.number] = entry
            if entry.kind == "version":
                self.released.add(entry.number)
            return
        self.last = entry.entry
        self._decisions.append(entry)
        if entry.kind == "release":
            self.released.add(entry.version)
        else:
            self.rollback = entry if entry.kind == "rollback" else None

    @property
    def newest(self) -> int:
        """The number of the newest version; 0: there is none."""
        return int(self.last.partition("-")[0])

    @property
    def in_force(self) -> int:
        """The number of the version that followers should serve; 0: none."""
        return self.rollback.version if self.rollback else max(self.released, default=0)

    def state(self, number: int) -> str:
        """Returns one word about a version, for people."""
        if self.rollback and number == self.rollback.version:
            return "rollback"
        return "released" if number in self.released else "candidate"

    def forget(self, keep: int) -> tuple[list[str], list[Version]]:
        """Forgets what nobody needs. Returns the IDs of these entries, and the versions among them.

        The newest `keep` versions are needed, the newest released one, and the one of a rollback; of the
        decisions, the releases of these versions, and the last one of another kind.
        """
        kept = {*sorted(self.versions)[-keep:], self.in_force, max(self.released, default=0)}
        gone = [one for number, one in self.versions.items() if number not in kept]
        others = [one for one in self._decisions if one.kind != "release"]
        needed = [one for one in self._decisions if one.kind == "release" and one.version in kept]
        needed += others[-1:]
        old = [one.entry for one in self._decisions if one not in needed]
        self._decisions = needed
        self.versions = {number: one for number, one in self.versions.items() if number in kept}
        self.released &= kept
        return [*(f"{one.number}-0" for one in gone), *old], gone


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

    def append(self, version: Version) -> None:
        """Appends a version.

        Raises:
          TakenError: There is a version of this number, or a later one.
        """
        if self._added(f"{version.number}-0", version):
            return
        newest = self.history().newest
        raise TakenError(
            f"version {version.number} of namespace {self.namespace!r} was not published: another process "
            f"has published version {newest or version.number} meanwhile. A namespace has one publisher: end "
            "the other one"
        )

    def decide(self, kind: str, choose: Callable[[History], int]) -> int:
        """Appends a decision, made with the knowledge of all entries before it. Returns its version.

        Args:
          kind: See `Decision`.
          choose: Returns the version that the decision is about, or raises if the entries forbid it.

        Raises:
          TakenError: Others have appended entries all the time.
        """
        for _ in range(_TRIES):
            history = self.history()
            number = choose(history)
            last, _, sequence = history.last.partition("-")
            entry = f"{last}-{int(sequence) + 1}"
            if self._added(entry, Decision(kind, number, time.time(), entry)):
                return number
        raise TakenError(f"other processes write the versions of namespace {self.namespace!r} all the time")

    def _added(self, entry: str, what: Version | Decision) -> bool:
        try:
            self._client.ask(self.key, "XADD", self.key, entry, *what.fields())
        except Refused as error:
            if "equal or smaller" not in error.reply:
                raise
            # The client may have sent it twice, after a lost answer.
            found = self._client.ask(self.key, "XREVRANGE", self.key, entry, entry)
            return bool(found) and parse_entry(*found[0]) == what
        return True

    def remove(self, entries: Sequence[str]) -> None:
        """Removes entries by their IDs."""
        if entries:
            self._client.ask(self.key, "XDEL", self.key, *entries)

    def last(self, count: int = MOST_KEPT) -> list[Version]:
        """Returns the newest `count` versions, candidates too, the oldest of them first."""
        return list(self.history().versions.values())[-count:]

    def history(self) -> History:
        """Returns all that the stream says."""
        history = History()
        for entry in self._client.ask(self.key, "XREVRANGE", self.key, "+", "-")[::-1]:
            history.add(parse_entry(*entry))
        return history

    def after(self, entry: str, wait: float = 0.0) -> list[tuple[str, list[str]]]:
        """Returns all entries later than an ID, the oldest first: ID and fields, for `parse_entry`.

        Args:
          entry: An ID, which need not exist; "0-0": all entries.
          wait: Seconds to wait for one if there is none, below the client's `timeout`.
        """
        block = ("BLOCK", max(1, int(wait * 1000))) if wait > 0 else ()
        found = self._client.ask(self.key, "XREAD", *block, "STREAMS", self.key, entry)
        return [(one, values) for _, entries in found or () for one, values in entries]

    def get(self, number: int) -> Version:
        """Returns one version. LookupError: it was never published, or is no longer kept."""
        return self.chosen(self.history(), number)

    def chosen(self, history: History, number: int) -> Version:
        """As `get`, from a history that was read."""
        if number not in history.versions:
            numbers = list(history.versions)
            kept = f"{numbers[0]} to {numbers[-1]} are" if numbers else "none is"
            raise LookupError(
                f"namespace {self.namespace!r} at {self._client.address} has no version {number}; {kept} kept"
            )
        return history.versions[number]
