"""What a rank writes: passed on at once, and the end of it kept for the message of its failure."""

import os
import re
from pathlib import Path
from typing import IO

_CHUNK = 1 << 16
_KEPT = 1 << 16  # bytes of the end
_MOST_LINES = 20  # of a message behind its first line
_FRAME = re.compile(r'  File "(.+)", line (\d+)')
_GRAPH = "Graph execution error:"
_CALLBACK = "Traceback (most recent call last):"  # JAX: an error's message is the traceback of a callback
_LEFT = re.compile(r"\brank (\d+) has ended, but this rank waits for it")  # ext/workers/cc/mesh.cc
_LIBRARIES = re.compile(r"/(site|dist)-packages/|/lib/python\d|<frozen")


class Output:
    """One stream of a rank.

    Whole lines pass, so that those of several ranks do not mix, without what a bar has overwritten. Where the
    prefix is None bytes pass as they come: a bar that returns to the beginning of its line looks right.

    Args:
      source: The reading end of a pipe.
      terminal: The file descriptor that it goes to; -1: none.
      prefix: Stands in front of each line there, or None.
      log: A file that it goes to as well.
    """

    def __init__(self, source: IO[bytes], terminal: int, prefix: bytes | None, log: Path | None) -> None:
        os.set_blocking(source.fileno(), False)
        self.source = source
        self.kept = bytearray()
        self._terminal = terminal
        self._prefix = prefix
        self._log = open(log, "ab", buffering=0) if log is not None else None
        self._line = bytearray()

    def read(self) -> bool:
        """Passes on what is there. Returns whether more may follow."""
        try:
            data = os.read(self.source.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        self.kept += data
        del self.kept[:-_KEPT]
        if self._log is not None:
            self._log.write(data)
        if self._terminal >= 0:
            self._show(data)
        return bool(data)

    def close(self) -> None:
        """Passes on the rest, also a line without an end. A process that still writes does not hold it up."""
        while self.read():
            pass
        if self._line:
            self._show(b"\n")
        self.source.close()
        if self._log is not None:
            self._log.close()

    def _show(self, data: bytes) -> None:
        if self._prefix is not None:
            self._line += data
            *lines, rest = bytes(self._line).split(b"\n")
            if len(rest) > _CHUNK:
                lines, rest = [*lines, rest], b""
            self._line = bytearray(rest)
            data = b"".join(
                b"%s%s\n" % (self._prefix, line.rstrip(b"\r").rpartition(b"\r")[2]) for line in lines
            )
        while data:
            data = data[os.write(self._terminal, data) :]


def left_by(kept: bytes) -> int | None:
    """Returns the rank of which a failed one says that it has ended; None: it says no such thing.

    Args:
      kept: As in `last_words`.
    """
    found = _LEFT.search("\n".join(last_words(kept)))
    return int(found[1]) if found else None


def last_words(kept: bytes) -> tuple[str, str]:
    """Returns the reason of a failure in one line, and its traceback; "" where there is none.

    Args:
      kept: The end of what the rank wrote to stderr.
    """
    lines = kept.decode(errors="replace").splitlines()
    begin = max((i for i, line in enumerate(lines) if line.startswith("Traceback (most")), default=-1)
    if begin < 0:
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), ""), ""
    end = begin + 1
    while end < len(lines) and lines[end].startswith(" "):
        end += 1
    message = lines[end:]
    if message and message[0].endswith(_GRAPH):  # TensorFlow; the code that made the op, and then the reason
        last = max((i for i, line in enumerate(message) if _FRAME.match(line)), default=0)
        told = [line for line in message[last + 1 :] if line.strip()]
        message = [message[0].removesuffix(_GRAPH) + (told[0] if told else _GRAPH), *told[1:]]
    elif message and message[0].endswith(_CALLBACK):
        told = [line for line in message[1:] if line.strip() and not line.startswith(" ")]
        message = [message[0].removesuffix(_CALLBACK) + (told[0] if told else _CALLBACK), *told[1:]]
    block = lines[begin:end] + message[: 1 + _MOST_LINES]
    frames = [frame for line in lines[begin:end] if (frame := _FRAME.match(line))]
    own = [frame for frame in frames if not _LIBRARIES.search(frame[1])] or frames
    place = f" ({os.path.basename(own[-1][1])}, line {own[-1][2]})" if own else ""
    return (message[0][:200] if message else "") + place, "\n".join(block)
