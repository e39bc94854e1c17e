"""Figures in prose are those of JSON files.

    python tools/figures.py           # a line for each figure that is not what its file says
    python tools/figures.py --write   # writes what the files say

A document ends with a comment that says where its figures come from, one a line: the figure as the text has
it, the file, the way to a number in it, and its format:

    <!-- figures
    90 % = benchmarks/traffic/result.json sweeps dims dim=16 bytes_saved .0%
    -->

A step of the way is a key or, in a list, the values that one entry has and no other, in quotes if it has
spaces. The format is Python's; a space goes before its percent sign, and a leading `-` negates the number.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FIGURES = re.compile(r"<!-- figures\n(.*?)-->\n*\Z", re.DOTALL)


def _entry(entries: list[Any], step: str) -> Any:
    """Returns the one entry of a list that a step selects. ValueError if there is none, or several."""
    wanted = [pair.partition("=")[::2] for pair in step.split(",")]
    found = [entry for entry in entries if all(str(entry.get(key)) == value for key, value in wanted)]
    if len(found) != 1:
        raise ValueError(f"{len(found)} entries have {step}")
    return found[0]


def figure(source: str, root: Path = ROOT) -> str:
    """Returns the text of a figure; `source` is the file, the steps and the format. Else ValueError."""
    path, *steps, form = shlex.split(source)
    try:
        value = json.loads((root / path).read_text())
        for step in steps:
            value = _entry(value, step) if isinstance(value, list) else value[step]
        value = -value if form.startswith("-") else value
        return format(value, form.removeprefix("-")).replace("%", " %")
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{source}: {error}") from error


def renewed(text: str, root: Path = ROOT) -> tuple[str, list[str]]:
    """Returns the text with the figures of the files, and a line for each that is wrong."""
    comment = FIGURES.search(text)
    if comment is None:
        return text, ["the comment with the figures is not its end"] if "<!-- figures" in text else []
    body, lines, faults = text[: comment.start()], [], []
    for line in comment[1].splitlines():
        said, _, source = line.partition(" = ")
        at = re.compile(rf"(?<![\d.]){re.escape(said)}(?![\d.]*\d)".replace(r"\ ", r"\s"))
        try:
            now = figure(source, root)
        except ValueError as error:
            faults.append(str(error))
            now = said
        if not at.search(body):
            faults.append(f"the text has no {said!r}, which is to come from {source}")
        if now != said:
            faults.append(f"{said!r} is {now!r} in {source}")
            body = at.sub(now, body)
        lines.append(f"{now} = {source}\n")
    return f"{body}<!-- figures\n{''.join(lines)}-->\n", faults


def documents() -> list[Path]:
    """Returns the documents that say where figures come from."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    found = [ROOT / name for name in names if (ROOT / name).exists()]
    return [path for path in found if "<!-- figures" in path.read_text()]


def main() -> int:
    """Checks, or writes with --write. The exit status says whether a figure was wrong and is so still."""
    wrong = False
    for path in documents():
        text, faults = renewed(path.read_text())
        if "--write" in sys.argv[1:]:
            path.write_text(text)
            faults = renewed(text)[1]
        for fault in faults:
            print(f"{path.relative_to(ROOT)}: {fault}")
        wrong = wrong or bool(faults)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
