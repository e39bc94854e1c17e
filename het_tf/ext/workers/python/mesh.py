"""Workers that are connected by TCP, without Horovod (cc/mesh.h); they meet at the parameter server.

Each rank listens at a free port, writes its place into a hash of the run, connects to the ranks below its
own, and accepts those above, which know the token that it wrote. Then it takes its place back.
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
from typing import Any

import numpy as np

from het_tf.ext.ps.python import address as addresses
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.workers.python.environments.place import Place
from het_tf.python import backend
from het_tf.python.session import native
from het_tf.python.session.workers import Workers, objects
from het_tf.python.table.notes import HetWarning

TIMEOUT = "HET_WORKERS_TIMEOUT"
JOIN = "HET_WORKERS_JOIN_TIMEOUT"
_DEFAULTS = {TIMEOUT: 10.0, JOIN: 300.0}
_KEPT_SECONDS = 60  # a place in the hash, from the last look of its rank
_TOKEN, _RANK = 32, 8  # characters of the words that a connection begins with


class Mesh(Workers):
    """The ranks of a run, connected, with collectives on arrays; those of graphs are in mesh_tensors.py.

    Args:
      place: Where this process runs.
      address: The parameter server at which the ranks meet.

    Raises:
      ConnectionError: The parameter server does not answer.
      TimeoutError: Some ranks did not come; the message names them.
      ValueError: Another process has this rank, or the ranks run other programs, or other backends of Keras.
    """

    kind = "het_tf"

    def __init__(self, place: Place, address: addresses.Address) -> None:
        self._place = place
        timeout = _seconds(TIMEOUT)
        sockets = _meet(place, address, _seconds(JOIN))
        descriptors = (ctypes.c_int64 * place.size)(*(-1 if one is None else one.detach() for one in sockets))
        native.call(
            "HetJoinRanks", ctypes.c_int64(place.rank), ctypes.c_int64(place.size), descriptors,
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
        return self._place.rank

    @property
    def size(self) -> int:
        """Number of workers."""
        return self._place.size

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
        received, _ = self._exchange(label, what, [value] * self.size)
        return received.view(value.dtype).reshape(-1, *value.shape[1:])

    def exchange(self, payload: Any, splits: Any, label: str) -> tuple[Any, Any]:
        """As Workers.exchange."""
        return self._exchange(label, "bytes", np.split(payload, np.cumsum(splits[:-1])))

    def gather_objects(self, value: Any, label: str) -> list[Any]:
        """As Workers.gather_objects."""
        backend.settle()
        packed = np.frombuffer(pickle.dumps(value), np.uint8)
        return objects(self._exchange(label, "objects", [packed] * self.size)[0].tobytes())

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

    def _exchange(self, label: str, what: str, parts: list[Any]) -> tuple[Any, Any]:
        """Sends an array to each rank. Returns what has come, uint8 [bytes], and lengths, int32 [size]."""
        sizes = np.array([one.nbytes for one in parts], np.int64)
        pointers = (ctypes.c_void_p * len(parts))(*[one.ctypes.data for one in parts])
        received = ctypes.c_void_p()
        native.call_in_step("HetExchangeRanks", label, what, pointers, sizes, ctypes.byref(received))
        found = np.empty(sizes.sum(), np.uint8)
        native.library.HetTakeReceived(received, found.ctypes.data_as(ctypes.c_void_p))
        return found, sizes.astype(np.int32)


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


def _meet(place: Place, address: addresses.Address, limit: float) -> list[socket.socket | None]:
    """Returns a connection to each rank; None for this one."""
    key = f"het:run:{place.run_id}"
    end = time.monotonic() + limit
    peers: list[socket.socket | None] = [None] * place.size
    with contextlib.ExitStack() as opened:
        client = opened.enter_context(Client(address, seconds=5))
        try:
            listener = opened.enter_context(_listen(_host(address)))
            token = secrets.token_hex(_TOKEN // 2)
            mine = json.dumps([*listener.getsockname()[:2], token])
            _claim(client, key, place, mine)
            while any(one is None for rank, one in enumerate(peers) if rank != place.rank):
                client.ask(key, "EXPIRE", key, _KEPT_SECONDS)
                _connect(client, key, place.rank, peers)
                _accept(listener, token, place.rank, peers)
                if time.monotonic() > end:
                    raise _missing(place, peers, limit)
            client.ask(key, "HDEL", key, place.rank)  # those above have read it
        except ServerError as error:
            raise ConnectionError(f"the ranks meet at the parameter server: {error}") from None
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


def _claim(client: Client, key: str, place: Place, mine: str) -> None:
    """Writes this rank's place. ValueError: a process that lives has this rank already."""
    if client.ask(key, "HSETNX", key, place.rank, mine):
        return
    host, port, _ = json.loads(client.ask(key, "HGET", key, place.rank) or mine)
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:  # of a run with this name that has ended
        client.ask(key, "HDEL", key, place.rank)
        client.ask(key, "HSETNX", key, place.rank, mine)
        return
    raise ValueError(
        f"rank {place.rank} of run {place.run_id} is there twice (the other listens at {host}:{port}); "
        f"{place.launcher} must give each process a rank of its own"
    )


def _connect(client: Client, key: str, rank: int, peers: list[socket.socket | None]) -> None:
    """Connects to the ranks below this one that have written their places."""
    for lower in range(rank):
        text = client.ask(key, "HGET", key, lower) if peers[lower] is None else None
        if text is None:
            continue
        host, port, token = json.loads(text)
        with contextlib.suppress(OSError):  # the place of a run that has ended; look again
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


def _missing(place: Place, peers: list[socket.socket | None], limit: float) -> TimeoutError:
    missing = [str(rank) for rank, one in enumerate(peers) if one is None and rank != place.rank]
    return TimeoutError(
        f"rank {place.rank} of {place.size} has waited {limit:g} s for rank {', '.join(missing)} of run "
        f"{place.run_id}; did {place.launcher} start them, with the same parameter server? {JOIN} is the "
        "limit"
    )
