"""Where the nodes of a job meet: at the store, with no other service.

Each node holds one of MAX places, a key with a life of `timeout` seconds that it renews, which has its state.
The node of the lowest place leads: it alone writes the key `round`, which all follow.

    gather   nodes wait; from MIN on, when nobody else has come for a while, or with MAX, the round begins
    run      every member runs its ranks, numbered by place. A rank that fails or a node that is lost ends the
             round, and all gather anew, `restarts` times at most; a node that comes while there is a place
             ends it, too
    over     done, or failed for good

Should two nodes lead for a moment, they write the same but for the round's id, by which ranks find each
other: nodes follow the last one. One node alone meets in its own memory.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from het_tf.ext.ps.python.errors import ServerError

SETTLE_SECONDS = 3.0  # without a new node, before a round begins with fewer than MAX

Pause = Callable[[], None]


class Store(Protocol):
    """What of `het_tf.ext.ps.python.client.Client` a meeting needs."""

    def ask(self, key: str, *words: object) -> Any:
        """Sends one command to the server that owns `key`."""


class Memory:
    """The store of a meeting of one."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def ask(self, key: str, *words: object) -> str | None:
        """GET, SET and UNLINK of the one who is there."""
        if words[0] == "SET":
            self._values[key] = str(words[2])
            return "OK"
        return self._values.pop(key, None) if words[0] == "UNLINK" else self._values.get(key)


@dataclass(frozen=True)
class Terms:
    """What all nodes of a job must agree on, and the wait for them.

    Attributes:
      job: The job's name.
      least, most: Nodes.
      restarts: How often a failure may be followed by another round.
      timeout: Seconds of silence after which a node is lost.
      command: Program and arguments.
      join_timeout: Seconds to wait for nodes.
    """

    job: str
    least: int
    most: int
    restarts: int
    timeout: float
    command: tuple[str, ...]
    join_timeout: float

    def compared(self) -> dict[str, str]:
        """Each as it is written on the command line."""
        return {
            "--nnodes": f"{self.least}:{self.most}",
            "--max-restarts": str(self.restarts),
            "--timeout": f"{self.timeout:g}",
            "the program": " ".join(self.command),
        }


@dataclass(frozen=True)
class Round:
    """What all nodes do.

    Attributes:
      id: Of this round, and no other.
      state: "gather", "run" or "over".
      members: Of each node: its id, its host, its ranks.
      number: How many rounds were before.
      failures: How many of them failed.
      why: Why the round before has ended; "" after the last one: it is done.
    """

    id: str
    state: str
    members: Sequence[Sequence[Any]] = ()
    number: int = 0
    failures: int = 0
    why: str = ""


class Meeting:
    """A node's part of it. `join`, then `step` at least every second, at last `leave`.

    Args:
      store: Where the nodes meet.
      terms: What they agree on.
      nproc: Ranks of this node.
    """

    def __init__(self, store: Store, terms: Terms, nproc: int) -> None:
        self.id = secrets.token_hex(8)
        self._store = store
        self._terms = terms
        self.host = socket.gethostname()
        self._me = {"id": self.id, "host": self.host, "nproc": nproc, "terms": terms.compared()}
        self._place = -1
        self._old = ""  # the round of a job before this one
        self._round = Round("", "gather")
        self._nodes: dict[int, dict[str, Any]] = {}
        self._changed = self._heard = time.monotonic()  # when the nodes changed, and the store answered

    def join(self, pause: Pause) -> None:
        """Takes a place.

        Args:
          pause: Waits for a moment.

        Raises:
          ValueError: Other nodes have other terms, or there are as many as may be.
        """
        # A place of a node that has died is free after the timeout.
        end = time.monotonic() + self._terms.timeout + 1
        while self._place < 0:
            others = self._look()
            for node in others.values():
                for name, theirs in node["terms"].items():
                    if theirs != (mine := self._terms.compared()[name]):
                        raise ValueError(
                            f"{name} differs between the nodes of job '{self._terms.job}': {mine} here, "
                            f"{theirs} on {node['host']}; give all nodes the same, or another --rdzv-id"
                        )
            for place in range(self._terms.most):
                if place not in others and self._write(place, "waiting", "", "NX"):
                    self._place = place
                    last = self._read_round()
                    self._old = last.id if last is not None and last.state == "over" else ""
                    return
            if time.monotonic() > end:
                raise ValueError(
                    f"{len(others)} nodes are in job '{self._terms.job}' ({_hosts(others)}), and --nnodes "
                    f"{self._terms.compared()['--nnodes']} allows no more; raise it on all, or give this job "
                    "another --rdzv-id"
                )
            pause()

    def step(self, state: str, why: str = "") -> Round:
        """Renews this node's place, leads if it is the first, and returns what all nodes do.

        Args:
          state: Of this node: "waiting", "running", "done" or "failed".
          why: Why it failed.

        Raises:
          ServerError: The store has not answered for the timeout.
          RuntimeError: Another node has taken this one's place meanwhile.
        """
        try:
            found = self._look()
            holder = found.get(self._place)
            if holder is not None and holder["id"] != self.id:
                raise RuntimeError(
                    f"this node was silent for longer than --timeout {self._terms.timeout:g} s, and "
                    f"{holder['host']} has taken its place in job '{self._terms.job}'"
                )
            self._write(self._place, state, why)
            now = self._heard = time.monotonic()
            found[self._place] = self._report(state, why)
            if {node["id"] for node in found.values()} != {node["id"] for node in self._nodes.values()}:
                self._changed = now
            self._nodes = found
            self._follow(now)
        except ServerError:
            if time.monotonic() - self._heard > self._terms.timeout:
                raise
        return self._round

    def wait(self, pause: Pause) -> Round:
        """Returns the next round that has this node, or the last word.

        Raises:
          ServerError: Too few nodes have come.
        """
        end = time.monotonic() + self._terms.join_timeout
        while True:
            found = self.step("waiting")
            mine = any(self.id == member[0] for member in found.members)
            if found.state == "over" or (found.state == "run" and mine):
                return found
            if time.monotonic() > end:
                there, least = len(self._nodes), self._terms.least
                raise ServerError(
                    f"{there} of {least} nodes have come to job '{self._terms.job}' within --join-timeout "
                    f"{self._terms.join_timeout:g} s: {_hosts(self._nodes)}; start `het run` with --rdzv-id "
                    f"{self._terms.job} on {max(least - there, 1)} more"
                )
            pause()

    def leave(self, pause: Pause) -> None:
        """Gives the place back. The node that leads stays until the others have read the last word."""
        end = time.monotonic() + self._terms.timeout
        while self._leads() and len(self._nodes) > 1 and time.monotonic() < end:
            self.step("done")
            pause()
        with contextlib.suppress(ServerError):  # it expires by itself, too
            self._store.ask(self._key(self._place), "UNLINK", self._key(self._place))

    def _key(self, what: int | str) -> str:
        return f"het-run:{{{self._terms.job}}}:{what}"

    def _report(self, state: str, why: str) -> dict[str, Any]:
        return {**self._me, "round": self._round.id, "state": state, "why": why}

    def _write(self, place: int, state: str, why: str, *how: str) -> bool:
        text, key = json.dumps(self._report(state, why)), self._key(place)
        return bool(self._store.ask(key, "SET", key, text, *how, "PX", int(self._terms.timeout * 1000)))

    def _look(self) -> dict[int, dict[str, Any]]:
        found = {}
        for place in range(self._terms.most):
            if text := self._store.ask(self._key(place), "GET", self._key(place)):
                found[place] = json.loads(text)
        return found

    def _read_round(self) -> Round | None:
        text = self._store.ask(self._key("round"), "GET", self._key("round"))
        return Round(**json.loads(text)) if text else None

    def _leads(self) -> bool:
        return min(self._nodes, default=-1) == self._place

    def _follow(self, now: float) -> None:
        """Reads the round, or writes the next one."""
        found = self._read_round()
        there = {node["id"] for node in self._nodes.values()}
        if found is not None and found.members and not there & {member[0] for member in found.members}:
            self._old = found.id  # its nodes have all gone
        if found is not None and found.id == self._old:
            found = None
        if self._leads():
            found = self._next(found or Round(secrets.token_hex(8), "gather"), now)
            value, key = json.dumps(asdict(found)), self._key("round")
            self._store.ask(key, "SET", key, value, "PX", int(self._terms.timeout * 2000))
        self._round = found or self._round

    def _next(self, now: Round, time_now: float) -> Round:
        """What follows of a round and the states of the nodes."""
        nodes = [self._nodes[place] for place in sorted(self._nodes)]
        if now.state == "run":
            return self._judge(now, {node["id"]: node for node in nodes})
        if now.state == "gather" and all(node["state"] == "waiting" for node in nodes):
            settled = time_now - self._changed >= SETTLE_SECONDS
            if len(nodes) == self._terms.most or (len(nodes) >= self._terms.least and settled):
                members = [(node["id"], node["host"], node["nproc"]) for node in nodes]
                return replace(now, id=secrets.token_hex(8), state="run", members=members)
        return now

    def _judge(self, now: Round, nodes: dict[str, dict[str, Any]]) -> Round:
        """Whether a round goes on."""
        states = {member: nodes[member] for member, *_ in now.members if member in nodes}
        told = [one for one in states.values() if one["round"] == now.id]
        failed = [one["why"] for one in told if one["state"] == "failed"]
        lost = [host for member, host, _ in now.members if member not in nodes]
        if failed or lost:
            silence = f"is lost: no sign of it for {self._terms.timeout:g} s"
            why = failed[0] if failed else f"the node {lost[0]} {silence}"
            if now.failures >= self._terms.restarts:
                return replace(now, state="over", why=why)
            return self._again(now, why, now.failures + 1)
        if [one["state"] for one in told] == ["done"] * len(states):
            return replace(now, state="over", why="")
        new = [node["host"] for member, node in nodes.items() if member not in states]
        return self._again(now, f"the node {new[0]} has come", now.failures) if new else now

    def _again(self, now: Round, why: str, failures: int) -> Round:
        return Round(secrets.token_hex(8), "gather", now.members, now.number + 1, failures, why)


def _hosts(nodes: dict[int, dict[str, Any]]) -> str:
    return ", ".join(f"{node['host']} with {node['nproc']} processes" for node in nodes.values()) or "none"
