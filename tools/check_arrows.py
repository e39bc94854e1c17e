"""Checks which part of het_tf includes, or imports, which: every arrow is in a table.

    python tools/check_arrows.py [--write]

tools/arrows.toml has the parts (a folder of core/, of ext/, of python/, or of het_tf/) with the parts that
each may use, of C++ and of Python. Nothing of core/ or python/ may use an extension, nor name its module in
a string. An arrow from one extension to
another is an exception: a line of its own in the table. An arrow that nobody uses is an error until `--write`
has taken it out, so that the table may only shrink; `--write` adds none.

het_tf/core/PORTS lists the headers of core/ that files outside of it may include: again, no more and no less.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path(__file__).with_name("arrows.toml")
PORTS = "het_tf/core/PORTS"
SUFFIXES = {".h", ".cc", ".cu"}
INCLUDE = re.compile(r'\s*#\s*include\s+"(het_tf/[^"]+)"')

# (a file, its line, the file that it uses)
Use = tuple[str, int, str]


def part_of(name: str) -> str:
    """The part that a file of het_tf/ belongs to: core/cache, ext/serving, python/layer, kernels, public."""
    parts = name.removeprefix("het_tf/").split("/")
    if len(parts) == 1:
        return "public"
    if parts[0] in ("core", "ext", "python") and len(parts) > 2:
        return f"{parts[0]}/{parts[1]}"
    return parts[0]


def includes(root: Path) -> Iterator[Use]:
    """Every include of one file of het_tf/ by another."""
    for path in sorted(p for p in (root / "het_tf").rglob("*") if p.suffix in SUFFIXES):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if found := INCLUDE.match(line):
                yield path.relative_to(root).as_posix(), number, found[1]


def names_of(node: ast.AST) -> list[str]:
    """What of het_tf an import names, if the node is one."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        names = []
    return [name for name in names if name.split(".")[0] == "het_tf"]


def file_of(root: Path, name: str) -> str:
    """The file of the module that a dotted name is, or is in."""
    parts = name.split(".")
    while True:
        path = "/".join(parts)
        for file in (f"{path}.py", f"{path}/__init__.py"):
            if (root / file).exists():
                return file
        parts.pop()


def imports(root: Path) -> Iterator[Use]:
    """Every import of one module of het_tf/ by another, within functions too."""
    for path in sorted((root / "het_tf").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = names_of(node)
            if root / "het_tf/python" in path.parents and isinstance(node, ast.Constant):
                names = re.findall(r"^het_tf\.ext\.[\w.]+$", str(node.value))
            for name in names:
                yield path.relative_to(root).as_posix(), getattr(node, "lineno", 0), file_of(root, name)


def against(uses: list[Use], table: dict[str, list[str]], group: str) -> Iterator[str]:
    """A line for each arrow that the table does not have, and for each that only the table has."""
    used: dict[str, set[str]] = {part: set() for part in table}
    for file, line, other in uses:
        source, target = part_of(file), part_of(other)
        if source == target:
            continue
        used.setdefault(source, set()).add(target)
        if source.startswith("core/") and target.startswith("ext/"):
            yield f"{file}:{line}: {other}: the core uses no extension; let it register at a port"
        elif source.startswith("python") and target.startswith("ext"):
            yield f"{file}:{line}: {other}: python/ uses no extension; let it fill a port (extensions.py)"
        elif target not in table.get(source, []):
            yield f"{file}:{line}: {other}: {source} may not use {target} ({TABLE.name}, [{group}])"
    for source, targets in table.items():
        for target in targets:
            if target not in used[source]:
                yield f"{TABLE.name}, [{group}]: {source} uses {target} no more; run check_arrows.py --write"


def ports(root: Path, uses: list[Use]) -> Iterator[str]:
    """A line for each header that is used as a port and is none, and for each port that nobody uses."""
    listed = {line for line in (root / PORTS).read_text().splitlines() if line and not line.startswith("#")}
    seen = set()
    for file, line, other in uses:
        if other.startswith("het_tf/core/") and not file.startswith("het_tf/core/"):
            name = other.removeprefix("het_tf/core/")
            seen.add(name)
            if name not in listed:
                yield f"{file}:{line}: {name} is no port; use one that {PORTS} lists"
    yield from (f"{PORTS}: nobody uses {name}; take it out" for name in sorted(listed - seen))


def without_unused(text: str, faults: list[str]) -> str:
    """The text of the table without the arrows that nobody uses."""
    for fault in faults:
        if found := re.match(rf"{TABLE.name}, \[(\w+)\]: (\S+) uses (\S+) no more", fault):
            group, source, target = found.groups()
            head, section, rest = text.partition(f"[{group}]")
            line = re.compile(rf'^("{re.escape(source)}" = \[.*?)"{re.escape(target)}"(?:, )?(.*\])', re.M)
            text = head + section + line.sub(lambda m: f"{m[1]}{m[2]}".replace(", ]", "]"), rest, count=1)
    return text


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Prints one line for each fault; the exit status is their presence."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="take out of the table what nobody uses")
    options = parser.parse_args(arguments)
    uses = {"cc": list(includes(root)), "python": list(imports(root))}

    def faults() -> list[str]:
        table = tomllib.loads(TABLE.read_text())
        found = [fault for group in uses for fault in against(uses[group], table[group], group)]
        return [*found, *ports(root, uses["cc"])]

    found = faults()
    if options.write:
        TABLE.write_text(without_unused(TABLE.read_text(), found))
        found = faults()
    print("\n".join(found) or f"{sum(map(len, uses.values()))} includes and imports: all in {TABLE.name}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
