"""Figures in prose are those of JSON files.

    python tools/figures.py           # a line for each figure that is not what its file says
    python tools/figures.py --write   # writes what the files say

A figure stands between two comments, which name a file, the way to a number in it, and its format:

    <!-- figure benchmarks/traffic/result.json sweeps dims dim=16 bytes_saved .0% -->90 %<!-- end -->

A step of the way is a key or, in a list, the values that one entry has and no other. The format is Python's;
a space goes before its percent sign, and a leading `-` negates the number.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = (
    "README.md",
    "docs/concepts.md",
    "docs/optimizers.md",
    "docs/protocol.md",
    "benchmarks/defaults/README.md",
    "benchmarks/instructions/README.md",
)
FIGURE = re.compile(r"(<!--\s+figure\s+([^>]*?)\s+-->)([^<]*)(<!--\s+end\s+-->)")


def _entry(entries: list[Any], step: str) -> Any:
    """Returns the one entry of a list that a step selects. ValueError if there is none, or several."""
    wanted = [pair.partition("=")[::2] for pair in step.split(",")]
    found = [entry for entry in entries if all(str(entry.get(key)) == value for key, value in wanted)]
    if len(found) != 1:
        raise ValueError(f"{len(found)} entries have {step}")
    return found[0]


def figure(marker: str, root: Path = ROOT) -> str:
    """Returns the text of a figure; `marker` is the file, the steps and the format. Else ValueError."""
    path, *steps, form = marker.split()
    try:
        value = json.loads((root / path).read_text())
        for step in steps:
            value = _entry(value, step) if isinstance(value, list) else value[step]
        value = -value if form.startswith("-") else value
        return format(value, form.removeprefix("-")).replace("%", " %")
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{marker}: {error}") from error


def renewed(text: str, root: Path = ROOT) -> tuple[str, list[str]]:
    """Returns the text with the figures of the files, and a line for each one that was another."""
    faults = []

    def replace(match: re.Match[str]) -> str:
        try:
            now = figure(match[2], root)
        except ValueError as error:
            faults.append(str(error))
            return match[0]
        if now != match[3]:
            faults.append(f"{match[3]!r} is {now!r} in {' '.join(match[2].split())}")
        return f"{match[1]}{now}{match[4]}"

    new = FIGURE.sub(replace, text)
    if len(FIGURE.findall(text)) != len(re.findall(r"<!--\s+figure\s", text)):
        faults.append("a figure has no <!-- end -->, or one that is not next to it")
    return new, faults


def main() -> int:
    """Checks, or writes with --write. The exit status says whether a figure was wrong and is so still."""
    wrong = False
    for name in DOCUMENTS:
        text = (ROOT / name).read_text()
        new, faults = renewed(text)
        if "--write" in sys.argv[1:]:
            (ROOT / name).write_text(new)
            faults = renewed(new)[1]
        for fault in faults:
            print(f"{name}: {fault}")
        wrong = wrong or bool(faults)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
