"""Writes the tables of benchmarks/*/result.json into documents, and has what the programs share.

    python benchmarks/report.py            # writes; --check: names the documents that are not up to date

A document says in a comment which figures it has, and what stands between that and `<!-- end -->` is written:

    <!-- table traffic sweeps.default workers=8 bound=0|30
    bound | {bound}; bytes saved | {bytes_saved:.1%} -->

This is a table of benchmarks/traffic/result.json: the records at a path that have these values, and of each
column the head and the cells, by str.format. `*` in a path stands for every key; these are {0}, {1}, ... A
head with braces makes a column for each of its values. `<!-- goals traffic -->` says which goals are missed,
and `<!-- run traffic -->` the command, the machine and the versions. "defaults/tails" is another file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import string
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BLOCK = re.compile(r"(<!-- (table|goals|run) (.*?)-->)(.*?)(<!-- end -->)", re.DOTALL)
UNITS = {"k": 1e-3, "M": 1e-6, "m": 1e3, "u": 1e6, "b": 8e-6}
SIGNS = {"<=": "at most", ">=": "at least"}
PLANNED_BY = (
    *("criteo_like", "many", "packages"),
    *("adagrad", "many_adagrad", "thousand", "planned", "packages_adagrad"),
    *("Adagrad", "SGD", "FTRL", "Adam"),
)
"""Parts of the accuracy that het plan quotes: one pass of clicks, pairs with a long tail."""

Figures = dict[str, Any]
Record = tuple[tuple[str, ...], Figures]
"""The keys that stood for `*`, and the figures."""


# --- what programs share --------------------------------------------------------------------------


def goal(name: str, value: float, sign: str, limit: float) -> Figures:
    """Returns a goal of a result; the sign is "<=" or ">="."""
    met = value <= limit if sign == "<=" else value >= limit
    return {"name": name, "sign": sign, "limit": limit, "value": value, "met": bool(met)}


def processor() -> str:
    """Returns the processor's name."""
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def machine() -> Figures:
    """Returns where a program has run."""
    return {"processor": processor(), "cores": os.cpu_count(), "load_after": os.getloadavg()[0]}


def versions(*modules: Any) -> dict[str, str]:
    """Returns the versions of modules, by name."""
    return {module.__name__.rpartition(".")[2]: str(getattr(module, "__version__", "")) for module in modules}


def write(result: Figures, out: Path) -> None:
    """Writes a result, and nothing else: of a run that goes on."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")


def finish(result: Figures, out: Path, program: str) -> None:
    """Writes a result, and prints the tables that the documents have of it."""
    write(result, out)
    folder = Path(program).resolve().parent
    for match in BLOCK.finditer("".join(path.read_text() for path in documents())):
        name = match[3].split()[0]
        if name == folder.name:
            print("\n".join(block(match[2], match[3], {name: result})), end="\n\n")
    print(f"written: {out}")


# --- tables ---------------------------------------------------------------------------------------


class Cells(string.Formatter):
    """Formats cells: "-" for what is not there; `!k`, `!M`, `!m`, `!u` and `!b` change the unit."""

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        return args[key] if isinstance(key, int) else kwargs[key]

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        if conversion in UNITS:
            return None if value is None else value * UNITS[conversion]
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, spec: str) -> str:
        if value is None:
            raise KeyError
        return format(value, spec)

    def cell(self, template: str, keys: tuple[str, ...], record: Figures) -> str:
        try:
            return self.vformat(template, keys, record).strip() or "-"
        except (KeyError, IndexError, TypeError):
            return "-"


CELLS = Cells()


def records(value: Any, path: list[str], keys: tuple[str, ...] = ()) -> Iterator[Record]:
    """Yields the records at a path, each with the keys that stood for `*`."""
    if value is None:
        return
    if path and path[0] == "*":
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from records(one, path[1:], (*keys, str(key)))
    elif path:
        yield from records(value.get(path[0]), path[1:], keys)
    elif isinstance(value, list):
        for one in value:
            yield from records(one, [], keys)
    else:
        yield keys, value if isinstance(value, dict) else {"value": value}


def numeric(cells: list[str]) -> bool:
    return all(re.match(r"[-+.\d]", cell) for cell in cells)


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Returns the lines of a table; columns of numbers are to the right, and all lines are aligned."""
    if not rows:
        return ["Not measured yet."]
    columns = [[head[at], *(row[at] for row in rows)] for at in range(len(head))]
    wide = [max(3, *map(len, cells)) for cells in columns]
    right = [numeric(cells[1:]) for cells in columns]
    marks = ["-" * (n - 1) + ":" if r else "-" * n for n, r in zip(wide, right, strict=True)]

    def line(cells: list[str]) -> str:
        padded = [
            cell.rjust(n) if r else cell.ljust(n) for cell, n, r in zip(cells, wide, right, strict=True)
        ]
        return "| " + " | ".join(padded) + " |"

    return [line(cells) for cells in (head, marks, *rows)]


def pivoted(found: list[Record], columns: list[tuple[str, str]]) -> list[str]:
    """Returns a table: a line for each value of the columns with plain heads, or for each record."""
    plain = [column for column in columns if "{" not in column[0]]
    spread = [column for column in columns if "{" in column[0]]
    if not spread:
        lines = [[CELLS.cell(template, *one) for _, template in columns] for one in found]
        return table([head for head, _ in columns], lines)
    heads = [CELLS.cell(head, *one) for head, _ in spread for one in found]
    heads = list(dict.fromkeys(heads))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for one in found:
        row = rows.setdefault(tuple(CELLS.cell(template, *one) for _, template in plain), {})
        row.update({CELLS.cell(head, *one): CELLS.cell(template, *one) for head, template in spread})
    lines = [[*row, *(cells.get(head, "-") for head in heads)] for row, cells in rows.items()]
    return table([*(head for head, _ in plain), *heads], lines)


def goals(result: Figures) -> list[str]:
    """Returns how many goals of a result are met, and those that are missed."""
    every = result["goals"]
    missed = [one for one in every if not one["met"]]
    line = f"{len(every) - len(missed)} of {len(every)} goals are met"
    if not missed:
        return [f"{line}."]
    rows = [
        [one["name"], f"{SIGNS[one['sign']]} {one['limit']:g}", CELLS.cell("{value:.4g}", (), one)]
        for one in missed
    ]
    return [f"{line}; these are missed:", "", *table(["goal", "limit", "measured"], rows)]


def run(result: Figures) -> str:
    """Returns the line of a result's command, machine and versions."""
    where = result.get("machine", {})
    line = f"`{result['command']}`"
    if where:
        line += f", {where['processor']}, {where['cores']} cores"
    if where.get("load_after") is not None:
        line += f", load average {where['load_after']:.1f} at the end"
    of = result.get("versions") or where.get("versions") or {}
    named = {"": of} if isinstance(of, str) else of
    words = [text if text[:1].isalpha() else f"{name} {text}" for name, text in named.items()]
    return "; ".join([line, *([", ".join(dict.fromkeys(words))] if words else [])]) + "."


def block(kind: str, text: str, known: dict[str, Figures]) -> list[str]:
    """Returns the lines of a block, by its comment; `known` has results that are not those of the files."""
    first, *rest = text.strip().split("\n")
    name, *words = shlex.split(first)
    result = known.get(name) or load(name)
    if kind == "run":
        return textwrap.wrap(run(result), 88, break_long_words=False, break_on_hyphens=False)
    if kind == "goals":
        return goals(result)
    path, *wanted = words
    filters = [one.partition("=")[::2] for one in wanted]
    found = [
        one
        for one in records(result, path.split("."))
        if all(CELLS.cell("{" + field + "}", *one) in values.split("|") for field, values in filters)
    ]
    columns = [column.partition(" | ")[::2] for column in " ".join(rest).split(";")]
    return pivoted(found, [(head.strip(), template.strip()) for head, template in columns])


def load(name: str) -> Figures:
    """Returns the result of a folder, or with "folder/name" another one there."""
    folder, _, file = name.partition("/")
    return dict(json.loads((HERE / folder / f"{file or 'result'}.json").read_text()))


# --- documents ------------------------------------------------------------------------------------


def documents() -> list[Path]:
    """Returns the documents that may have blocks."""
    return sorted(ROOT.glob("docs/*.md"))


def renewed(text: str) -> str:
    """Returns a document with its blocks written anew."""

    def write_block(match: re.Match[str]) -> str:
        return "\n".join([match[1], "", *block(match[2], match[3], {}), "", match[5]])

    return BLOCK.sub(write_block, text)


def of_planner() -> str:
    """Returns what het plan says of accuracy: an entry for each part and run that is not placed."""
    names = ("part", "stream", "workers", "batch", "optimizer", "bound", "planned", "auc", "half", "seeds")
    points = [
        {name: one[name] for name in names}
        for one in load("accuracy")["summary"]
        if one["part"] in PLANNED_BY and one["model"] == "all" and not (one["placed"] or one["on_demand"])
    ]
    return "[\n" + ",\n".join(f" {json.dumps(point)}" for point in points) + "\n]\n"


def outputs() -> dict[Path, str]:
    """Returns every file that is made of results, as it should be."""
    made = {path: renewed(path.read_text()) for path in documents()}
    return made | {ROOT / "het_tf/ext/sizing/python/accuracy.json": of_planner()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a document is out of date")
    check = parser.parse_args().check
    old = {path: text for path, text in outputs().items() if path.read_text() != text}
    for path, text in old.items():
        print(f"{path.relative_to(ROOT)} {'is out of date' if check else 'is renewed'}")
        if not check:
            path.write_text(text)
    return int(check and bool(old))


if __name__ == "__main__":
    sys.exit(main())
