"""The process of `het-serve follow`: rows go into the live files by a thread in C++, versions go through here.

    stream het:NS:versions ──► dense weights, checked ──► a file of the live directory ──► offer ──► in force

It says what changes, in one line each.
"""

import time
from collections.abc import Callable
from typing import Any

from het_tf.python import show
from het_tf.python.following import dense, live, native
from het_tf.python.following.live import Live
from het_tf.python.following.target import Target
from het_tf.python.ps.address import Address, parse
from het_tf.python.ps.client import Client
from het_tf.python.ps.errors import ServerError
from het_tf.python.publishing import dense_store
from het_tf.python.publishing.versions import Version, VersionError, Versions

Say = Callable[[str], None]

WAIT = 0.25
"""Seconds between two looks at the rows, and the most that the end waits."""
_PERSISTS = 1.0  # seconds: a shorter failure is not worth a line
_RETRY = 1.0  # seconds between two tries of a version


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
        self._read = state.version  # versions up to it have been seen
        self._waiting: list[Version] = []  # to be fetched: the newest last
        self._files = {state.version: state.dense}  # of versions that are in force or were offered
        self._trouble = ""

    def wait(self, offer: Callable[[Version, str], None], seconds: float) -> None:
        """Waits for versions, at most about so long, and offers the newest that can be served."""
        try:
            self._waiting += self._after(0.0 if self._waiting else seconds)
            while self._waiting:
                version = self._waiting[-1]
                if self._try(version, offer):
                    self._waiting = []
                else:
                    self._waiting.pop()
            self._told("")
        except (ServerError, OSError, MemoryError) as error:
            self._told(str(error) or type(error).__name__)
            time.sleep(min(seconds, _RETRY))

    def _after(self, seconds: float) -> list[Version]:
        try:
            found = self._versions.after(self._read, seconds)
        except VersionError as error:
            self._say(f"a version is skipped: {error}")
            self._read = max(self._read + 1, error.number)
            return []
        if found:
            self._read = found[-1].number
        return found

    def _try(self, version: Version, offer: Callable[[Version, str], None]) -> bool:
        """Offers a version; False: it can never be served."""
        try:
            if version.signature != self._target.signature:
                raise ValueError(
                    "its dense weights have other names, shapes or types than those of the export; export the "
                    "model again"
                )
            blob = dense_store.fetch(self._client, version)
            path = dense.store(self._target.live, version, blob.content)
            self._files[version.number] = path
            offer(version, path)
        except (ValueError, LookupError) as error:
            self._say(f"version {version.number} is refused: {error}")
            self._files.pop(version.number, None)
            return False
        return True

    def clean(self, before: int) -> None:
        """Removes the files of versions older than `before`, which was in force until now."""
        self._files = {number: file for number, file in self._files.items() if number >= before}
        dense.clean(self._target.live, set(self._files.values()))

    def _told(self, trouble: str) -> None:
        if trouble and not self._trouble:
            self._say(f"versions cannot be read: {trouble}; it is tried again")
        elif self._trouble and not trouble:
            self._say("versions are read again")
        self._trouble = trouble

    @property
    def idle(self) -> bool:
        """Whether all versions that are known have been offered or refused."""
        return not self._waiting and not self._trouble


class Watch:
    """Says in one line each what changes in a follower's status.

    Args:
      target: The export.
      say: Prints a line.
    """

    def __init__(self, target: Target, say: Say) -> None:
        self._max_age = target.max_age
        self._say = say
        self._caught_up = False
        self._version: int | None = None
        self._trouble = ""

    def see(self, status: dict[str, Any]) -> int | None:
        """Compares with the status before. Returns the version that was in force if there is a new one."""
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
            return None
        if before is not None or self._version:
            self._say(f"version {self._version} is in force")
        return before

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
        if self._caught_up and status["age"] > self._max_age:
            return f"the rows are {_age(status['age'])} old, and max_age is {self._max_age:g} s"
        return ""


def _age(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds:.1f} s"


def follow(target: Target, poll: float, once: bool, ended: Callable[[], bool], say: Say) -> None:
    """Follows until `ended`.

    Args:
      target: The export.
      poll: Seconds between two questions to a partition.
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
            with native.opened(target, target.server, poll) as follower, Client(address, 0.0) as client:
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
        stream.wait(follower.offer, WAIT)
        status = follower.status()
        before = watch.see(status)
        if before is not None:
            stream.clean(before)
        if once and status["caught_up"] and stream.idle and not status["waiting"]:
            return


def _plain(address: Address) -> str:
    return ",".join(map(str, address.places))
