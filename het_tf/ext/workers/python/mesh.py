"""Workers that are connected by TCP (cc/mesh.h); they meet at the parameter server, or through Horovod.

Each rank listens at a free port, writes where into a hash of the run, connects to the ranks below its
own, and accepts those above, which know the token that it wrote. Then it removes what it wrote. Ranks of
Horovod gather what they would write.
"""

import atexit
import contextlib
import ctypes
import json
import os
import pickle
import secrets
import socket
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from het_tf.ext.ps.python import address as addresses
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.workers.python.environments.process import Process
from het_tf.python import backend
from het_tf.python.session import native
from het_tf.python.session.workers import Workers, objects
from het_tf.python.table.notes import HetWarning

TIMEOUT = "HET_WORKERS_TIMEOUT"
JOIN = "HET_WORKERS_JOIN_TIMEOUT"
_DEFAULTS = {TIMEOUT: 10.0, JOIN: 300.0}
_KEPT_SECONDS = 60  # a process in the hash, from the last look of its rank
_TOKEN, _RANK = 32, 8  # characters of the words that a connection begins with


class Mesh(Workers):
    """The ranks of a run, connected, with collectives on arrays; those of graphs are in mesh_tensors.py.

    Args:
      process: Where this process runs.
      sockets: A connection to each rank, of `meet`; None for this one.

    Raises:
      ValueError: The ranks run other programs, or other backends of Keras.
    """

    def __init__(self, process: Process, sockets: list[socket.socket | None]) -> None:
        self._process = process
        timeout = _seconds(TIMEOUT)
        descriptors = (ctypes.c_int64 * process.size)(
            *(-1 if one is None else one.detach() for one in sockets)
        )
        native.call(
            "HetJoinRanks", ctypes.c_int64(process.rank), ctypes.c_int64(process.size), descriptors,
            ctypes.c_double(timeout),
        )  # fmt: skip
        atexit.register(self.leave)
        self._compare_programs()

    def _compare_programs(self) -> None:
        mine = (os.path.basename(sys.argv[0]), backend.NAME, sys.argv[1:])
        of_ranks = self.gather_objects(mine, "het_tf.program")
        first, first_backend, first_arguments = of_ranks[0]
        for number, (program, its_backend, arguments) in enumerate(of_ranks):
            if program != first:
                raise ValueError(
                    f"rank 0 runs {first} and rank {number} runs {program}; start one program on all ranks"
                )
            if its_backend != first_backend:
                raise ValueError(
                    f"Keras' backend is {first_backend!r} on rank 0 and {its_backend!r} on rank {number}; "
                    "set KERAS_BACKEND to one value on all ranks"
                )
            if arguments != first_arguments and number == self.rank:
                warnings.warn(
                    f"het_tf: rank {number} has the arguments {' '.join(arguments)!r}, and rank 0 has "
                    f"{' '.join(first_arguments)!r}; what differs must not change the model",
                    HetWarning,
                    stacklevel=2,
                )

    @property
    def rank(self) -> int:
        """Number of this worker, from 0."""
        return self._process.rank

    @property
    def size(self) -> int:
        """Number of workers."""
        return self._process.size

    def mean(self, gradients: list[Any], label: str) -> list[Any]:
        """As Workers.mean, of arrays of float32 or float64."""
        return _reduce(gradients, label, mean=True)

    def sum(self, value: Any, label: str) -> Any:
        """As Workers.sum, of an array of float32 or float64."""
        return _reduce([value], label, mean=False)[0]

    def gather(self, value: Any, label: str) -> Any:
        """As Workers.gather."""
        value = np.ascontiguousarray(value)
        what = f"{value.dtype} {['?', *value.shape[1:]]}"
        return _gather(label, what, value).view(value.dtype).reshape(-1, *value.shape[1:])

    def gather_objects(self, value: Any, label: str) -> list[Any]:
        """As Workers.gather_objects."""
        backend.settle()
        packed = np.frombuffer(pickle.dumps(value), np.uint8)
        return objects(_gather(label, "objects", packed).tobytes())

    def broadcast(self, value: Any, label: str) -> Any:
        """As Workers.broadcast."""
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            return super().broadcast(value, label)
        backend.settle()
        flat = value.ravel()
        return Mesh.gather(self, flat if self.rank == 0 else flat[:0], label).reshape(value.shape)

    def leave(self) -> None:
        """As Workers.leave."""
        native.call("HetLeaveRanks")


def _gather(label: str, what: str, value: Any) -> Any:
    """Returns the bytes of an array of all ranks, in their order, uint8 [bytes]."""
    data, size, received = (
        value.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int64(value.nbytes),
        ctypes.c_void_p(),
    )
    native.call_in_step("HetGatherFromRanks", label, what, data, ctypes.byref(size), ctypes.byref(received))
    found = np.empty(size.value, np.uint8)
    native.library.HetTakeReceived(received, found.ctypes.data_as(ctypes.c_void_p))
    return found


def _reduce(values: list[Any], label: str, mean: bool) -> list[Any]:
    """Sums arrays over all ranks; all of a type travel as one vector."""
    sums = list(values)
    for dtype in (np.float32, np.float64):
        of_type = [number for number, one in enumerate(values) if one.dtype == dtype and one.size]
        if not of_type:
            continue
        vector = np.concatenate([values[number].ravel() for number in of_type])
        native.call_in_step(
            "HetSumOverRanks", f"{label}/{dtype.__name__}", mean, vector.itemsize, vector, vector.size
        )
        ends = np.cumsum([values[number].size for number in of_type])
        for number, part in zip(of_type, np.split(vector, ends[:-1]), strict=True):
            sums[number] = part.reshape(values[number].shape)
    return sums


def _seconds(name: str) -> float:
    text = os.environ.get(name, "")
    try:
        seconds = float(text or _DEFAULTS[name])
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise ValueError(f"{name} is {text!r}; give a number of seconds above 0")
    return seconds


# --- how the ranks meet -------------------------------------------------------------------------------------


def meet(process: Process, address: addresses.Address) -> list[socket.socket | None]:
    """Returns a connection to each rank, by what they write at the parameter server; None for this one.

    Raises:
      ConnectionError: The parameter server does not answer.
      TimeoutError: Some ranks did not come; the message names them.
      ValueError: Another process has this rank.
    """
    key = f"het:run:{process.run_id}"
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
      text: Where it is, and the token of who may connect.
    """

    def __init__(self, address: addresses.Address | None) -> None:
        self._socket = _listen("127.0.0.1" if address is None else _host(address))
        self._token = secrets.token_hex(_TOKEN // 2)
        self.text = json.dumps([*self._socket.getsockname()[:2], self._token])

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
        limit = _seconds(JOIN)
        end = time.monotonic() + limit
        peers: list[socket.socket | None] = [None] * process.size
        while any(one is None for rank, one in enumerate(peers) if rank != process.rank):
            _connect(said(), process.rank, peers)
            _accept(self._socket, self._token, process.rank, peers)
            if time.monotonic() > end:
                raise _missing(process, peers, limit)
        return peers


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


def _listen(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, 0), family=family, backlog=128)
    listener.settimeout(0.1)
    return listener


def _claim(client: Client, key: str, process: Process, mine: str) -> None:
    """Writes this rank's process. ValueError: a process that lives has this rank already."""
    if client.ask(key, "HSETNX", key, process.rank, mine):
        return
    host, port, _ = json.loads(client.ask(key, "HGET", key, process.rank) or mine)
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


def _connect(said: list[str | None], rank: int, peers: list[socket.socket | None]) -> None:
    """Connects to the ranks below this one that have come."""
    for lower, text in enumerate(said[:rank]):
        if text is None or peers[lower] is not None:
            continue
        host, port, token = json.loads(text)
        with contextlib.suppress(OSError):  # of a run that has ended; look again
            one = socket.create_connection((host, port), timeout=5)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.sendall(f"{token}{rank:0{_RANK}}".encode())
            if one.recv(1) == b"+":
                peers[lower] = one
            else:
                one.close()


def _accept(listener: socket.socket, token: str, rank: int, peers: list[socket.socket | None]) -> None:
    """Accepts ranks above this one."""
    if all(one is not None for one in peers[rank + 1 :]):
        time.sleep(0.02 if any(one is None for one in peers[:rank]) else 0)
        return
    with contextlib.suppress(OSError):
        one, _ = listener.accept()
        one.settimeout(2)
        words = one.recv(_TOKEN + _RANK, socket.MSG_WAITALL).decode(errors="replace")
        other = int(words[_TOKEN:]) if words[_TOKEN:].isdigit() else -1
        known = secrets.compare_digest(words[:_TOKEN].encode(), token.encode())
        if not known or not rank < other < len(peers) or peers[other] is not None:
            one.close()
            return
        one.sendall(b"+")
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peers[other] = one


def _missing(process: Process, peers: list[socket.socket | None], limit: float) -> TimeoutError:
    missing = [str(rank) for rank, one in enumerate(peers) if one is None and rank != process.rank]
    return TimeoutError(
        f"rank {process.rank} of {process.size} has waited {limit:g} s for rank {', '.join(missing)} of run "
        f"{process.run_id}; did {process.launcher} start them, with the same parameter server? {JOIN} is the "
        "limit"
    )
