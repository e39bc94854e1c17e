"""The process of `het serve follow`: a thread in C++ brings the rows, this one the versions.

    stream het:NS:versions ──► dense weights, checked ──► a file of the live directory ──► offer ──► in force

It says what changes, in one line each.
"""

import time
from collections.abc import Callable
from typing import Any

from het_tf.ext.ps.python.address import Address, parse
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.serving.python.following import dense, live, native, report
from het_tf.ext.serving.python.following.live import Live
from het_tf.ext.serving.python.following.target import Target
from het_tf.ext.serving.python.publishing.versions import (
    Decision,
    History,
    Version,
    VersionError,
    Versions,
    parse_entry,
)
from het_tf.python import show
from het_tf.python.show import Say

WAIT = 0.25
"""Seconds between two looks at the rows, and the most that the end waits."""
_PERSISTS = 1.0  # seconds: a shorter failure is not worth a line
_REMEMBERED = 10  # versions; older ones are read again from the stream
_RETRY = 1.0  # seconds between two tries of a version


def catch_up(versions: Versions, history: History, wait: float, say: Say) -> None:
    """Adds later entries to a history; waits about `wait` seconds for one. Says which cannot be read."""
    for entry, fields in versions.after(history.last, wait):
        try:
            history.add(parse_entry(entry, fields))
        except VersionError as error:
            say(f"skipped: {error}")
            history.last = entry


class Stream:
    """The versions that are published, as they come, and their dense weights as files.

    Args:
      client: The parameter server.
      target: The export.
      state: Of the live files.
      say: Prints a line.
    """

    def __init__(self, client: Client, target: Target, state: Live, say: Say) -> None:
        self._client = client
        self._target = target
        self._versions = Versions(client, target.namespace)
        self._say = say
        self._history = History()
        self._offered = state.version
        self._refused = set[int]()
        self._back: Decision | None = None  # the rollback that was carried out, or refused
        self._files = {state.version: state.dense}  # of versions that are in force or were offered
        self._trouble = ""

    def wait(self, follower: native.Follower, seconds: float) -> None:
        """Waits for entries, at most about so long, and does what they say."""
        try:
            self._take(0.0 if self._trouble else seconds)
            self._decide(follower)
            self._offer(follower)
            self._told("")
        except (ServerError, OSError, MemoryError) as error:
            self._told(str(error) or type(error).__name__)
            time.sleep(min(seconds, _RETRY))

    def _take(self, seconds: float) -> None:
        catch_up(self._versions, self._history, seconds, self._say)
        self._history.forget(_REMEMBERED)

    def _decide(self, follower: native.Follower) -> None:
        """Goes back or on, if the newest entries say so."""
        decision, before = self._history.rollback, self._back
        if decision == before:
            return
        if decision is None:
            self._say(f"goes on from version {self._offered}")
        else:
            try:
                self._roll_back(decision.version, follower)
            except (ValueError, LookupError) as error:
                self._say(
                    f"cannot go back to version {decision.version}: {error}. No version newer than "
                    f"{max(decision.version, self._offered)} comes into force before `het publish resume`"
                )
        self._back = decision

    def _roll_back(self, number: int, follower: native.Follower) -> None:
        follower.roll_back(*self._bring(number))
        self._offered = number
        self._say(
            f"the dense weights go back to version {number}, until `het publish resume`; rows go on: to take "
            "them back, restore the store"
        )

    def _bring(self, number: int) -> tuple[Version, str]:
        """Returns a version, and the file of its dense weights. ValueError, LookupError: it has none."""
        version = self._history.versions.get(number) or self._versions.get(number)
        self._files[number] = dense.bring(self._client, self._target, version)
        return version, self._files[number]

    def _offer(self, follower: native.Follower) -> None:
        """Offers the newest version that may come into force and can."""
        limit = self._history.rollback.version if self._history.rollback else None
        while True:
            newer = [
                number
                for number in self._history.released - self._refused
                if number > self._offered and (limit is None or number <= limit)
            ]
            if not newer or self._try(max(newer), follower):
                return

    def _try(self, number: int, follower: native.Follower) -> bool:
        """Offers a version; False: it can never be served."""
        try:
            follower.offer(*self._bring(number))
        except (ValueError, LookupError) as error:
            self._say(f"version {number} is refused: {error}")
            self._files.pop(number, None)
            self._refused.add(number)
            return False
        self._offered = number
        return True

    def clean(self, status: dict[str, Any]) -> None:
        """Removes files of dense weights that nobody needs.

        Args:
          status: The follower's. The version in force and later ones keep their files. A reader that is late
            takes the one in force.
        """
        in_force = status["version"]
        self._files = {number: file for number, file in self._files.items() if number >= in_force}
        dense.clean(self._target.live, self._files.values())

    def _told(self, trouble: str) -> None:
        if trouble and not self._trouble:
            self._say(f"versions cannot be read: {trouble}; it is tried again")
        elif self._trouble and not trouble:
            self._say("versions are read again")
        self._trouble = trouble

    @property
    def idle(self) -> bool:
        """Whether all that the stream has said is done."""
        return not self._trouble


class Watch:
    """Says in one line each what changes in a follower's status.

    Args:
      target: The export.
      say: Prints a line.
    """

    def __init__(self, target: Target, say: Say) -> None:
        self._max_age = target.max_age
        self._max_skew = target.max_skew
        self._say = say
        self._caught_up = False
        self._version: int | None = None
        self._trouble = ""

    def see(self, status: dict[str, Any]) -> bool:
        """Compares with the status before. Returns whether another version is in force."""
        trouble = self._trouble_of(status)
        if bool(trouble) != bool(self._trouble):
            self._say(trouble or f"the rows are up to date again: {_age(status['age'])} old")
            self._trouble = trouble
        if status["caught_up"] and not self._caught_up:
            self._caught_up = True
            self._say(
                f"the rows are up to date: {show.number(status['rows'])} rows have come, "
                f"{show.size(status['bytes'])}"
            )
        before, self._version = self._version, status["version"]
        if before == self._version:
            return False
        if before is not None or self._version:
            self._say(f"version {self._version} is in force")
        return True

    def _trouble_of(self, status: dict[str, Any]) -> str:
        partitions = status["partitions"]
        failing = [one for one in partitions if one["error"] and one["failing"] >= _PERSISTS]
        if failing:
            errors = dict.fromkeys(one["error"] for one in failing)
            return (
                f"rows of {len(failing)} of {len(partitions)} partitions grow old: {'; '.join(errors)}; "
                "it is tried again"
            )
        if status["flip_error"]:
            return f"a version cannot come into force: {status['flip_error']}"
        if not self._caught_up:
            return ""
        if self._max_age is not None and (status["age"] or 0) > self._max_age:
            return f"the rows are {_age(status['age'])} old, and max_age is {self._max_age:g} s"
        if self._max_skew is not None and (status["skew"] or 0) > self._max_skew:
            return (
                f"the rows are {_age(status['skew'])} newer than the dense weights, and max_skew is "
                f"{self._max_skew:g} s: no newer version is published"
            )
        return ""


def _age(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds:.1f} s"


def follow(target: Target, poll: float, rows: str, once: bool, ended: Callable[[], bool], say: Say) -> None:
    """Follows until `ended`.

    Args:
      target: The export.
      poll: As of `native.opened`.
      rows: Likewise.
      once: End when the rows, and the versions published up to then, are here.
      ended: Asked about four times a second.
      say: Prints a line.

    Raises:
      RuntimeError: Another process follows, or the server does not have the namespace.
      ConnectionError: With `once`: no server answers.
      OSError: The live files cannot be made.
    """
    address = parse(target.server)
    unreachable = ""
    while not ended():
        try:
            with (
                native.opened(target, target.server, poll, rows) as follower,
                Client(address, 0.0) as client,
                report.reporting(target, address, say),
            ):
                say(f"{target.directory} follows {_plain(address)}")
                return _run(target, follower, client, once, ended, say)
        except ConnectionError as error:
            if once:
                raise
            if not unreachable:
                say(f"{error}; it is tried again")
            unreachable = str(error)
            time.sleep(WAIT)


def _run(
    target: Target, follower: native.Follower, client: Client, once: bool, ended: Callable[[], bool], say: Say
) -> None:
    stream = Stream(client, target, live.read(target), say)
    watch = Watch(target, say)
    watch.see(follower.status())
    while not ended():
        stream.wait(follower, WAIT)
        status = follower.status()
        if watch.see(status):
            stream.clean(status)
        if once and status["caught_up"] and stream.idle and not status["waiting"]:
            return


def _plain(address: Address) -> str:
    return ",".join(map(str, address.places))
