"""`het ps up --watch`: restarts servers of a directory that end, until `het ps down`.

A server ends by itself when it must not go on: with `appendfsync always` it ends if it cannot write its
append-only file, since it could not keep the pushes that it acknowledges.
"""

import time
from collections.abc import Callable
from pathlib import Path

from het_tf.ext.ps.python import redis_server, servers
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.layout import need

_LOOK_SECONDS = 0.5
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # before a start; doubles while servers end again


def watch(directory: Path, timeout: float, say: Callable[[str], None]) -> None:
    """Restarts servers that end. Returns after `het ps down`.

    Args:
      directory: Directory of servers that `het ps up` has started.
      timeout: Seconds to wait for each server that is started.
      say: Called with each server that ends, the reason, and each start.

    Raises:
      ServerError: The directory has no servers any more.
    """
    pause, begun = _FIRST_PAUSE, 0.0
    while (layout := need(directory)).wanted:
        ended = [member for member in layout.members if not member.pid()]
        if not ended:
            if time.monotonic() - begun > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            time.sleep(_LOOK_SECONDS)
            continue
        for member in ended:
            why = redis_server.last_words(member.log) or "its log does not say why"
            say(f"{member.name} has ended: {why}; it is started again in {pause:g} s")
        time.sleep(pause)
        pause, begun = min(2 * pause, _LONGEST_PAUSE), time.monotonic()
        try:
            servers.start_again(directory, timeout, say)
        except (
            ServerError,
            OSError,
        ) as error:  # also if the disk is still full: a start writes files
            say(f"not started: {error}")
    say("`het ps down` was called; the watch is over")
