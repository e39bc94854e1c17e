"""One node's part of a job: it meets the others, runs its ranks, ends them, and meets again."""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from het_tf.ext.ps.python import address as addresses
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.redis_server import LocalServer
from het_tf.ext.workers.python import environments
from het_tf.ext.workers.python.environments.process import SECRET, Process
from het_tf.ext.workers.python.launch.meeting import Meeting, Memory, Round, Store, Terms
from het_tf.ext.workers.python.launch.ranks import TICK_SECONDS, Guard, Ranks, Signals
from het_tf.python.show import say

_STORE_SECONDS = 2.0  # for one answer, and for trying again
GRACE_SECONDS = 4.0  # for ranks to end by themselves after a failure
LEAVE_SECONDS = 30.0  # the same after a signal from outside: they may save


def program(words: Sequence[str], module: bool, as_it_is: bool) -> list[str]:
    """Returns the command of a rank: a Python script runs under this Python, anything else by itself.

    Args:
      words: Script, program or module, and its arguments.
      module: It is a module, as of `python -m`.
      as_it_is: Also a script is executed by itself.

    Raises:
      ValueError: It is not there.
    """
    first, *rest = words
    if module:
        return [sys.executable, "-m", first, *rest]
    if first.endswith(".py") and not as_it_is:
        if not Path(first).is_file():
            raise ValueError(f"there is no script {first}; give the path of a file")
        return [sys.executable, first, *rest]
    if shutil.which(first) is None:
        python = f"; a Python script runs by `python {first}`" if Path(first).is_file() else ""
        raise ValueError(f"{first} is no program that can be executed{python or ', on PATH or by its path'}")
    return [first, *rest]


def outside(most: int) -> Process | None:
    """Returns the process of this launcher among others that another launcher has started.

    Args:
      most: Nodes of the job.

    Raises:
      ValueError: That launcher has started ranks, which is `het run`'s part.
    """
    # Kubernetes tells no pod how many there are; here the nodes are known.
    process = environments.find({"HET_WORLD_SIZE": str(most), **os.environ})
    if process is None:
        return None
    if process.launcher in ("het run", "horovodrun", "torchrun"):
        raise ValueError(
            f"this is rank {process.rank} of {process.launcher}, which starts the ranks itself: write "
            "`python` in place of `het run`, or leave the other launcher out"
        )
    if process.size > 1 and most == 1:
        raise ValueError(
            f"{process.launcher} has started {process.size} processes, of which each would run a job of its "
            f"own: write `python` in place of `het run`, or give --nnodes {process.size} and one process a "
            "node"
        )
    return process


@dataclass
class Job:
    """One node of it; `run` does everything.

    Attributes:
      nproc: Ranks of this node.
      terms: What all nodes agree on.
      store: The address of the store; "": none was given.
      log_dir: Where each rank's output goes; None: to the terminal.
      command: What each rank executes.
    """

    nproc: int
    terms: Terms
    store: str
    log_dir: Path | None
    command: Sequence[str]

    def run(self) -> int:
        """Runs it to its end. Returns 0, 1, or 130 after Ctrl-C."""
        with ExitStack() as self._stack:
            store: Store = Memory()
            if self.terms.job:
                address = addresses.parse(self.store)
                store = self._stack.enter_context(Client(address, _STORE_SECONDS, _STORE_SECONDS))
            self._server: LocalServer | None = None
            self._signals, self._guard = Signals(), Guard()
            self._meeting = Meeting(store, self.terms, self.nproc)
            # Of several nodes: what the environment has, if anything.
            self._secret = {} if self.terms.job else {SECRET: secrets.token_hex(16)}
            try:
                return self._rounds()
            except _Ended as end:
                say(f"het run: ended by {signal.Signals(end.args[0]).name}")
                return 130 if end.args[0] == signal.SIGINT else 1

    def _rounds(self) -> int:
        self._meeting.join(self._pause)
        while True:
            now = self._meeting.wait(self._pause)
            if now.state != "over":
                now = self._round(now)
            first, _, rest = now.why.partition("\n")
            if first:  # the traceback stands below the line
                say("\n".join([f"het run: {first}", *(f"  {line}" for line in rest.splitlines())]))
            if now.state == "over":
                self._meeting.leave(self._pause)
                return 1 if now.why else 0
            say(f"het run: all ranks begin anew ({now.failures} of {self.terms.restarts} failures)")

    def _round(self, now: Round) -> Round:
        """Runs the ranks of one round. Returns what follows."""
        # Three processes on the first node and one on the second: ranks 0 to 2, and 3.
        before = [member for member, *_ in now.members].index(self._meeting.id)
        first = sum(count for _, _, count in now.members[:before])
        size = sum(count for _, _, count in now.members)
        store = self._address(size)
        if self.log_dir is not None:
            self.log_dir.mkdir(parents=True, exist_ok=True)
        with Ranks(self._guard, self._signals) as ranks:
            for local in range(self.nproc):
                env = self._environment(now, first + local, size, local, store)
                log = self.log_dir and self.log_dir / f"{first + local}.log"
                ranks.start(first + local, self.command, env, log)
            return self._watch(now, ranks)

    def _watch(self, now: Round, ranks: Ranks) -> Round:
        new = now
        while new.id == now.id and new.state == "run":
            ranks.pump(TICK_SECONDS)
            if self._signals.came:
                number = self._signals.came[0]
                ranks.send(number)
                why = f"the node {self._meeting.host} was ended by {signal.Signals(number).name}"
                ranks.end(LEAVE_SECONDS, partial(self._meeting.step, "failed", why))
                self._meeting.step("failed", why)
                break
            state = "failed" if ranks.failure else "running" if ranks.running else "done"
            new = self._meeting.step(state, ranks.failure)
        # After a failure others notice it by themselves, and may say so.
        failed = new.state == "over" or new.failures != now.failures
        ranks.end(GRACE_SECONDS if failed else 0, partial(self._meeting.step, "ending"))
        if self._signals.came:
            raise _Ended(self._signals.came[0])
        return new

    def _environment(self, now: Round, rank: int, size: int, local: int, store: str) -> dict[str, str]:
        ranks = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": self.nproc}
        own = {f"{prefix}{name}": str(value) for name, value in ranks.items() for prefix in ("", "HET_")}
        own |= {
            "HET_RUN_ID": f"{self.terms.job or 'local'}.{now.id}",
            "HET_RESTART": str(now.number),
            "HET_WORKERS_TIMEOUT": f"{self.terms.timeout:g}",
        }
        if store:
            own["HET_PS"] = os.environ.get("HET_PS") or store
        return {**os.environ, **self._secret, **own}

    def _address(self, size: int) -> str:
        """The address of the store, which this process runs if none was given and ranks must share one."""
        if self.store or size == 1:
            return self.store
        if self._server is None or not self._server.alive():
            try:
                self._server = LocalServer.start(unix=True)
            except ServerError as error:
                raise RuntimeError(
                    f"{size} ranks need a parameter server for their tables, and none could be started: "
                    f"{error}; or give the address of a running one by --rdzv or HET_PS"
                ) from None
            self._stack.callback(self._server.stop)
            say(
                f"het run: runs the parameter server of this job at {self._server.address} "
                f"({self._server.program}); its tables end with the job. HET_PS=ADDRESS names a lasting one."
            )
        return self._server.address

    def _pause(self) -> None:
        """Waits for a moment, or a signal.

        Raises:
          _Ended: A signal has come.
        """
        select.select([self._signals.read_end], [], [], TICK_SECONDS)
        self._signals.clear()
        if self._signals.came:
            raise _Ended(self._signals.came[0])


class _Ended(Exception):
    """A signal has told this process to end."""
