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
from dataclasses import dataclass
from pathlib import Path

from het_tf.ext.workers.python.launch.output import Output, last_words, left_by

TICK_SECONDS = 0.5  # between two looks at the meeting
TERM_SECONDS = 4.0  # after SIGTERM, before SIGKILL
CAUSE_SECONDS = 10.0  # for a rank to end that has told others so: Python ends slower than an error comes


class Guard:
    """The process that kills the ranks should this one die without a word (`guard.py`)."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        assert self._process.stdin is not None
        self._pipe = self._process.stdin.fileno()

    def watch(self) -> None:
        """Called in a new process, before its program: no moment is left in which nobody knows of it."""
        os.write(self._pipe, b"+%d\n" % os.getpid())

    def forget(self, group: int) -> None:
        """Nothing of a group is left."""
        os.write(self._pipe, b"-%d\n" % group)


class Signals:
    """Wakes `pump` when a child ends, and when this process is told to end; `came` has the numbers."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self.read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: self.came.append(number))
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def clear(self) -> bool:
        """Forgets what has woken. More may follow."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.read_end, 4096)
        return True


@dataclass(eq=False)
class Rank:
    """One rank. `outputs` are its streams that pass through this process, stderr last."""

    number: int
    process: subprocess.Popen[bytes]
    outputs: list[Output]
    log: Path | None

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

        Rank 0 has this process's stdin, and a terminal without a log as stdout: to its program it seems as
        if it ran alone. stderr always passes through here.

        Args:
          number: Its number.
          command: Its program and arguments.
          env: Its variables.
          log: The file that its output goes to; of rank 0 also the terminal.
        """
        first = number == 0
        direct = first and log is None and os.isatty(1)
        env = env if direct else {"PYTHONUNBUFFERED": "1", **env}
        process = subprocess.Popen(
            command, env=env, start_new_session=True, preexec_fn=self._guard.watch,
            stdin=None if first else subprocess.DEVNULL,
            stdout=None if direct else subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        rank = Rank(number, process, [], log)
        self.running.append(rank)
        for terminal, source in ((1, process.stdout), (2, process.stderr)):
            if source is not None:
                prefix = b"[%d] " % number if not first else None if os.isatty(terminal) else b""
                terminal = terminal if first or log is None else -1
                rank.outputs.append(Output(source, terminal, prefix, log))
                self._selector.register(source, selectors.EVENT_READ, rank.outputs[-1].read)

    def pump(self, seconds: float) -> None:
        """Passes output on for `seconds`, or until a rank has ended or a signal has come."""
        came, end, ended = len(self._signals.came), time.monotonic() + seconds, list[Rank]()
        while not ended and len(self._signals.came) == came and (left := end - time.monotonic()) > 0:
            self._pass_on(left)
            ended = [rank for rank in self.running if self._has_ended(rank)]
        failed = [(rank, status) for rank in ended if (status := self._take(rank)) != 0]
        if failed and not self.failure and not self._ending:
            # Of several at once the one that was killed is the cause: others fail of it.
            first = min(failed, key=lambda one: (one[1] > 0, one[0].number))
            number = left_by(bytes(first[0].outputs[-1].kept))
            also = next((one for one in failed if one[0].number == number), None)
            self.failure = self._reason(*(also or self._failure_of(number) or first))

    def _failure_of(self, number: int | None) -> tuple[Rank, int] | None:
        """Waits for the end of a rank that others say has ended. Returns it with its status if it fails."""
        cause = next((rank for rank in self.running if rank.number == number), None)
        came, end = len(self._signals.came), time.monotonic() + CAUSE_SECONDS
        while cause is not None and len(self._signals.came) == came and (left := end - time.monotonic()) > 0:
            if self._has_ended(cause):
                status = self._take(cause)
                return (cause, status) if status != 0 else None
            self._pass_on(left)
        return None

    def _pass_on(self, seconds: float) -> None:
        """Waits for output of a rank, a signal, or the end of one, and passes output on."""
        for key, _ in self._selector.select(seconds):
            if not key.data():
                self._selector.unregister(key.fileobj)

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
        self.running.remove(rank)
        return status

    def _reason(self, rank: Rank, status: int) -> str:
        how = f"exit status {status}" if status > 0 else f"killed by {signal.Signals(-status).name}"
        why, traceback = last_words(bytes(rank.outputs[-1].kept))
        text = f"{rank} failed first: {how}" + (f": {why}" if why else "")
        stopped = [str(one) for one in self.running if one.stopped()]
        if stopped:  # the others fail of it
            text = f"{', '.join(stopped)} is stopped (SIGSTOP), and is killed; then {text}"
        log = f"\nlog: {rank.log}" if rank.log is not None else ""
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
        for number, wait in ((0, seconds), (signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, TERM_SECONDS)):
            self.send(number)  # 0 is none
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
