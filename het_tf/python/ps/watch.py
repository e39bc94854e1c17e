"""`het-ps up --watch`: servers of a directory that end are started again, until `het-ps down`.

A server ends by itself where it may not go on: with `appendfsync always` one that cannot write its
append-only file, since it could not keep what it acknowledges.
"""

import time
from collections.abc import Callable
from pathlib import Path

from het_tf.python.ps import redis_server, servers
from het_tf.python.ps.errors import ServerError
from het_tf.python.ps.layout import need

_LOOK_SECONDS = 0.5
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # before a start; it doubles while servers end again


def watch(directory: Path, timeout: float, say: Callable[[str], None]) -> None:
    """Starts again what ends. Returns when `het-ps down` has been called.

    Args:
      directory: Of servers that `het-ps up` has started.
      timeout: Seconds to wait for each server that is started.
      say: Called with what ends, and why, and with what is started.

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
        ) as error:  # also of a disk that is still full: files are written to start
            say(f"not started: {error}")
    say("`het-ps down` was called; the watch is over")
