"""The time of a step: traffic and CPU time of a replay on links and servers of a given speed.

    serial   compute + the worker's CPU + the server's CPU + bytes in / rate + round trips
    behind   bytes out / rate: updates travel during the next batch's computation, unless the worker waits
    step     sqrt(serial^2 + behind^2): between the larger one (they overlap) and their sum (they queue)

With planned lookups whose rows may come early, bytes in and round trips overlap with computing, too, as a
third term; the server's CPU stays in the sum, since no measurement shows that it overlaps. All
workers ask a server at once, so its CPU time and its link serve all of them before a step goes on.
"""

from __future__ import annotations

import dataclasses
import math
import socket
import threading
import time
from collections.abc import Sequence

from het_tf.ext.sizing.python.replay import Job, Replayed, Traffic

_PROBE_BYTES = 1 << 26
_BUFFER, _PIECE = 1 << 20, 1 << 14  # bytes of a connection's buffer, and per receive


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """The machines of a job.

    Attributes:
      rate: Bytes a second of every machine's link, each way; None: not limited.
      round_trip: Seconds between a worker and a server.
      compute: Seconds of a step without lookups.
      byte_seconds: CPU time to send and receive a byte, both ends together.
    """

    rate: float | None = None
    round_trip: float = 0.0
    compute: float = 0.0
    byte_seconds: float = 0.0


def byte_seconds() -> float:
    """Measures the CPU seconds of a byte at both ends of a connection on this machine.

    Each end also copies it once, as Redis and hiredis do between a socket and their buffers.
    """
    rows = b"\1" * _PROBE_BYTES  # more than a CPU's caches hold, like rows
    out, piece, received = bytearray(_BUFFER), bytearray(_PIECE), bytearray(_BUFFER)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    with near, far:
        begin = time.process_time()

        def drain() -> None:
            at = 0
            while at < _PROBE_BYTES:
                size = far.recv_into(piece)
                place = at % (_BUFFER - _PIECE)
                received[place : place + size] = piece[:size]
                at += size

        reader = threading.Thread(target=drain)
        reader.start()
        for first in range(0, _PROBE_BYTES, _BUFFER):
            out[:] = rows[first : first + _BUFFER]
            near.sendall(out)
        reader.join()
        return (time.process_time() - begin) / _PROBE_BYTES


@dataclasses.dataclass(frozen=True)
class StepTime:
    """A step in seconds, and the time of each part by itself.

    Attributes:
      seconds: Time of the step.
      parts: By name: "compute", "worker CPU", "server CPU", "rows in", "updates out", "round trips".
    """

    seconds: float
    parts: dict[str, float]

    @property
    def bound(self) -> str:
        """The longest part."""
        return max(self.parts, key=self.parts.__getitem__)


def step_time(
    traffic: Traffic, tables: Sequence[Replayed], job: Job, machine: Machine, early: bool = False
) -> StepTime:
    """Computes the time of a step.

    Args:
      traffic: Traffic of the tables.
      tables: The replayed tables.
      job: The job, whose workers share the servers.
      machine: Machine of workers and servers.
      early: Whether rows are read during the previous batch's computation: planned, and bounds above 0.
    """
    both = traffic.bytes * machine.byte_seconds / 2
    crowd = max(1.0, job.workers / job.shards)  # workers at one server's link
    moving = {"rows in": traffic.bytes_in, "updates out": traffic.bytes_out}
    parts = {
        "compute": machine.compute,
        "worker CPU": sum(one.client_seconds for one in tables) + both,
        "server CPU": job.workers / job.shards * (sum(one.store_seconds for one in tables) + both),
        **{name: crowd * size / machine.rate if machine.rate else 0.0 for name, size in moving.items()},
        "round trips": traffic.waits * machine.round_trip,
    }
    waited = traffic.waiting_writes * parts["updates out"]
    reading = parts["rows in"] + parts["round trips"] + waited
    own = parts["compute"] + parts["worker CPU"] + parts["server CPU"]
    overlapping = [own, reading] if early else [own + reading]
    return StepTime(math.hypot(*overlapping, parts["updates out"] - waited), parts)
