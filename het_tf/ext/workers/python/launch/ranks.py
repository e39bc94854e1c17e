"""The ranks of this node: started in process groups of their own, watched, ended."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

from het_tf.ext.workers.python.launch.output import Output, last_words

TICK_SECONDS = 0.5  # between two looks at the meeting
GRACE_SECONDS = 4.0  # for ranks to end by themselves, and again after SIGTERM
LEAVE_SECONDS = 30.0  # the same after a signal from outside: they may save


class Guard:
    """The process that kills the ranks should this one die without a word (`guard.py`)."""

    def __init__(self) -> None:
        script = str(Path(__file__).with_name("guard.py"))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", script], stdin=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin.fileno()

    def watch(self) -> None:
        """Called in a new process, before its program: no moment is left in which nobody knows of it."""
        os.write(self._pipe, b"+%d\n" % os.getpid())

    def forget(self, group: int) -> None:
        """Nothing of a group is left."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, b"-%d\n" % group)

    def close(self) -> None:
        """Ends it."""
        self._process.communicate()


class Signals:
    """Wakes `pump` when a child ends, and when this process is told to end."""

    _ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.came: list[int] = []
        self.read_end, self._write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        os.set_blocking(self._write_end, False)
        self._fd = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        self._before = {one: signal.signal(one, self._take) for one in (*self._ENDS, signal.SIGCHLD)}

    def _take(self, number: int, _: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self.came.append(number)

    def clear(self) -> bool:
        """Forgets what has woken. Returns False: nothing more follows for now."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.read_end, 4096)
        return False

    def close(self) -> None:
        """Puts back what was."""
        for one, handler in self._before.items():
            signal.signal(one, handler)
        signal.set_wakeup_fd(self._fd)
        os.close(self.read_end)
        os.close(self._write_end)


@dataclass(eq=False)
class Rank:
    """One rank. `outputs` are its streams that pass through this process, stderr last."""

    number: int
    process: subprocess.Popen[bytes]
    outputs: list[Output] = field(default_factory=list)
    log: IO[bytes] | None = None

    def __str__(self) -> str:
        return f"rank {self.number} (process {self.process.pid} on {socket.gethostname()})"

    def stopped(self) -> bool:
        """Whether a signal or a debugger has stopped it."""
        try:
            text = Path(f"/proc/{self.process.pid}/stat").read_text()
        except OSError:
            return False
        return text.rpartition(")")[2].split()[0] in ("T", "t")

    def send(self, number: int) -> None:
        """Sends a signal to it and to all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Ranks:
    """The ranks of one round on this node. Leaving its `with` block kills what still runs.

    Attributes:
      running: Those that have not ended.
      failure: Why the first one failed, with its traceback; "" while none has.

    Args:
      guard: Learns of each.
      signals: Wakes `pump`.
    """

    def __init__(self, guard: Guard, signals: Signals) -> None:
        self.running: list[Rank] = []
        self.failure = ""
        self._guard = guard
        self._signals = signals
        self._ending = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals.read_end, selectors.EVENT_READ, signals.clear)

    def start(self, number: int, command: Sequence[str], env: dict[str, str], log: Path | None) -> None:
        """Starts a rank.

        Rank 0 has this process's stdin, and its stdout unless there is a log: to its program it seems as if
        it ran alone. stderr always passes through here.

        Args:
          number: Its number.
          command: Its program and arguments.
          env: Its variables.
          log: The file that its output goes to; of rank 0 also the terminal.
        """
        first = number == 0
        file = open(log, "ab", buffering=0) if log else None
        process = subprocess.Popen(
            command, env=env, start_new_session=True, preexec_fn=self._guard.watch,
            stdin=None if first else subprocess.DEVNULL,
            stdout=None if first and log is None else subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        rank = Rank(number, process, log=file)
        self.running.append(rank)
        for source, terminal in ((process.stdout, 1), (process.stderr, 2)):
            if source is not None:
                shown = terminal if first or log is None else -1
                output = Output(source, shown, b"" if first else b"[%d] " % number, file)
                rank.outputs.append(output)
                self._selector.register(source, selectors.EVENT_READ, output.read)

    def pump(self, seconds: float) -> None:
        """Passes output on, for `seconds` at most or until something happens."""
        for key, _ in self._selector.select(seconds):
            if not key.data() and key.fd != self._signals.read_end:
                self._selector.unregister(key.fileobj)
        ended = [rank for rank in self.running if self._has_ended(rank)]
        failed = [(rank, status) for rank in ended if (status := self._take(rank)) != 0]
        if failed and not self.failure and not self._ending:
            # Of several at once the one that was killed is the cause: others fail of it.
            self.failure = self._reason(*min(failed, key=lambda one: (one[1] > 0, one[0].number)))

    @staticmethod
    def _has_ended(rank: Rank) -> bool:
        """Whether it has; its number stays taken, so that its group can still be killed."""
        return os.waitid(os.P_PID, rank.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _take(self, rank: Rank) -> int:
        """Ends what an ended rank has left behind. Returns its status, -N for signal N."""
        rank.send(signal.SIGKILL)
        self._guard.forget(rank.process.pid)
        status = rank.process.wait()
        for output in rank.outputs:
            with contextlib.suppress(KeyError):
                self._selector.unregister(output.source)
            output.close()
        if rank.log is not None:
            rank.log.close()
        self.running.remove(rank)
        return status

    def _reason(self, rank: Rank, status: int) -> str:
        how = f"exit status {status}"
        if status < 0:
            how = f"killed by {signal.Signals(-status).name}"
        why, traceback = last_words(bytes(rank.outputs[-1].kept))
        text = f"{rank} failed first: {how}" + (f": {why}" if why else "")
        stopped = [str(one) for one in self.running if one.stopped()]
        if stopped:  # the others fail of it
            text = f"{', '.join(stopped)} is stopped (SIGSTOP), and is killed; then {text}"
        log = f"\nlog: {rank.log.name}" if rank.log is not None else ""
        return text + log + (f"\n{traceback}" if traceback else "")

    def send(self, number: int) -> None:
        """Sends a signal to the groups of all that run."""
        for rank in self.running:
            rank.send(number)

    def end(self, seconds: float, beat: Callable[[], object]) -> None:
        """Ends all: waits `seconds` for them, then sends SIGTERM, at last SIGKILL.

        Args:
          seconds: How long they may take to end by themselves.
          beat: Called every TICK_SECONDS.

        A signal to this process ends each wait.
        """
        self._ending = True
        for rank in self.running:
            if rank.stopped():
                rank.send(signal.SIGKILL)
        for number, wait in ((0, seconds), (signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, GRACE_SECONDS)):
            if number:
                self.send(number)
            came, end = len(self._signals.came), time.monotonic() + wait
            while self.running and len(self._signals.came) == came and time.monotonic() < end:
                self.pump(TICK_SECONDS)
                beat()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending = True
        self.send(signal.SIGKILL)
        while self.running:
            self._take(self.running[0])
        self._selector.close()
