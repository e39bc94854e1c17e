"""What the commands het-ckpt, het-data, het-plan and het-ps share: how they are called, end, and show."""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial

Command = Callable[..., argparse.ArgumentParser]
Count = Callable[[int], None]


def parser(
    program: str, description: str, commands: Iterable[Callable[[Command], None]]
) -> argparse.ArgumentParser:
    """The command line of a program.

    Args:
      program: Its name.
      description: What `--help` says.
      commands: Each adds one command, or some: it is given a function of a name, a text, and more of it.
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


def say(text: str) -> None:
    """A line about what is done, on stderr: stdout is for results."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def bar(what: str) -> Iterator[tuple[Callable[[int | None], None], Count]]:
    """A progress bar on stderr, where that is a terminal; stdout is for results.

    Gives two functions: how much there will be (None: not known), and how much more is done.
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


def show(what: object) -> None:
    """A result of rich, on stdout; a pipe has no width, so nothing is cut off there."""
    from rich.console import Console

    console = Console()
    (console if console.is_terminal else Console(width=400)).print(what, soft_wrap=True)


def run(program: str, action: Callable[[], int], interrupted: int, *expected: type[Exception]) -> int:
    """Runs a command, and says what is wrong in lines. Returns the exit status.

    Args:
      program: Its name, which begins every line.
      action: Returns the exit status.
      interrupted: The exit status after Ctrl-C.
      *expected: Errors whose text is all that there is to say.
    """
    try:
        status = int(action())
        sys.stdout.flush()
        return status
    except expected as error:
        say("\n".join(f"{program}: {line}" for line in str(error).splitlines()))
    except BrokenPipeError:  # as in `het-ckpt inspect | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what Python flushes at its end
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        say(f"{program}: {where}{error.strerror or error}")
    except MemoryError as error:
        say(f"{program}: out of memory ({error})")
    except KeyboardInterrupt:
        say("")
        return interrupted
    return 1


def number(value: float) -> str:
    """A count in at most five characters: 950, 12.3k, 4.56M."""
    for unit in ("", "k", "M", "G"):
        if value < 1000:
            return f"{value:.3g}{unit}" if unit else f"{value:.0f}"
        value /= 1000
    return f"{value:.3g}T"


def size(value: float) -> str:
    """Bytes: 12.3 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1024:
            return f"{value:.3g} {unit}" if unit != "B" else f"{value:.0f} B"
        value /= 1024
    return f"{value:.3g} TB"
