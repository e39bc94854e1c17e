"""Commands to the server that owns a key, whether there is one server, a cluster or Sentinels.

`Node` speaks to one server. The client of training (ext/ps/client/cluster.h) finds the owner of a slot, and
waits through a restart or a failover.
"""

import time
from typing import Any

from het_tf.ext.ps.python.address import Address
from het_tf.ext.ps.python.node import Refused, Servers, Unreachable

# Errors of a server that is about to be able: it loads, fails over, or a slot is moving.
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
        self._servers = Servers(address)

    def ask(self, key: str, *words: object, raw: bool = False) -> Any:
        """Sends one command to the server that owns `key`, and returns the answer, as `Node.ask`.

        After a lost connection it sends the command again, which may then be executed twice.

        Args:
          key: The key.
          *words: The command; bytes are sent as they are, others as text.
          raw: Returns bytes instead of str.

        Raises:
          Unreachable: No server answers within `seconds`.
          Refused: The server answered an error.
        """
        end = time.monotonic() + self._seconds
        while True:
            try:
                return self._servers.ask([words], key, self._timeout, raw)[0]
            except (Unreachable, Refused) as error:
                passing = not isinstance(error, Refused) or error.reply.startswith(_PASSING)
                if time.monotonic() >= end or not passing:
                    raise

    def close(self) -> None:
        """Closes the connections."""
        self._servers.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
