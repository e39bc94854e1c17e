"""Checks which folder includes which: arrows of the tree point downward only.

    python tools/check_arrows.py [ROOT]

ops, capi -> kernels -> ps/client -> core <- ps/module, and within core each folder includes those that stand
before it in CORE. Prints file:line and the rule of every include that goes up; the exit status is their
presence.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = {".h", ".cc", ".cu"}
INCLUDE = re.compile(r'\s*#\s*include\s+"(het_tf/[^"]+)"')

CORE = "base row wire store cache client plan checkpoint device engine serve".split()

# What the files of a folder may include beside those of the folder itself; "core" stands for all of core.
# A folder that is not named here belongs to the longest one above it that is.
ALLOWED = {
    **{f"core/{folder}": [f"core/{lower}" for lower in CORE[:i]] for i, folder in enumerate(CORE)},
    "ps": ["core"],
    "ps/client": ["core", "ps"],
    "ps/module": ["core", "ps"],
    "kernels": ["core", "ps", "ps/client"],
    "kernels/cuda": ["core/base", "core/device"],
    "kernels/gpu": ["kernels"],
    "capi": ["core", "ps", "ps/client", "kernels"],
    "ops": [],
}
# The order of the packages of het_tf/python, lowest first.
PYTHON: list[str] = []


def folder_of(name: str) -> str | None:
    """The folder of ALLOWED that a file of het_tf/ belongs to; name: relative to it."""
    for parent in Path(name).parents:
        if parent.as_posix() in ALLOWED:
            return parent.as_posix()
    return None


def fault(name: str, included: str) -> str | None:
    """What is wrong with an include of one file of het_tf/ by another."""
    source, target = folder_of(name), folder_of(included)
    if source is None or target is None:
        place = name if source is None else included
        return f"{Path(place).parent} is no folder that tools/check_arrows.py knows; add it to ALLOWED"
    allowed = ALLOWED[source]
    if target in (source, *allowed) or (target.startswith("core/") and "core" in allowed):
        return None
    return f"{source} may include {', '.join(allowed) or 'nothing'} of het_tf, and {target} is none of it"


def main(root: Path = ROOT) -> int:
    """Prints one line for each fault; the exit status is their presence."""
    faults, includes = [], 0
    tree = root / "het_tf"
    for path in sorted(p for p in tree.rglob("*") if p.suffix in SUFFIXES):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if found := INCLUDE.match(line):
                includes += 1
                name = path.relative_to(tree).as_posix()
                if wrong := fault(name, found[1].removeprefix("het_tf/")):
                    faults.append(f"{path.relative_to(root)}:{number}: includes {found[1]}: {wrong}")
    print("\n".join(faults) or f"{includes} includes: all point downward")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(*[Path(argument) for argument in sys.argv[1:2]]))
