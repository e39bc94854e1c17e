"""Reports that processes of a job leave at its store: `het:NS:workers:RANK`, `het:NS:followers:NAME`.

A process that trains alone has no rank; its name is HOST-PID. Each report is a JSON object, compressed, that
its process renews every few seconds, and that expires: the time until then says how old it is, on the
server's clock alone.
"""

import base64
import json
import os
import threading
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from het_tf.ext.ps.python.address import Address
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.node import Refused

EVERY = 5.0
"""Seconds from one report to the next."""
LIVES = 3 * EVERY
"""Seconds after which a process without a new report counts as ended."""
KEEP = 600
"""Seconds that a store keeps the last report of a process that was killed."""
KINDS = ("workers", "followers")
FORMAT = 1
"""Of reports; readers skip others."""
_ANSWER_SECONDS = 2.0


def key(namespace: str, kind: str, who: object) -> str:
    """The key of a report; `kind` is one of KINDS."""
    return f"het:{namespace}:{kind}:{who}"


def packed(report: Mapping[str, Any]) -> str:
    """Returns a report as it is stored: a quarter of its JSON."""
    text = json.dumps({"format": FORMAT, **report}, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode())).decode()


def unpacked(text: str | None) -> dict[str, Any] | None:
    """Returns a stored report; None: it is none, or of another version."""
    try:
        report = json.loads(zlib.decompressobj().decompress(base64.b64decode(text or ""), 16 << 20))
        return report if report["format"] == FORMAT else None
    except (ValueError, TypeError, KeyError, RecursionError, zlib.error):
        return None


class Reporter:
    """A thread that writes reports until `stop`, or until the process ends. No failure leaves it.

    Args:
      address: The store.
      read: Returns the reports: key -> JSON object. Called by the thread.
      refused: Told once why the store does not take a report.
    """

    def __init__(
        self,
        address: Address,
        read: Callable[[], Mapping[str, dict[str, Any]]],
        refused: Callable[[str], None],
    ) -> None:
        self._client = Client(address, 0.0, _ANSWER_SECONDS)
        self._read, self._refused = read, refused
        self._process = os.getpid()
        self._ended = threading.Event()
        self._written: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="het_tf report", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            try:
                self.write()
            except Refused as error:
                self._refused(str(error))
                self._refused = lambda _: None
            except Exception:  # training goes on; `het ps exporter` sees that no report comes
                continue

    def mine(self) -> bool:
        """Whether this process made it; a fork has no such thread."""
        return self._process == os.getpid()

    def write(self) -> None:
        """Writes the reports once. ServerError: the store does not take one."""
        told = self._read()
        for name, report in told.items():
            self._client.ask(name, "SET", name, packed(report), "EX", KEEP)
            self._written.add(name)
        self._remove(self._written - told.keys())

    def stop(self) -> None:
        """Ends the thread, and removes the reports: the process has ended in order."""
        self._ended.set()
        self._thread.join(_ANSWER_SECONDS)
        if self._thread.is_alive():
            return
        try:
            self._remove(set(self._written))
        except (ServerError, OSError):
            pass  # they expire
        self._client.close()

    def _remove(self, names: set[str]) -> None:
        for name in names:
            self._client.ask(name, "UNLINK", name)
            self._written.discard(name)
