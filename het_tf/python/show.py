"""Shared by the commands het-ckpt, het-data, het-ps, ...: arguments, exit status and output."""

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

Command = Callable[..., argparse.ArgumentParser]
Count = Callable[[int], None]


def parser(
    program: str, description: str, commands: Iterable[Callable[[Command], None]]
) -> argparse.ArgumentParser:
    """Returns the command line of a program.

    Args:
      program: Its name.
      description: The text of `--help`.
      commands: Each adds commands; its argument is a function of a name, a summary, and details.
    """
    top = argparse.ArgumentParser(
        prog=program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    subs = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, more: str = "") -> argparse.ArgumentParser:
        return subs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}. {more}".rstrip())

    for add in commands:
        add(command)
    return top


def within(kind: type, low: float, high: float, what: str) -> Callable[[str], Any]:
    """Returns the type of an argument: a number from `low` to `high`. Refuses others: 'x' is not `what`."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"'{text}' is not {what}")
        return value

    return read


at_least_1 = within(int, 1, 1 << 50, "a whole number of 1 or more")
at_least_0 = within(int, 0, 1 << 50, "a whole number of 0 or more")


def add_json(sub: argparse.ArgumentParser) -> None:
    """Adds the argument --json."""
    sub.add_argument("--json", action="store_true", help="print JSON, for programs")


def say(text: str) -> None:
    """Prints progress on stderr: stdout is for results."""
    print(text, file=sys.stderr, flush=True)


def log(program: str) -> Callable[[str], None]:
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
            raise  # for `run`; rich would end the process

    return Piped() if Console().is_terminal else Piped(width=400)


def show(what: object) -> None:
    """Prints a result of rich on stdout."""
    console().print(what, soft_wrap=True)


def run(
    parser: argparse.ArgumentParser,
    arguments: list[str] | None,
    action: Callable[[argparse.Namespace], int],
    *expected: type[Exception],
) -> int:
    """Runs a command, and prints errors as lines. Of TensorFlow's log it shows only warnings.

    Args:
      parser: The command line. Its name is the begin of every line.
      arguments: As in sys.argv[1:]; None: these.
      action: Runs the command with the parsed arguments; returns the exit status.
      *expected: Errors to print without a traceback.

    Returns:
      The exit status. 130 after Ctrl-C; 141 if nobody reads on, as in `het-ckpt inspect | head -1`.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        return _status(parser.prog, lambda: action(parser.parse_args(arguments)), *expected)
    except BrokenPipeError:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BrokenPipeError:  # Python's flush at exit would complain of it
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 128 + signal.SIGPIPE


def _status(program: str, action: Callable[[], int], *expected: type[Exception]) -> int:
    try:
        try:
            return int(action())
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except expected as error:
        say("\n".join(f"{program}: {line}" for line in str(error).splitlines()))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        say(f"{program}: {where}{error.strerror or error}")
    except MemoryError as error:
        say(f"{program}: out of memory ({error})")
    except KeyboardInterrupt:
        say("")
        return 130
    return 1


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
