"""Counts the instructions that a cached row costs, and compares them with result.json.

    python benchmarks/instructions/run.py            # what `make test-all` runs
    python benchmarks/instructions/run.py --out      # writes the file

main.cc says what is counted. The counts hold for one compiler and one valgrind: with others the
program prints which, compares nothing and succeeds.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULT = Path(__file__).with_name("result.json")
PATHS = ("hit", "miss", "push")
TOLERANCE = 0.02


def output(*command: str) -> tuple[str, str]:
    """Standard output and error of a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)} failed: {done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def count(program: Path, path: str) -> tuple[str, float]:
    """The compiler of the program, and its instructions a row."""
    with tempfile.NamedTemporaryFile() as profile:
        valgrind = (
            "valgrind",
            "--tool=callgrind",
            "--collect-atstart=no",
            f"--callgrind-out-file={profile.name}",
        )
        out, err = output(*valgrind, str(program), path)
    compiler, rows = out.splitlines()
    collected = re.search(r"Collected : (\d+)", err)
    if collected is None:
        sys.exit(f"error: callgrind says no count: {err}")
    return compiler, round(int(collected[1]) / int(rows), 1)


def measure(program: Path) -> dict[str, Any]:
    """The content of the result file."""
    counts = {path: count(program, path) for path in PATHS}
    return {
        "command": "python benchmarks/instructions/run.py --out",
        "compiler": counts["hit"][0],
        "valgrind": output("valgrind", "--version")[0].strip(),
        "instructions_per_row": {path: counts[path][1] for path in PATHS},
    }


def main() -> None:
    """Compares, or writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out",
        type=Path,
        nargs="?",
        const=RESULT,
        help="write the counts of this machine; default: result.json",
    )
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "release" / "instructions")
    args = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("error: valgrind is missing. Remedy: apt-get install valgrind")
    now = measure(args.program)
    if args.out:
        args.out.write_text(json.dumps(now, indent=1) + "\n")
    known = json.loads(RESULT.read_text())
    for tool in ("compiler", "valgrind"):
        if now[tool] != known[tool]:
            print(f"skipped: {tool} is {now[tool]}, and the result was counted with {known[tool]}")
            return
    wrong = False
    for path in PATHS:
        before, after = known["instructions_per_row"][path], now["instructions_per_row"][path]
        wrong |= abs(after / before - 1) > TOLERANCE
        print(f"{path:5} {after:7.1f} a row; before {before:7.1f} ({after / before - 1:+.1%})")
    if wrong:
        sys.exit(
            f"error: a path differs by more than {TOLERANCE:.0%}. Remedy: find out why, or run "
            "python benchmarks/instructions/run.py --out if the change is meant"
        )


if __name__ == "__main__":
    main()
