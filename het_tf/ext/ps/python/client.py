"""Commands to the server that owns a key, whether there is one server or a cluster.

`Node` speaks to one server. A `Client` learns from MOVED which server of a cluster owns a slot, so it needs
no rights but those of its commands, and it waits through a restart or a failover.
"""

import time
from typing import Any

from redis.crc import key_slot

from het_tf.ext.ps.python.address import Address, Place
from het_tf.ext.ps.python.node import Node, Refused, Unreachable, primary

_MOST_REDIRECTIONS = 8  # of one attempt
_PAUSE_SECONDS = 0.1  # between attempts
# Answers of a server that is about to be able: it loads, fails over, or a slot is moving.
_PASSING = ("LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "READONLY")


class Client:
    """Connections to the servers of an address, opened when needed. For one thread at a time.

    Args:
      address: One server, nodes of a cluster, or Sentinels.
      seconds: How long `ask` tries again while the server does not answer or cannot yet.
      timeout: Seconds for connecting, and for every answer.
    """

    def __init__(self, address: Address, seconds: float = 60.0, timeout: float = 5.0) -> None:
        self.address = address
        self._seconds = seconds
        self._timeout = timeout
        self._nodes: dict[Place, Node] = {}
        self._owners: dict[int, Place] = {}  # slot -> its server, as far as known
        # Servers that did not answer, or are replicas: the next one is asked for unknown slots.
        self._asked = 0

    def ask(self, key: str, *words: object, raw: bool = False) -> Any:
        """Sends one command to the server that owns `key`, and returns the answer, as `Node.ask`.

        After a lost connection it sends the command again, which may then be executed twice.

        Raises:
          Unreachable: No server answers within `seconds`.
          Refused: The server answered an error, or for `seconds` one that should have passed.
        """
        slot = key_slot(key.encode())
        end = time.monotonic() + self._seconds
        while True:
            try:
                return self._ask(slot, words, raw)
            except Unreachable:
                self._owners.pop(slot, None)
                self._asked += 1
                if time.monotonic() >= end:
                    raise
            except Refused as error:
                if not error.reply.startswith(_PASSING) or time.monotonic() >= end:
                    raise
                self._asked += error.reply.startswith("READONLY")  # the next server may be the primary
            time.sleep(_PAUSE_SECONDS)

    def _ask(self, slot: int, words: tuple[object, ...], raw: bool) -> Any:
        """One attempt, which follows redirections."""
        node = self._node(self._owners.get(slot) or self._any())
        asking = False
        for _ in range(_MOST_REDIRECTIONS):
            try:
                if asking:
                    node.ask("ASKING")
                return node.ask(*words, raw=raw)
            except Refused as error:
                kind, _, where = error.reply.partition(" ")
                if kind not in ("MOVED", "ASK"):
                    raise
                place = _place(where.partition(" ")[2], node.place)
                asking = kind == "ASK"
                if not asking:
                    self._owners[slot] = place
                node = self._node(place)
        raise Unreachable(f"{node.place}: {_MOST_REDIRECTIONS} redirections for slot {slot} have no end")

    def _any(self) -> Place:
        """A server to ask for a slot whose owner is unknown."""
        if self.address.service:
            return primary(self.address, self._timeout).places[0]
        known = list(dict.fromkeys([*self.address.places, *self._nodes]))
        return known[self._asked % len(known)]

    def _node(self, place: Place) -> Node:
        if place not in self._nodes:
            self._nodes[place] = Node(place, self.address, self._timeout)
        return self._nodes[place]

    def close(self) -> None:
        """Closes the connections."""
        for node in self._nodes.values():
            node.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _place(text: str, asked: Place) -> Place:
    """HOST:PORT of a redirection; without a host it is the host that was asked."""
    host, _, port = text.rpartition(":")
    if not port.isdigit():
        raise Unreachable(f"{asked} redirects to {text[:80]!r}, which is no HOST:PORT")
    return Place(host.strip("[]") or asked.host, int(port))
