"""A connection to one server by redis-py: raw answers, errors that name the server, no hidden retries."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.client import NEVER_DECODE
from redis.credentials import CredentialProvider
from redis.retry import Retry

from het_tf.ext.ps.python import tls
from het_tf.ext.ps.python.address import Address, Place
from het_tf.ext.ps.python.errors import ServerError


class Unreachable(ServerError):
    """No connection, or no answer in time: the server may come back."""


class Refused(ServerError):
    """The server answered an error. `reply` is its text, such as "LOADING Redis is loading ...".

    Args:
      place: The server.
      reply: The text of its error.
      hint: What to do, if known.
    """

    def __init__(self, place: object, reply: str, hint: str = "") -> None:
        super().__init__(f"{place}: {reply}" + (f"; {hint}" if hint else ""))
        self.reply = reply


def _hint(reply: str) -> str:
    if reply.startswith("WRONGPASS") or "invalid username-password" in reply:
        return "check the user and the password"
    if reply.startswith("NOAUTH"):
        return "put the login into the address, as redis://USER:PASSWORD@HOST:PORT"
    if reply.startswith("NOPERM"):
        return "examples/deploy/users.conf has the rights that workers, followers and operators need"
    if reply.startswith("DENIED"):
        return "the server is in protected mode: give it a password"
    return ""


class _Login(CredentialProvider):
    """Reads the password again for each connection."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        password = self._address.secret()
        return (self._address.user, password) if self._address.user else (password,)


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
        self._answered = False
        self._redis = redis.Redis(
            host=place.host or "localhost",
            port=place.port or 6379,
            unix_socket_path=place.path or None,
            credential_provider=_Login(address) if address.has_login else None,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
            encoding_errors="replace",
            protocol=2,
            driver_info=None,  # else redis-py looks for its own version, in files, at each connection
        )
        self._redis.response_callbacks.clear()
        if address.tls:
            pool = self._redis.connection_pool
            pool.connection_class = tls.Connection
            pool.connection_kwargs["tls"] = address.tls

    @classmethod
    def of(cls, address: Address, timeout: float = 5) -> "Node":
        """A connection to the first server of an address, or to the one that its Sentinels name."""
        return cls(primary(address, timeout).places[0], address, timeout)

    def at(self, place: Place) -> "Node":
        """A connection to another server of the same address."""
        return Node(place, self.address)

    def ask(self, *words: object, raw: bool = False) -> Any:
        """Sends one command and returns the answer: str, int, list or None.

        Args:
          *words: The command; bytes are sent as they are, others as text.
          raw: Returns bytes instead of str.

        Raises:
          Unreachable: No connection or no answer.
          Refused: The server answered an error.
        """
        sent = [word if isinstance(word, bytes) else str(word) for word in words]
        options = {NEVER_DECODE: True} if raw else {}
        try:
            answer = self._redis.execute_command(*sent, **options)  # type: ignore[no-untyped-call]
            self._answered = True
            return answer
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            if getattr(error, "status_code", None):
                raise Refused(self.place, _with_code(error), _hint(_with_code(error))) from None
            why = tls.explain(error, self.address.tls, self._answered) or _plain(error)
            raise Unreachable(f"{self.place}: {why}") from None
        except redis.RedisError as error:
            self._answered = True
            reply = _with_code(error)
            raise Refused(self.place, reply, _hint(reply)) from None

    def ask_all(self, commands: Sequence[Sequence[object]]) -> list[Any]:
        """Sends commands at once. Returns their answers; that of a refused one is its exception.

        Raises:
          Unreachable: No connection or no answer.
          Refused: The first command that this login may not use.
        """
        if not commands:
            return []
        pipeline = self._redis.pipeline(transaction=False)
        for words in commands:
            pipeline.execute_command(*map(str, words))  # type: ignore[no-untyped-call]
        try:
            answers = pipeline.execute(raise_on_error=False)
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            why = tls.explain(error, self.address.tls, self._answered) or _plain(error)
            raise Unreachable(f"{self.place}: {why}") from None
        for answer in answers:
            if isinstance(answer, redis.exceptions.NoPermissionError):
                raise Refused(self.place, _with_code(answer), _hint("NOPERM"))
        return list(answers)

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
        self._redis.close()

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


def _with_code(error: Exception) -> str:
    """The server's error text: redis-py removes the code of errors that have their own exception."""
    code = getattr(error, "status_code", None)
    return f"{code} {error}" if code else str(error)


def _plain(error: BaseException) -> str:
    """One line, without Python's names and numbers."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror[0].lower() + cause.strerror[1:]
        cause = cause.__cause__ or cause.__context__
    text = " ".join(str(error).split())
    return "no answer" if "Timeout" in text or "timed out" in text else text.rstrip(".") or "no answer"
