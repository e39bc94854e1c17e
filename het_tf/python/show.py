"""How commands show progress, numbers, sizes and dates."""

import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

Count = Callable[[int], None]
Say = Callable[[str], None]


def say(text: str) -> None:
    """Prints progress on stderr: stdout is for results."""
    print(text, file=sys.stderr, flush=True)


def log(program: str) -> Say:
    """Returns a function that prints lines as `say` does, with the time in front."""
    return lambda text: say(f"{date(time.time())} {program}: {text}")


def until_signal() -> Callable[[], bool]:
    """Keeps SIGTERM and Ctrl-C from ending the process. Returns a function: whether one has come."""
    came = list[int]()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda number, _: came.append(number))
    return lambda: bool(came)


@contextlib.contextmanager
def bar(what: str) -> Iterator[tuple[Callable[[int | None], None], Count]]:
    """Shows a progress bar on stderr if that is a terminal; stdout is for results.

    Yields two functions: one sets the total (None: unknown), the other adds progress.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    ) as progress:  # fmt: skip
        task = progress.add_task(what, total=None)
        yield lambda total: progress.update(task, total=total), partial(progress.advance, task)


def console() -> Any:
    """Returns rich's console on stdout; it does not cut lines for a pipe, which has no width."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise  # for `cli.main`; rich would end the process

    return Piped() if Console().is_terminal else Piped(width=400)


def number(value: float) -> str:
    """Formats a count in at most five characters: 950, 12.3k, 4.56M."""
    return _scaled(value, ("", "k", "M", "G", "T"))


def size(value: float) -> str:
    """Formats bytes: 12.3 MB. Units are powers of 1000 everywhere, as those of disks and links."""
    return _scaled(value, (" B", " kB", " MB", " GB", " TB"))


def _scaled(value: float, units: Sequence[str]) -> str:
    step = 0
    while value >= 999.5 and step < len(units) - 1:
        value, step = value / 1000, step + 1
    return f"{value:.3g}{units[step]}" if step else f"{value:.0f}{units[0]}"


def when(value: Any) -> str:
    """Formats a JSON value: a number that may be seconds since 1970 (from 2001 on) as `date`."""
    is_time = isinstance(value, int | float) and 1e9 <= value < 4e9
    return date(value) if is_time else json.dumps(value)


def date(seconds: float) -> str:
    """Formats seconds since 1970 as a date and time of ISO 8601, in UTC: 2026-03-01 12:00:00Z."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):  # a number of the user's, beyond the calendar's years
        return f"{seconds:g}"
