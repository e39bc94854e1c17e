"""Connections to servers by the native client (ext/ps/capi/server.h): answers as Python's values."""

import ctypes
import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from het_tf.ext.ps.python.address import Address, Place
from het_tf.ext.ps.python.errors import ServerError
from het_tf.python import calling, versions


class Unreachable(ServerError):
    """No connection, or no answer in time: the server may come back."""


class Refused(ServerError):
    """The server answered an error. `reply` is its text, such as "LOADING Redis is loading ...".

    Args:
      place: The server.
      reply: The text of its error.
    """

    def __init__(self, place: object, reply: str) -> None:
        hint = _hint(reply)
        super().__init__(f"{place}: {reply}" + (f"; {hint}" if hint else ""))
        self.reply = reply


def _hint(reply: str) -> str:
    if reply.startswith("NOPERM"):
        return "examples/deploy/users.conf has the rights that workers, followers and operators need"
    if reply.startswith("DENIED"):
        return "the server is in protected mode: give it a password"
    return ""


@functools.cache
def _library() -> ctypes.CDLL:
    return calling.load(versions.ENGINE)


@functools.cache
def _ask() -> Callable[..., None]:
    size, pointer = ctypes.c_size_t, ctypes.POINTER
    types = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, size, ctypes.c_double)
    return calling.bound(_library(), "HetServerAsk", *types, pointer(ctypes.c_void_p), pointer(size))


class Servers:
    """The servers of an address, connected to when asked. For one thread at a time.

    Args:
      address: Which.
    """

    def __init__(self, address: Address) -> None:
        self._handle = ctypes.c_void_p()
        opened = calling.caller(_library())
        opened(
            "HetServerOpen", address.url(), calling.password(address.ask_password), ctypes.byref(self._handle)
        )
        self.close = weakref.finalize(self, _library().HetServerClose, self._handle)
        """Closes the connections."""

    def ask(
        self, commands: Sequence[Sequence[object]], key: str | None, timeout: float, raw: bool = False
    ) -> list[Any]:
        """Sends commands and returns their answers: str, int, list, None or Refused.

        Args:
          commands: Their words; bytes are sent as they are, others as text.
          key: One command goes to the server that owns this key; None: to the first of the address.
          timeout: Seconds without a byte after which an answer is given up.
          raw: Return bytes instead of str.

        Raises:
          Unreachable: No connection, or no answer in time.
          Refused: The login is refused, or a command about a key.
        """
        sent = b"".join(map(_encoded, commands))
        found, size = ctypes.c_void_p(), ctypes.c_size_t()
        of_key = None if key is None else key.encode()
        try:
            _ask()(self._handle, of_key, sent, len(sent), timeout, ctypes.byref(found), ctypes.byref(size))
        except ConnectionError as error:
            place, refuses, reply = str(error).partition(" refuses")
            if refuses:  # the login
                raise Refused(place, reply.partition(": ")[2]) from None
            raise Unreachable(str(error)) from None
        except (RuntimeError, ValueError, MemoryError, OSError) as error:
            place, _, reply = str(error).partition(": ")
            raise Refused(place.removesuffix(" refuses"), reply) from None
        text = ctypes.string_at(found, size.value)
        answers, at = [], 0
        while at < len(text):
            answer, at = _answer(text, at, raw)
            answers.append(answer)
        return answers


def _encoded(words: Sequence[object]) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        content = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(content), content))
    return b"".join(parts)


def _answer(text: bytes, at: int, raw: bool) -> tuple[Any, int]:
    """Returns the answer that begins at `at`, and where it ends. That of an error is a text in a list."""
    end = text.index(b"\r\n", at)
    kind, number, at = text[at : at + 1], int(text[at + 1 : end]), end + 2
    if kind == b":":
        return number, at
    if kind == b"*":
        found = []
        for _ in range(number):
            one, at = _answer(text, at, raw)
            found.append(one)
        return found, at
    if number < 0:
        return None, at
    content = text[at : at + number]
    if kind == b"!":
        return _Error(content.decode(errors="replace")), at + number + 2
    return content if raw else content.decode(errors="replace"), at + number + 2


class _Error(str):
    """The text of an error."""


class Node:
    """A connection to one server, opened at the first `ask`. Close it, or use it as a context manager.

    Args:
      place: The server.
      address: Gives login and TLS settings.
      timeout: Seconds for connecting, and for every answer.
    """

    def __init__(self, place: Place, address: Address, timeout: float = 5) -> None:
        self.place = place
        self.address = address
        self._timeout = timeout
        self._server = Servers(dataclasses.replace(address, places=(place,), service=""))

    @classmethod
    def of(cls, address: Address, timeout: float = 5) -> "Node":
        """A connection to the first server of an address, or to the one that its Sentinels name."""
        return cls(primary(address, timeout).places[0], address, timeout)

    def ask(self, *words: object) -> Any:
        """Sends one command and returns the answer: str, int, list or None.

        Raises:
          Unreachable: No connection or no answer.
          Refused: The server answered an error.
        """
        (answer,) = self.ask_all([words])
        if isinstance(answer, Refused):
            raise answer
        return answer

    def ask_all(self, commands: Sequence[Sequence[object]]) -> list[Any]:
        """Sends commands at once. Returns their answers; that of a refused one is its exception.

        Raises:
          Unreachable: No connection or no answer.
          Refused: The login is refused.
        """
        if not commands:
            return []
        answers = self._server.ask(commands, None, self._timeout)
        return [Refused(self.place, one) if isinstance(one, _Error) else one for one in answers]

    def info(self, *sections: str) -> dict[str, str]:
        """INFO as a dict: all sections, or the named ones."""
        lines = str(self.ask("INFO", *sections or ("everything",)))
        pairs = (line.rstrip("\r").partition(":") for line in lines.split("\n"))
        return {name: value for name, colon, value in pairs if colon}

    def scan(self, pattern: str) -> Iterator[str]:
        """Yields the server's keys that match a pattern."""
        cursor = "0"
        while True:
            cursor, keys = self.ask("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            yield from keys
            if cursor == "0":
                return

    def close(self) -> None:
        """Closes the connection."""
        self._server.close()

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def primary(address: Address, timeout: float = 5) -> Address:
    """Returns the address with the server that its Sentinels name now; without Sentinels, `address` itself.

    Raises:
      ServerError: No Sentinel knows the service.
    """
    if not address.service:
        return address
    words = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service)
    said = []
    for place in address.places:
        login = dataclasses.replace(address, service="")
        for asked in (Address((place,), tls=address.tls), login):  # Sentinels may want the login, too
            try:
                with Node(place, asked, timeout) as node:
                    found = node.ask(*words)
            except Refused as error:
                if asked is not login and error.reply.startswith("NOAUTH"):
                    continue
                said.append(str(error))
            except Unreachable as error:
                said.append(str(error))
            else:
                if found:
                    return dataclasses.replace(login, places=(Place(str(found[0]), int(found[1])),))
                said.append(f"{place} knows no service '{address.service}'")
            break
    raise Unreachable("no Sentinel names a server: " + "; ".join(said))
