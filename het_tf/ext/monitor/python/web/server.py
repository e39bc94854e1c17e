"""The process of `het ps exporter`: asks the store, and answers Prometheus and browsers. It changes nothing.

/metrics    for Prometheus            /             the page
/api/state  what the page shows, JSON  /static/...   the page's library
"""

import base64
import binascii
import contextlib
import hmac
import ipaddress
import json
import math
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from het_tf.ext.monitor.python.web import collector
from het_tf.ext.monitor.python.web.history import SAMPLE_SECONDS, History
from het_tf.ext.ps.python import status
from het_tf.ext.ps.python.address import Address
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.jobs import Job
from het_tf.ext.ps.python.layout import Layout
from het_tf.python.quoting import quoted

_EARLY = 1.0  # seconds by which scrapes of every 15 seconds vary
_STATIC = Path(__file__).with_name("static")
_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/static/uPlot.iife.min.js": ("uPlot.iife.min.js", "text/javascript"),
    "/static/uPlot.min.css": ("uPlot.min.css", "text/css"),
}
_OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_HEADERS = {
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Scrape:
    """What the store said at one moment."""

    picture: status.Picture
    job: Job
    figures: dict[str, list[collector.Figures]]


class Exporter(ThreadingHTTPServer):
    """Listens, from its making on.

    Args:
      host: Where to listen.
      port: Likewise; 0: a free one.
      token: What clients must show; "": nothing, which only processes of this machine may.
      address: Servers of the store.
      layout: Of a directory of servers, or None.
      namespace: Of the job; None: the store has only one, which is found when it is there.

    Raises:
      ServerError: It is reachable from other machines, and has no token; or it cannot listen.
    """

    daemon_threads = True

    def __init__(
        self, host: str, port: int, token: str, address: Address, layout: Layout | None, namespace: str | None
    ) -> None:
        where = f"--listen {f'[{host}]' if ':' in host else host}:{port}"
        try:
            family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            if not token and not ipaddress.ip_address(place[0]).is_loopback:
                raise ServerError(
                    f"{where} is reachable from other machines, and there is no token; give --token-file FILE"
                    " or set HET_EXPORTER_TOKEN, or listen on 127.0.0.1"
                )
            self.address_family = family
            super().__init__((str(place[0]), port), _Handler)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise ServerError(f"{where} is not possible: {why}; give another host or port") from None
        self.token, self._address, self._layout, self._namespace = token, address, layout, namespace
        self._asking, self._state_lock = threading.Lock(), threading.Lock()
        self._history, self._sampled = History(), -math.inf
        self._state: dict[str, Any] = {"error": "no sample was taken yet"}

    @property
    def url(self) -> str:
        """The address of the page."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def scrape(self) -> Scrape:
        """Asks the store, and adds the answer to the history, unless that has a younger one.

        Raises:
          ServerError, OSError: No server answers, one refuses, or the store has several namespaces; the page
            shows it, too.
        """
        try:
            with self._asking:
                scrape = self._ask()
        except (ServerError, OSError) as error:
            with self._state_lock:
                self._state = {**self._state, "error": str(error)}
            raise
        with self._state_lock:
            if self.due() <= 0:
                self._sampled = time.monotonic()
                self._history.add(time.time(), scrape.figures)
            self._state = _state(self._namespace, scrape, self._history)
        return scrape

    def _ask(self) -> Scrape:
        begin = time.perf_counter()
        picture = status.take(self._address, self._layout)
        seconds = time.perf_counter() - begin
        if picture.unread:
            raise ServerError(picture.unread)
        if self._namespace is None and len(picture.jobs) > 1:
            names = ", ".join(map(quoted, picture.jobs))
            raise ServerError(
                f"{self._address} has the namespaces {names}; an exporter is for one: give --namespace"
            )
        if self._namespace is None:
            self._namespace = next(iter(picture.jobs), None)
        job = picture.jobs.get(self._namespace or "", Job())
        return Scrape(picture, job, collector.figures(picture, job, seconds))

    def due(self) -> float:
        """Seconds until the next sample of the history; a scrape that comes a little early is one."""
        return self._sampled + SAMPLE_SECONDS - _EARLY - time.monotonic()

    def state(self) -> bytes:
        """What the page shows."""
        with self._state_lock:
            return json.dumps(self._state).encode()

    def run(self, ended: Callable[[], bool]) -> None:
        """Serves until `ended`, which is asked four times a second."""
        threading.Thread(target=self.serve_forever, daemon=True).start()
        while not ended():
            if self.due() <= -2 * _EARLY:  # Prometheus asks less often, or not at all
                with contextlib.suppress(ServerError, OSError):
                    self.scrape()
            time.sleep(0.25)
        self.shutdown()
        self.server_close()


def _state(namespace: str | None, scrape: Scrape, history: History) -> dict[str, Any]:
    job, now = scrape.job, history.now
    return {
        "error": "",
        "namespace": namespace,
        "faults": scrape.picture.faults,
        "servers": [one.to_json() for one in scrape.picture.servers],
        "tables": [
            {"name": name, **table, **now["tables"].get(name, {})}
            for name, table in sorted(job.tables.items())
        ],
        "ranks": [
            {"rank": rank, "host": one["host"], "seen": one["seen"], **now["ranks"].get(str(rank), {})}
            for rank, one in sorted(job.workers.items())
        ],
        "followers": [{"name": name, **one} for name, one in sorted(job.followers.items())],
        "points": list(history.points),
    }


class _Handler(BaseHTTPRequestHandler):
    server: Exporter
    timeout = 10  # seconds for a client to send its request
    server_version, sys_version = "het_tf", ""

    def do_GET(self) -> None:
        """Answers one request."""
        path = self.path.partition("?")[0]
        if not self._may():
            self._answer(401, b"a token is needed: as the password, with any user, or as a bearer token\n",
                         more={"WWW-Authenticate": 'Basic realm="het_tf"'})  # fmt: skip
        elif path in _FILES:
            name, kind = _FILES[path]
            self._answer(200, (_STATIC / name).read_bytes(), kind)
        elif path == "/api/state":
            self._answer(200, self.server.state(), "application/json")
        elif path == "/metrics":
            try:
                self._answer(200, collector.text(self.server.scrape().figures).encode(), _OPEN_METRICS)
            except (ServerError, OSError) as error:
                self._answer(503, f"{error}\n".encode())
        else:
            self._answer(404, b"there are /, /metrics and /api/state\n")

    def _may(self) -> bool:
        if not self.server.token:
            return True
        kind, _, shown = self.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":  # what browsers ask their users for
            try:
                shown = base64.b64decode(shown).decode().partition(":")[2]
            except (binascii.Error, ValueError):
                return False
        return kind in ("Basic", "Bearer") and hmac.compare_digest(shown.encode(), self.server.token.encode())

    def _answer(
        self,
        code: int,
        body: bytes,
        kind: str = "text/plain; charset=utf-8",
        more: dict[str, str] | None = None,
    ) -> None:
        self.send_response(code)
        for name, value in {"Content-Type": kind, **_HEADERS, **(more or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""
