"""Commands from the program that measures to the processes that train, over a Unix socket.

A Unix socket is a file: it reaches into every network namespace, and its bytes are on no link. Commands and
answers are dictionaries.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any


class Workers:
    """The processes of one launch, as the measuring program sees them.

    Args:
      path: of the socket; must not exist.
      count: how many processes will connect.
    """

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count = path, count
        self.process: subprocess.Popen[bytes] | None = None
        self.log = path.with_suffix(".log")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(count)
        self._listener.settimeout(0.5)
        self._connections: list[Connection] = []

    def launch(self, command: list[str], environment: dict[str, str]) -> None:
        """Starts the processes' launcher; when it ends, waiting for them ends with an error."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment
            )

    def connect(self, timeout: float) -> None:
        """Waits until all have connected."""
        end = time.monotonic() + timeout
        while len(self._connections) < self.count:
            try:
                self._connections.append(Connection(self._listener.accept()[0].detach()))
            except TimeoutError:
                self._check(end)

    def ask(self, command: dict[str, Any], timeout: float) -> list[dict[str, Any]]:
        """Sends a command to all, and returns their answers."""
        end = time.monotonic() + timeout
        for connection in self._connections:
            connection.send(command)
        answers = []
        for connection in self._connections:
            while not connection.poll(0.5):
                self._check(end)
            answers.append(connection.recv())
            if "error" in answers[-1]:
                raise RuntimeError(f"{command}: {answers[-1]['error']}{self._tail()}")
        return answers

    def _check(self, end: float) -> None:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"the workers ended with {self.process.returncode}{self._tail()}")
        if time.monotonic() > end:
            raise RuntimeError(f"the workers do not answer in time{self._tail()}")

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-80:]
        return "; they said:\n" + "\n".join(lines)

    def stop(self) -> None:
        """Ends them: first by a word, then by a signal."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.send({"do": "quit"})
        for signal in ("terminate", "kill"):
            if self.process is not None:
                try:
                    self.process.wait(20)
                except subprocess.TimeoutExpired:
                    getattr(self.process, signal)()
        if self.process is not None:
            self.process.wait()
        for connection in self._connections:
            connection.close()
        self._listener.close()
        self.path.unlink(missing_ok=True)


def obey(path: str, commands: Any) -> None:
    """Connects to the measuring program and runs its commands until "quit".

    Args:
      path: of the socket.
      commands: {word: function of the command that returns the answer}; a command says its word as "do".
    """
    with Client(path, "AF_UNIX") as connection, contextlib.suppress(EOFError):
        while (command := connection.recv())["do"] != "quit":
            try:
                connection.send(commands[command["do"]](command))
            except Exception as error:
                connection.send({"error": f"{type(error).__name__}: {error}"})
                raise
