"""Commands in texts: held against the parsers of the programs."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import re
import shlex
from typing import Any

from calls.texts import ANY, ROOT, Text
from het_tf.python import cli

SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
LINE = re.compile(r"^ {2,}(?:\$ )?((?:het|python3?) .*)$", re.MULTILINE)
PROSE = re.compile(r"(?<![\w/.-])het ([a-z]+) ([a-z][a-z-]+)((?: --?[a-z][\w-]*(?:[ =][\w.:/]+)?)*)")
PROGRAMS = ("het", "make", "python", "python3")


@functools.cache
def het() -> argparse.ArgumentParser:
    """The parser of the package's command, with all groups."""
    return cli.parser(*cli.GROUPS)


@functools.cache
def targets() -> set[str]:
    """Those of the Makefile."""
    text = (ROOT / "Makefile").read_text()
    return set(re.findall(r"^([a-z][a-z0-9-]*):", text, re.MULTILINE))


def read(text: Text) -> tuple[int, list[str]]:
    """Returns how many commands were looked at, and the faults."""
    faults: list[str] = []
    prose = re.sub(r"\s*\\\n\s*", " ", SPAN.sub("", text.prose))  # one line of a shell
    found = [*SPAN.findall(text.prose), *text.shell, *(usage(line) for line in LINE.findall(prose))]
    count = 0
    for one in found:
        for words in commands(one):
            if words[0] in PROGRAMS:
                count += 1
                why = refused(words)
                if why:
                    faults.append(f"`{' '.join(words)}`: {why}")
    groups = subcommands(het())
    for group, command, options in PROSE.findall(prose):
        if group in groups and command in subcommands(groups[group]):
            count += 1
            words = ["het", group, command, *options.split()]
            if why := refused(words):
                faults.append(f"`{' '.join(words)}`: {why}")
    return count, faults


def usage(line: str) -> str:
    """A line of a list of commands without what it says of the command."""
    return re.split(r"\s{2,}", line)[0]


def commands(line: str) -> list[list[str]]:
    """The commands of a line of a shell, each as words; the notation of usages is undone."""
    line = re.sub(r"\s*\n\s*", " ", re.sub(r"\s*\\\n", " ", line).strip())
    line = re.sub(r"[\[\]]|\.\.\.", " ", line.replace("|--", " --"))
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        words = line.split()
    found: list[list[str]] = [[]]
    for word in words:
        if word in ("|", "||", "&&", "&", ";", ">", ">>", "2>", "<") or word.startswith((">", "2>")):
            found.append([])
        else:
            found[-1].append(word.rstrip(";.,:"))
            if word.endswith(";"):
                found.append([])
    begun = []
    for words in found:
        while words and (re.match(r"^[A-Z_0-9]+=", words[0]) or words[0] in ("sudo", "time", "exec")):
            words = words[1:]
        if words and words[0].rpartition("/")[2] in PROGRAMS:
            words = [words[0].rpartition("/")[2], *words[1:]]
        if len(words) > 1:
            begun.append(words)
    return begun


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """By name; {} if a program has none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def refused(words: list[str]) -> str | None:
    """Why a command is none; None if it is one."""
    name, *rest = words
    if name == "make":
        wanted = [word for word in rest if not re.match(r"[A-Z_0-9]+=", word)]
        sentence = len(wanted) != 1 or not re.fullmatch(r"[a-z][a-z0-9-]+", wanted[0])
        return None if sentence or wanted[0] in targets() else f"there is no target {wanted[0]!r}"
    if name.startswith("python"):
        return _script(rest)
    parser = het()
    while rest and not rest[0].startswith("-") and (subs := subcommands(parser)):
        if rest[0] not in subs:
            asked = re.fullmatch(r"[A-Z_]+|\{?_?[a-z,|]+\}?", rest[0]) and ("," in rest[0] or "|" in rest[0])
            wild = asked or rest[0].isupper() or rest[0] == ANY
            return None if wild else f"there is no {parser.prog} {rest[0]}"
        parser, rest = subs[rest[0]], rest[1:]
    return _against(parser, rest)


def _against(parser: argparse.ArgumentParser, words: list[str]) -> str | None:
    options: dict[str, Any] = parser._option_string_actions
    room: float = 0
    for action in parser._actions:
        if not action.option_strings:
            several = action.nargs in ("*", "+") or action.nargs is argparse.REMAINDER
            room += float("inf") if several else action.nargs if isinstance(action.nargs, int) else 1
    program = any(one.nargs == argparse.PARSER and not subcommands(parser) for one in parser._actions)
    given = list(words)
    while given:
        word = given.pop(0)
        if not re.match(r"--?[a-zA-Z]", word):
            if program:
                return None  # what follows are its own words
            room -= 1
            continue
        option, equal, value = word.partition("=")
        option = option.rstrip(",.:")
        action = options.get(option)
        if action is None:
            return f"{parser.prog} has no option {option}"
        if action.nargs == 0:
            if equal:
                return f"{option} takes no value"
            continue
        values = [value] if equal else []
        if not equal and given and not re.match(r"--?[a-zA-Z]", given[0]):
            values.append(given.pop(0))
        if action.nargs in ("*", "+") or isinstance(action.nargs, int):
            while (
                given
                and not given[0].startswith("-")
                and (action.nargs in ("*", "+") or len(values) < action.nargs)
            ):
                values.append(given.pop(0))
        for one in values:
            if why := _value(action, one):
                return f"{option} {one}: {why}"
    return f"{parser.prog} takes fewer words" if room < 0 else None


def _value(action: argparse.Action, text: str) -> str | None:
    """Why an option does not take a value; values in capitals and the like stand for any."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.:/_-]*", text) or ANY in text:
        return None
    if action.choices is not None:
        return None if text in map(str, action.choices) else f"not one of {list(action.choices)}"
    if re.search(r"\d", text) and callable(action.type):
        try:
            action.type(text)
        except (argparse.ArgumentTypeError, ValueError) as error:
            return str(error)
    return None


def _script(words: list[str]) -> str | None:
    """`python FILE ...` and `python -m MODULE ...`."""
    while words and words[0] in ("-u", "-W", "-X"):
        words = words[1:] if words[0] == "-u" else words[2:]
    if len(words) < 2 and words[:1] in ([], ["-m"]):
        return None
    if words[0] == "-m":
        if not words[1].startswith("het_tf"):
            return None
        try:
            found = importlib.util.find_spec(words[1])
        except ModuleNotFoundError:
            found = None
        return None if found else f"there is no module {words[1]}"
    if "/" not in words[0]:
        return None  # the user's own
    path = ROOT / words[0]
    if not path.exists():
        return f"there is no {words[0]}"
    known = "".join(one.read_text() for one in path.parent.glob("*.py"))
    options = [word.partition("=")[0] for word in words[1:] if re.match(r"--[a-z]", word)]
    wrong = [option for option in options if f'"{option}"' not in known and f"'{option}'" not in known]
    return f"{words[0]} has no option {wrong[0]}" if wrong else None
