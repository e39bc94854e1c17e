"""Checks that the product does not grow: lines, public names, large functions, and names for tests alone.

    python tools/check_ratchet.py [--write]

tools/ratchet.toml has a limit of each. More than a limit is an error; a commit that must raise one changes
the table, and says why in its message. What has become less is an error too, beyond a slack, until `--write`
has lowered the limit: so each may only fall.

Lines are lines of code: no blanks, comments or docstrings. A file of het_tf/ has one home: the first of
[homes] that has the beginning of its path. [lines] has the limit of each home, and of tests/.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import check_arrows
import check_classes
import tomllib

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path(__file__).with_name("ratchet.toml")
CPP = {".cc", ".h", ".cu", ".cuh"}
SLACK = 50  # lines that a home may be below its limit
OUTSIDE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\')', re.DOTALL)
WORD = re.compile(r"\w+")
# Names that Keras and TensorFlow call, or that the compiler has.
CALLED_BY_OTHERS = {
    *("compute_mask", "compute_output_shape", "compute_output_spec", "count_params", "merge_state"),
    "save_own_variables",
    *("on_train_batch_end", "set_extra_state", "TF_SetStatus", "__atomic_load_n", "__atomic_store_n"),
}
DECLARED = re.compile(r"^\s+(?:[\w:<>,*&\s]+[\s*&])?(\w+)\([^;{}]*\)\s*(?:const)?\s*(?:;|\{)", re.MULTILINE)


def without_comments(text: str) -> str:
    """C++ without its comments; literals stay."""
    return COMMENT.sub(lambda match: match[1] or " ", text)


def code_lines(path: Path) -> int:
    """Lines of a file that are neither blank, nor a comment, nor a docstring."""
    text = path.read_text()
    if path.suffix in CPP:
        kept = COMMENT.sub(lambda match: match[1] or "\n" * match[0].count("\n"), text)
        return sum(bool(line.strip()) for line in kept.split("\n"))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in OUTSIDE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in statements(ast.parse(text)):
        lines.difference_update(docstring_of(node))
    return len(lines)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The node, and the statements within it."""
    yield node
    for block in ("body", "orelse", "handlers", "finalbody"):
        for one in (
            getattr(node, block, []) if isinstance(node, (ast.stmt, ast.Module, ast.ExceptHandler)) else []
        ):
            yield from statements(one)


def docstring_of(node: ast.AST) -> range:
    """The numbers of the lines of a node's docstring."""
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            if isinstance(first.value.value, str) and first.end_lineno is not None:
                return range(first.lineno, first.end_lineno + 1)
    return range(0)


def files(root: Path, folder: str) -> Iterator[Path]:
    """The sources below a folder, without what a build puts there."""
    for path in sorted((root / folder).rglob("*")):
        if path.suffix in {*CPP, ".py"} and not path.is_relative_to(root / "het_tf/lib"):
            yield path


def lines_of(root: Path, homes: dict[str, list[str]]) -> Counter[str]:
    """The lines of each home, and of tests/; raises SystemExit for a file without a home."""
    found: Counter[str] = Counter(dict.fromkeys([*homes, "tests"], 0))
    for path in files(root, "het_tf"):
        name = path.relative_to(root / "het_tf").as_posix()
        home = next((one for one, of in homes.items() if any(name.startswith(each) for each in of)), None)
        if home is None:
            raise SystemExit(f"het_tf/{name} is in no home of {TABLE.name}: add it to one")
        found[home] += code_lines(path)
    found["tests"] = sum(code_lines(path) for path in files(root, "tests"))
    return found


def functions(root: Path) -> Iterator[tuple[int, str]]:
    """Lines and name of each function of het_tf, without docstrings."""
    for path in files(root, "het_tf"):
        name = path.relative_to(root).as_posix()
        if path.suffix == ".py":
            for node in statements(ast.parse(path.read_text())):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno:
                    lines = node.end_lineno - node.lineno + 1 - len(docstring_of(node))
                    yield lines, f"{name}: {node.name}"
            continue
        begin, what = 0, ""
        for number, line in enumerate(path.read_text().split("\n")):
            if line.endswith("{") and "(" in line and not line.startswith((" ", "}", "namespace", "#")):
                begin, what = number, line
            elif line == "}" and what:
                yield number - begin + 1, f"{name}: {what}"
                what = ""


def for_tests_alone(root: Path) -> list[str]:
    """Functions that a header of het_tf declares, or a module defines, and only tests/ call."""
    product, tests = Counter[str](), Counter[str]()
    declared: Counter[str] = Counter()
    for path in files(root, "het_tf"):
        text = path.read_text() if path.suffix == ".py" else without_comments(path.read_text())
        product.update(WORD.findall(text))
        if path.suffix == ".py":
            for node in statements(ast.parse(text)):
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    declared[node.name] += 1
        elif path.suffix == ".h":
            declared.update(DECLARED.findall(text))
        else:  # a definition apart is no call
            declared.update(re.findall(r"^\S.*\b\w+::(\w+)\(", text, re.MULTILINE))
    for folder in ("benchmarks", "examples", "tools", "docs"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {*CPP, ".py", ".md", ".ipynb"}:
                product.update(WORD.findall(path.read_text()))
    for path in files(root, "tests"):
        tests.update(WORD.findall(path.read_text()))
    only = {name for name, times in declared.items() if product[name] <= times and tests[name]}
    return sorted(only - CALLED_BY_OTHERS)


def names_of_ports(root: Path) -> int:
    """How many functions and types the headers declare that files outside of the core may include."""
    names = set()
    for line in (root / check_arrows.PORTS).read_text().splitlines():
        if line and not line.startswith("#"):
            text = without_comments((root / "het_tf/core" / line).read_text())
            for pattern in (DECLARED, re.compile(r"^(?:class|struct|enum class|using) (\w+)", re.MULTILINE)):
                names.update((line, name) for name in pattern.findall(text))
    return len(names)


def arrows_between_extensions() -> int:
    """How many pairs of extensions one of which uses the other."""
    table = tomllib.loads(check_arrows.TABLE.read_text())
    pairs = {(part, used) for group in table.values() for part, others in group.items() for used in others}
    return sum(part.startswith("ext/") and used.startswith("ext/") for part, used in pairs)


def measured(
    root: Path, table: dict[str, dict[str, int]], homes: dict[str, list[str]]
) -> dict[str, dict[str, int]]:
    """What the table limits, as it is now."""
    sizes = [size for _, size in check_classes.sizes(root) if len(size) == 2]
    lines = lines_of(root, homes)
    return {
        "lines": {name: lines[name] for name in table["lines"]},
        "most": {
            "lines of a function": max(functions(root))[0],
            "methods of a class": max(methods for methods, _ in sizes),
            "public names": len(public_names((root / "tests/docs/public_api.txt").read_text())),
            "names for tests alone": len(for_tests_alone(root)),
            "names in port headers": names_of_ports(root),
            "arrows between extensions": arrows_between_extensions(),
        },
    }


def public_names(text: str) -> set[str]:
    """The functions and classes of the frozen list, without the methods and attributes of the latter."""
    names = [line.partition("(")[0] for line in text.splitlines()]
    return {name for name in names if name.rpartition(".")[0] not in names}


def faults(table: dict[str, dict[str, int]], now: dict[str, dict[str, int]]) -> list[str]:
    """A line for each limit that does not hold, or has become loose."""
    found = []
    for group, limits in table.items():
        for name, limit in limits.items():
            has = now[group][name]
            if has > limit:
                found.append(
                    f"{group}, {name}: {has}; the limit is {limit}. Make it smaller, or raise the limit in "
                    f"{TABLE.name} and say why in the commit's message"
                )
            elif has < limit - (SLACK if group == "lines" else 0):
                found.append(
                    f"{group}, {name}: {has}; the limit is still {limit}: run {Path(__file__).name} --write"
                )
    return found


def lowered(text: str, table: dict[str, dict[str, int]], now: dict[str, dict[str, int]]) -> str:
    """The text of the table with the limits that have become loose lowered."""
    for group, limits in table.items():
        for name, limit in limits.items():
            if now[group][name] < limit:
                old = f'"{name}" = {limit}'
                text = text.replace(old, f'"{name}" = {now[group][name]}')
    return text


def main(arguments: list[str] | None = None) -> int:
    """Prints one line for each fault; the exit status is their presence."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="lower the limits that have become loose")
    parser.add_argument(
        "--show", action="store_true", help="the largest functions, and names for tests alone"
    )
    options = parser.parse_args(arguments)
    text = TABLE.read_text()
    whole = tomllib.loads(text)
    homes, table = whole["homes"], {group: whole[group] for group in ("lines", "most")}
    now = measured(ROOT, table, homes)
    if options.show:
        print("\n".join(f"{lines:5} {name}" for lines, name in sorted(functions(ROOT))[-8:]))
        print("for tests alone:", *for_tests_alone(ROOT))
    if options.write:
        TABLE.write_text(lowered(text, table, now))
        table = {group: tomllib.loads(TABLE.read_text())[group] for group in table}
    found = faults(table, now)
    print("\n".join(found) or f"{sum(map(len, table.values()))} limits of {TABLE.name} hold")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
