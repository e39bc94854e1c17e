"""Commands from the program that measures to the processes that train, over a Unix socket.

A Unix socket is a file: it reaches into every network namespace, and its bytes are on no link. A command and
an answer are each one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any


class Workers:
    """The processes of one launch, as the measuring program sees them.

    Args:
      path: of the socket; must not exist.
      count: how many processes will connect.
      process: their launcher; when it ends, waiting for them ends with an error that quotes its log.
      log: what they print.
    """

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count = path, count
        self.process: subprocess.Popen[bytes] | None = None
        self.log = path.with_suffix(".log")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(count)
        self._files: list[Any] = []

    def launch(self, command: list[str], environment: dict[str, str]) -> None:
        """Starts the processes' launcher."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment
            )

    def connect(self, timeout: float) -> None:
        """Waits until all have connected."""
        end = time.monotonic() + timeout
        self._listener.settimeout(0.5)
        while len(self._files) < self.count:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                self._check(end)
                continue
            connection.settimeout(0.5)
            self._files.append(_Lines(connection))

    def ask(self, command: dict[str, Any], timeout: float) -> list[dict[str, Any]]:
        """Sends a command to all, and returns their answers."""
        end = time.monotonic() + timeout
        for file in self._files:
            file.send(command)
        answers = []
        for file in self._files:
            while (answer := file.receive()) is None:
                self._check(end)
            if "error" in answer:
                raise RuntimeError(f"{command}: {answer['error']}{self._tail()}")
            answers.append(answer)
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
        for file in self._files:
            with contextlib.suppress(OSError):
                file.send({"do": "quit"})
        if self.process is not None:
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.terminate()
                try:
                    self.process.wait(5)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()
        for file in self._files:
            file.close()
        self._listener.close()
        self.path.unlink(missing_ok=True)


class _Lines:
    """JSON lines over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""

    def send(self, value: dict[str, Any]) -> None:
        self._connection.sendall(json.dumps(value).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """The next line; None: none within the socket's time-out."""
        while b"\n" not in self._rest:
            try:
                data = self._connection.recv(65536)
            except TimeoutError:
                return None
            if not data:
                raise EOFError("the other side has gone")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return dict(json.loads(line))

    def close(self) -> None:
        self._connection.close()


def obey(path: str, commands: Any) -> None:
    """Connects to the measuring program and runs its commands until "quit".

    Args:
      path: of the socket.
      commands: {word: function of the command that returns the answer}; a command says its word as "do".
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        lines = _Lines(connection)
        while True:
            try:
                command = lines.receive()
            except EOFError:
                return
            if command is None:
                continue
            if command["do"] == "quit":
                return
            try:
                answer = commands[command["do"]](command)
            except Exception as error:
                lines.send({"error": f"{type(error).__name__}: {error}"})
                raise
            lines.send(answer)
