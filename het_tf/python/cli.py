"""The command `het`: its groups of commands, their arguments, exit status and errors (docs/commands.md).

A group such as `het ps` is a `Group` named `HET` in a module of its own, and a command a function of its
parsed arguments:

    HET = Group("Valkey or Redis servers that hold tables of het_tf.")

    @HET.command("down", "stop the servers of a directory", arg("--dir", type=local, required=True))
    def down(options: Options) -> int: ...

Only the module of the group that is called is imported: `het --help` needs none, `het ps` no TensorFlow.
"""

import argparse
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from het_tf._version import __version__
from het_tf.python import extensions
from het_tf.python.gone import told
from het_tf.python.show import console, say

Options = argparse.Namespace
Add = Callable[[Any], object]  # adds an argument to a parser
Run = Callable[[Options], int]

GROUPS = extensions.commands
EXIT = {
    0: "done",
    1: "something is wrong: a line says what",
    2: "wrong arguments",
    130: "ended by Ctrl-C",
    141: "nobody reads the output, as in `het ps status | head -1`",
}
_CTRL_C, _UNREAD = 130, 141
_ERRORS = (ValueError, RuntimeError, LookupError, ConnectionError, ImportError)  # printed without a traceback


class _Parser(argparse.ArgumentParser):
    """Its error about a command that went says what to use now."""

    def error(self, message: str) -> NoReturn:
        """See ArgumentParser.error."""
        word = re.search(r"invalid choice: '(\w+)'", message)
        super().error(message + (told(f"{self.prog} {word[1]}") if word else ""))


class Group:
    """The commands of one word, such as `het ps`.

    Args:
      description: The text of `--help`.
    """

    def __init__(self, description: str) -> None:
        self._description = description
        self._commands: list[tuple[str, str, str, tuple[Add, ...], Run]] = []

    def command(self, name: str, summary: str, *arguments: Add, more: str = "") -> Callable[[Run], Run]:
        """Returns a decorator that makes a function a command.

        Args:
          name: Its name; "": the group has no commands, and is one.
          summary: A line of `--help`.
          *arguments: Its arguments, as of `arg`.
          more: Further sentences.
        """

        def add(run: Run) -> Run:
            self._commands.append((name, summary, more, arguments, run))
            return run

        return add

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Adds the description and the commands to the group's parser."""
        parser.description = self._description
        commands = parser.add_subparsers(required=True, metavar="COMMAND") if self._commands[0][0] else None
        for name, summary, more, arguments, run in self._commands:
            text = f"{summary[0].upper()}{summary[1:]}. {more}".rstrip()
            sub = parser if commands is None else commands.add_parser(name, help=summary, description=text)
            for add in arguments:
                add(sub)
            sub.set_defaults(run=run)


def arg(*names: str, **how: Any) -> Add:
    """Returns an argument: those of `ArgumentParser.add_argument`."""
    return lambda parser: parser.add_argument(*names, **how)


def either(*arguments: Add) -> Add:
    """Returns arguments of which a user gives at most one."""

    def add(parser: argparse.ArgumentParser) -> None:
        group = parser.add_mutually_exclusive_group()
        for one in arguments:
            one(group)

    return add


JSON = arg("--json", action="store_true", help="print JSON, for programs")


def answer(options: Options, document: object, text: object) -> None:
    """Prints the result of a command that has the argument JSON.

    Args:
      options: Its arguments.
      document: The result for programs.
      text: The result for people: text, or what rich prints.
    """
    if options.json:
        print(json.dumps(document, indent=1), flush=True)
    elif isinstance(text, str):
        print(text, flush=True)
    else:
        console().print(text, soft_wrap=True)


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


def parser(*groups: str) -> argparse.ArgumentParser:
    """Returns the command line, with the commands of some of GROUPS."""
    status = "\n".join(f"  {number:3}  {text}" for number, text in EXIT.items())
    top = _Parser(
        prog="het", description="Commands of het_tf. `het GROUP --help` explains those of a group.",
        epilog=f"exit status:\n{status}", formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    top.add_argument("--version", action="version", version=f"het_tf {__version__}")
    subs = top.add_subparsers(required=True, metavar="GROUP", title="groups")
    for name, (module, summary) in GROUPS.items():
        sub = subs.add_parser(name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter)
        if name in groups:
            group = importlib.import_module(module).HET
            if name in extensions.more_commands:
                importlib.import_module(extensions.more_commands[name])
            group.add_to(sub)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, and prints errors as lines. Of TensorFlow's log it shows only warnings.

    Args:
      arguments: Its words, such as ["ps", "up"]. None: those of the process.

    Returns:
      The exit status, one of EXIT.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] != ["run"]:  # its programs have a log of their own
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        try:
            return _status(words)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BrokenPipeError:  # Python's flush at exit would complain of it
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return _UNREAD
    except KeyboardInterrupt:
        say("")
        return _CTRL_C


def _status(words: list[str]) -> int:
    options = parser(*words[:1]).parse_args(words)
    try:
        return int(options.run(options))
    except (BrokenPipeError, KeyError, IndexError):  # the last two are no refusals, but faults of a program
        raise
    except _ERRORS as error:
        text = str(error)
    except OSError as error:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    except MemoryError as error:
        text = f"out of memory ({error})"
    say("\n".join(f"het {words[0]}: {line}" for line in text.splitlines()))
    return 1
