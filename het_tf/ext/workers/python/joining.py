"""How the ranks of a run find each other and connect: at the parameter server, or through Horovod.

Each rank listens at a free port, writes where into a hash of the run, connects to the ranks below its own,
and accepts those above. Then it removes what it wrote. Ranks of Horovod gather what they would write.

**Proofs.** A rank writes host, port and a new token. The key of its connections is HMAC(secret, token), where
the secret of the run is HET_RUN_SECRET, or empty. Neither travels between ranks:

    the one that listens ── challenge ───────────────────────► the one that joins, of a higher rank
                         ◄── rank, nonce, HMAC("join") ───────
                         ─── HMAC("welcome") ────────────────►
                         ◄────────────────── HMAC("confirm") ─

Each HMAC is over its word, both ranks, challenge and nonce, so none can be sent back, used again, or used
between other ranks. Who joins confirms last, and has closed what it gave up: a connection that is accepted
late never counts, and a second try takes the place of the first.

**What they are worth.** Without a secret whoever reads the hash can become a rank, which sees and sends
gradients, but runs no code: ranks exchange JSON and arrays. So the keys `het-run:*` are for workers alone
(users.conf); others have `het:*`. With a secret, which never is at the store, reading does not suffice.
`het run` makes one where it is alone. Several nodes, Slurm, mpirun, torchrun and Kubernetes take it from the
environment if it is set there, and else rely on the store's users. Ranks of horovodrun tell each other their
tokens through Horovod, and trust its network. Nothing guards what follows the handshake against those who can
read or change packets on their way.

**Strangers.** Until it has proved itself, a connection may send 52 bytes and live _PATIENCE seconds; the
oldest of more than _STRANGERS gives way. No connection waits for another: a scanner of ports delays nobody.
"""

import contextlib
import hmac
import ipaddress
import json
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Generator

from het_tf.ext.ps.python import address as addresses
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.workers.python.environments.process import SECRET, Process
from het_tf.ext.workers.python.mesh import JOIN, seconds

_KEPT_SECONDS = 60  # a process in the hash, from the last look of its rank
_LOOK_SECONDS = 0.05  # from one look at the hash to the next
_PATIENCE = 5.0  # seconds until a connection must have proved itself
_STRANGERS = 128  # connections that have not, beside one for each rank
_NONCE, _MAC, _RANK = 16, 32, 4  # bytes

# Yields what to send, how many bytes to wait for, and the rank that the other side has proved to be, -1
# before; returns that rank.
_Talk = Generator[tuple[bytes, int, int], bytes, int]


def meet(process: Process, address: addresses.Address) -> list[socket.socket | None]:
    """Returns a connection to each rank, by what they write at the parameter server; None for this one.

    Raises:
      ConnectionError: The parameter server does not answer.
      TimeoutError: Some ranks did not come; the message names them.
      ValueError: Another process has this rank.
    """
    key = f"het-run:{process.run_id}"
    with Client(address, seconds=5) as client:

        def said() -> list[str | None]:
            client.ask(key, "EXPIRE", key, _KEPT_SECONDS)
            found: list[str | None] = client.ask(key, "HMGET", key, *range(process.size))
            return found

        try:
            with Listener(address) as mine:
                _claim(client, key, process, mine.text)
                peers = mine.join(process, said)
            client.ask(key, "HDEL", key, process.rank)  # those above have read it
        except ServerError as error:
            raise ConnectionError(f"the ranks meet at the parameter server: {error}") from None
    return peers


class Listener:
    """The port at which a rank expects those above it.

    Args:
      address: The parameter server, in whose network the port is; None: on this machine.

    Attributes:
      text: Where it is, and its token.
    """

    def __init__(self, address: addresses.Address | None) -> None:
        host = "127.0.0.1" if address is None else _host(address)
        self._socket = socket.create_server((host, 0), family=_family(host), backlog=socket.SOMAXCONN)
        token = secrets.token_hex(_NONCE)
        self._key = _key(token)
        self.text = json.dumps([*self._socket.getsockname()[:2], token])

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def join(self, process: Process, said: Callable[[], list[str | None]]) -> list[socket.socket | None]:
        """Returns a connection to each rank.

        Args:
          process: Where this process runs.
          said: Returns `text` of each rank, None for those that have not come.
        """
        limit = seconds(JOIN)
        end = time.monotonic() + limit
        joining = _Joining(self._socket, self._key, process.rank, process.size)
        try:
            while missing := joining.missing():
                if time.monotonic() > end:
                    raise TimeoutError(
                        f"rank {process.rank} of {process.size} has waited {limit:g} s for rank "
                        f"{', '.join(map(str, missing))} of run {process.run_id}; did {process.launcher} "
                        f"start them, with the same parameter server and {SECRET}? {JOIN} is the limit"
                    )
                joining.call(said())
                joining.listen(_LOOK_SECONDS)
            return joining.peers
        finally:
            joining.close()


class _Half:
    """A connection that is not one of two ranks yet.

    Attributes:
      calls: The lower rank that it is to reach; -1: it was accepted.
      proved: The rank of the other side; -1: it has not said so, or not proved it.
    """

    def __init__(self, one: socket.socket, talk: _Talk, calls: int) -> None:
        self.socket, self.talk, self.calls = one, talk, calls
        self.until = time.monotonic() + _PATIENCE
        self.wants, self.proved, self.got = 0, -1, b""


class _Joining:
    """The connections of a rank on their way, all at once.

    Attributes:
      peers: A connection to each rank; None where there is none yet.
    """

    def __init__(self, listener: socket.socket, key: bytes, rank: int, size: int) -> None:
        self.peers: list[socket.socket | None] = [None] * size
        self._listener, self._key, self._rank = listener, key, rank
        self._halves: dict[_Half, None] = {}  # the oldest first
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def close(self) -> None:
        """Gives up what is on its way."""
        for half in list(self._halves):
            self._drop(half)
        self._selector.close()

    def missing(self) -> list[int]:
        """The ranks without a connection."""
        return [rank for rank, one in enumerate(self.peers) if one is None and rank != self._rank]

    def call(self, said: list[str | None]) -> None:
        """Connects to the ranks below this one that have come."""
        calling = {half.calls for half in self._halves}
        for lower, text in enumerate(said[: self._rank]):
            place = _place(text)
            if place is None or self.peers[lower] is not None or lower in calling:
                continue
            host, port, token = place
            one = socket.socket(_family(host))
            one.setblocking(False)
            with contextlib.suppress(OSError):  # of a run that has ended, as a refusal, which is read
                one.connect_ex((host, port))
            self._begin(_Half(one, _join(_key(token), lower, self._rank), lower))

    def listen(self, seconds: float) -> None:
        """Goes on with all connections."""
        end = time.monotonic() + seconds
        while self.missing() and (left := end - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                if key.data is None:
                    self._accept()
                elif key.data in self._halves:  # not dropped for another one of these
                    self._read(key.data)
        for half in [half for half in self._halves if half.until < end]:
            self._drop(half)

    def _accept(self) -> None:
        strangers = [half for half in self._halves if half.calls < 0 and half.proved < 0]
        if len(strangers) >= _STRANGERS + len(self.peers):
            self._drop(strangers[0])
        with contextlib.suppress(OSError):  # it has gone
            one, _ = self._listener.accept()
            one.setblocking(False)
            self._begin(_Half(one, _admit(self._key, self._rank, len(self.peers)), -1))

    def _begin(self, half: _Half) -> None:
        self._halves[half] = None
        self._selector.register(half.socket, selectors.EVENT_READ, half)
        self._go_on(half, None)

    def _read(self, half: _Half) -> None:
        try:
            got = half.socket.recv(half.wants - len(half.got))  # not what follows: it is the mesh's
        except BlockingIOError:
            return
        except OSError:
            got = b""
        half.got += got
        if not got:
            self._drop(half)
        elif len(half.got) == half.wants:
            words, half.got = half.got, b""
            self._go_on(half, words)

    def _go_on(self, half: _Half, words: bytes | None) -> None:
        try:
            send, half.wants, half.proved = half.talk.send(words)  # type: ignore[arg-type]
            if send and half.socket.send(send) < len(send):
                raise ConnectionError("no room for a few bytes")
            if half.wants == 0:
                next(half.talk)
        except StopIteration as end:
            self._drop(half, to=end.value)
        except OSError:
            self._drop(half)
        else:
            if half.proved >= 0:
                self._proved(half)

    def _proved(self, half: _Half) -> None:
        """A rank above this one waits for nothing any more: its last word, or its end, comes by itself."""
        half.until = float("inf")
        for other in [one for one in self._halves if one is not half and one.proved == half.proved]:
            self._drop(other)
        if self.peers[half.proved] is not None:
            self._drop(half)

    def _drop(self, half: _Half, to: int = -1) -> None:
        """Ends a connection, or makes it that to rank `to`."""
        del self._halves[half]
        self._selector.unregister(half.socket)
        if to < 0:
            half.socket.close()
            return
        half.socket.setblocking(True)
        half.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peers[to] = half.socket


def _admit(key: bytes, rank: int, size: int) -> _Talk:
    """The side that listens. Raises PermissionError: the other one is a stranger."""
    challenge = secrets.token_bytes(_NONCE)
    words = yield challenge, _RANK + _NONCE + _MAC, -1
    other = int.from_bytes(words[:_RANK], "big")
    proofs = _proofs(key, rank, other, challenge + words[_RANK:-_MAC])
    if not rank < other < size or not hmac.compare_digest(words[-_MAC:], proofs["join"]):
        raise PermissionError
    words = yield proofs["welcome"], _MAC, other
    if not hmac.compare_digest(words, proofs["confirm"]):
        raise PermissionError
    return other


def _join(key: bytes, lower: int, rank: int) -> _Talk:
    """The side that joins. Raises PermissionError: the other one is a stranger."""
    challenge = yield b"", _NONCE, -1
    nonce = secrets.token_bytes(_NONCE)
    proofs = _proofs(key, lower, rank, challenge + nonce)
    words = yield rank.to_bytes(_RANK, "big") + nonce + proofs["join"], _MAC, -1
    if not hmac.compare_digest(words, proofs["welcome"]):
        raise PermissionError
    yield proofs["confirm"], 0, -1  # it waits for nothing
    return lower


def _proofs(key: bytes, lower: int, upper: int, nonces: bytes) -> dict[str, bytes]:
    what = lower.to_bytes(_RANK, "big") + upper.to_bytes(_RANK, "big") + nonces
    return {word: hmac.digest(key, word.encode() + what, "sha256") for word in ("join", "welcome", "confirm")}


def _key(token: str) -> bytes:
    return hmac.digest(os.fsencode(os.environ.get(SECRET, "")), token.encode(), "sha256")


def _place(text: str | None) -> tuple[str, int, str] | None:
    """Host, port and token of a rank's text; None: it is none."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        host, port, token = json.loads(text or "")
        if isinstance(port, int) and 0 < port < 1 << 16 and isinstance(token, str) and token.isascii():
            ipaddress.ip_address(host if isinstance(host, str) else "")
            return host, port, token
    return None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _host(address: addresses.Address) -> str:
    """The address of this machine in the network of the parameter server."""
    server = address.places[0]
    if server.path or server.host in ("localhost", "::1"):
        return "127.0.0.1"
    for family, _, _, _, target in socket.getaddrinfo(server.host, server.port or 1, type=socket.SOCK_DGRAM):
        with socket.socket(family, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
            probe.connect(target)
            return str(probe.getsockname()[0])
    return "127.0.0.1"


def _claim(client: Client, key: str, process: Process, mine: str) -> None:
    """Writes this rank's process. ValueError: a process that lives has this rank already."""
    if client.ask(key, "HSETNX", key, process.rank, mine):
        return
    host, port, _ = _place(client.ask(key, "HGET", key, process.rank)) or ("", 0, "")
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:  # of a run with this name that has ended
        client.ask(key, "HDEL", key, process.rank)
        client.ask(key, "HSETNX", key, process.rank, mine)
        return
    raise ValueError(
        f"rank {process.rank} of run {process.run_id} is there twice (the other listens at {host}:{port}); "
        f"{process.launcher} must give each process a rank of its own"
    )
