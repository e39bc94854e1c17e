"""A server with the module het: its settings, waiting for it, and a private server of one job.

    with LocalServer.start() as server:
        het_tf.init(ps=server.address)
        ...                            # ends with the block, or when this process ends in any way

Nothing here imports TensorFlow.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from het_tf.ext.ps.python import address as addresses
from het_tf.ext.ps.python import programs
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.node import Node, Refused, Unreachable
from het_tf.python import files
from het_tf.python.checks import whole
from het_tf.python.files import local_path

# Settings of every server of partitions; docs/servers.md gives the reason of each.
SETTINGS: dict[str, str] = {
    "maxmemory-policy": "noeviction",
    "proto-max-bulk-len": "4gb",
    "client-query-buffer-limit": "4gb",
    "client-output-buffer-limit": "replica 0 0 0",
    "repl-backlog-size": "1gb",
    "rdbcompression": "no",
}

STOP_SECONDS = 20.0  # for a server to save and stop; then it is killed
_TRIES = 5  # with another free port each
_WARNING = re.compile(r"\d+:[A-Z] \d+ \w+ \d+ [\d:.]+ # (.*)")  # a line of a log
_TAIL_BYTES = 64 << 10  # read from the end of a log
_ANSWER_SECONDS = 2.0  # for one answer of a server that may hang


def config_text(settings: dict[str, str]) -> str:
    """Settings as lines of redis.conf. An empty value is written as two quotes.

    Raises:
      ValueError: A value with a line break.
    """
    for name, value in settings.items():
        if "\n" in value or "\r" in value:
            raise ValueError(f"{name} is {value!r}; a setting is one line")
    return "".join(f"{name} {_quoted(name, value)}\n" for name, value in settings.items())


def settings_of(directory: Path, place: addresses.Place, password: str) -> dict[str, str]:
    """Returns the settings of a server that has a directory to itself, without those of persistence."""
    found = {
        **SETTINGS,
        "dir": str(directory),
        "port": str(place.port),
        "save": "",
        "loadmodule": str(programs.find_module()),
    }
    if place.path:
        # Others must not reach these files: the socket gets 0700, whatever the umask.
        found |= {"unixsocket": place.path, "unixsocketperm": "700"}
    return found | {"requirepass": password} if password else found


# Their values are several words.
_LISTS = ("client-output-buffer-limit", "save", "bind")


def _quoted(name: str, value: str) -> str:
    if value and (name in _LISTS or not set(value) & set(" \t\"'\\#")):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _last_lines(log: Path) -> list[str]:
    with files.open_file(log) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = file.read(_TAIL_BYTES).decode(errors="replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


def log_tail(log: Path) -> str:
    """The end of a server's log, for error messages."""
    try:
        return "\n".join(f"  {line}" for line in _last_lines(log)[-8:]) or "(empty log)"
    except (OSError, ValueError):
        return "(no log)"


def last_words(log: Path) -> str:
    """Returns the last two warnings of a server's log, which say why it ended; "" without any."""
    words: list[str] = []
    with contextlib.suppress(OSError, ValueError):
        for line in reversed(_last_lines(log)):
            warning = _WARNING.fullmatch(line)
            if warning is None or len(words) == 2:
                break
            words.insert(0, warning[1].rstrip("."))
    return "; ".join(words)


def wait_ready(
    url: str,
    timeout: float = 60,
    *,
    alive: Callable[[], bool] = lambda: True,
    say: Callable[[str], None] | None = None,
    log: Path | None = None,
    pid: int | None = None,
) -> None:
    """Waits until a server answers and has loaded its data and the module het.

    Args:
      url: The server's address; its first node is asked.
      timeout: Seconds in total.
      alive: Whether the server's process runs; the wait ends once it returns False.
      say: Called with the reason of waiting whenever it changes.
      log: The server's log; error messages quote its end.
      pid: Its process id: answers of any other process are ignored. None: accept any.

    Raises:
      ServerError: It is not ready in time, ended, refuses the login, or lacks the module; the message says
        which.
      ValueError: `url` is not an address.
    """
    address = addresses.parse(url)
    tail = f"; its log {log} ends:\n" if log else ""
    end = time.monotonic() + timeout
    said = why = ""
    while True:
        running = alive()
        try:
            with Node.of(address, min(_ANSWER_SECONDS, max(0.1, end - time.monotonic()))) as node:
                info = node.info("server", "persistence", "het")
                if pid is not None and info.get("process_id") != str(pid):
                    raise Unreachable(f"{node.place}: another server (process {info['process_id']}) answers")
                if info.get("loading", "0") != "0":
                    loaded = info.get("loading_loaded_perc", "0").partition(".")[0]
                    raise Unreachable(f"{node.place}: it loads its data, {loaded} %")
                if "het_partitions" in info:
                    return
                raise ServerError(
                    f"{node.place} has not loaded the module het; start it with --loadmodule "
                    f"{programs.MODULE}"
                )
        except Unreachable as error:
            why = str(error)
        except Refused as error:
            why = str(error)
            if pid is None and not error.reply.startswith(("LOADING", "MASTERDOWN")):
                raise
        if not running:
            raise ServerError(f"{address.places[0]}: the server ended{tail}{log_tail(log) if log else ''}")
        if time.monotonic() >= end:
            raise ServerError(f"not ready within {timeout:g} s: {why}{tail}{log_tail(log) if log else ''}")
        if say and why != said:
            say(f"waiting for {why}")
            said = why
        time.sleep(0.05)


def free_port() -> int:
    """Returns a TCP port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class LocalServer:
    """The private server of one job. `start` makes it; `stop`, or leaving its `with` block, stops it.

    It runs in its own session, so Ctrl-C reaches only the job, which can still flush. It ends with the
    process that started it, even by kill -9 (see keeper.py); a fork of that process does not keep it alive.

    Attributes:
      address: For `het_tf.init(ps=...)` and `HET_PS` on this machine; includes the password, if any.
      port: Where it listens on 127.0.0.1; 0 for a Unix socket.
      program: Path of the server program.
      pid: Its process id.
      directory: Directory of its files; private unless one was given.
      log: Its log.
    """

    @classmethod
    def start(
        cls,
        directory: str | os.PathLike[str] | None = None,
        *,
        port: int = 0,
        unix: bool = False,
        settings: dict[str, str] | None = None,
    ) -> "LocalServer":
        """Starts a server and waits until it is ready. Only this machine reaches it.

        Args:
          directory: For its log and data; made if it is missing, kept afterwards. None: a private one that is
            removed at the end.
          port: 0: a free port.
          unix: Listen on a Unix socket in the directory, unless its path would be too long, and on no port.
          settings: Further settings of redis.conf; they win. The address includes `requirepass`.

        Raises:
          ServerError: The server could not be started; the message quotes its log.
          ValueError: An argument is out of range.
        """
        whole("port", port, 0, 65535)
        for attempt in range(_TRIES):
            try:
                return cls(directory, port, unix, settings or {})
            except ServerError as error:
                # Another process took the free port before the server did.
                if port or "ddress already in use" not in str(error) or attempt == _TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        port: int,
        unix: bool,
        settings: dict[str, str],
    ) -> None:
        self.program = programs.find_server()
        self._owner = os.getpid()
        self._keeper: subprocess.Popen[bytes] | None = None
        self._private = directory is None
        self.directory = local_path(
            "directory", tempfile.mkdtemp(prefix="het_ps_") if directory is None else directory
        ).absolute()
        self.log = self.directory / "log"
        place = addresses.Place(path=str(self.directory / "socket"))
        if not unix or len(place.path.encode()) > addresses.MOST_PATH:
            place = addresses.Place("127.0.0.1", port or free_port())
        self.port = place.port
        try:
            self.directory.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ServerError(f"{self.directory}: {error.strerror}") from None
        password = settings.get("requirepass", "")
        self.address = addresses.Address((place,), "", password).url()
        try:
            wanted = {**settings_of(self.directory, place, password), "appendonly": "no"}
            if not place.path:
                wanted["bind"] = place.host
            self._launch(config_text({**wanted, **settings}))
        except BaseException:
            self.stop()
            raise

    def _launch(self, config: str) -> None:
        keeper = [sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py")), str(os.getpid())]
        keeper += [str(self.directory), "remove" if self._private else "keep", str(STOP_SECONDS)]
        self._keeper = subprocess.Popen(
            [*keeper, self.program, "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._keeper.stdin and self._keeper.stdout and self._keeper.stderr
        try:
            self._keeper.stdin.write(config.encode())
            self._keeper.stdin.close()
        except BrokenPipeError:
            pass  # it ended; its stderr gives the reason
        first = self._keeper.stdout.readline()
        if not first:
            why = self._keeper.stderr.read().decode(errors="replace").strip().splitlines()
            raise ServerError(f"{self.program} could not be started: {why[-1] if why else 'no reason given'}")
        self.pid = int(first)
        try:
            wait_ready(self.address, alive=self.alive, log=self.log, pid=self.pid)
        except ServerError as error:
            raise ServerError(f"no server of this job: {error}") from None

    def mine(self) -> bool:
        """Whether this process started it; False in a fork of that process."""
        return os.getpid() == self._owner

    def alive(self) -> bool:
        """Whether its process runs."""
        return self._keeper is not None and self._keeper.poll() is None

    def stop(self) -> None:
        """Stops it and waits until it is gone; a second call does nothing.

        In a fork of the process that started it, does nothing.
        """
        if not self.mine():
            return
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            if keeper.poll() is None:
                keeper.terminate()
            try:
                keeper.wait(STOP_SECONDS + 5)
            except subprocess.TimeoutExpired:
                keeper.kill()  # the server dies with it
                keeper.wait()
            for pipe in (keeper.stdout, keeper.stderr):
                if pipe:
                    pipe.close()
        if self._private:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> "LocalServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def is_loopback(host: str) -> bool:
    """Whether `host` can be reached only from this machine."""
    return host == "localhost" or host == "::1" or host.startswith("127.")
