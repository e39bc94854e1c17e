"""Checks the size of classes and files: what takes a day to read, nobody dares to change.

    python tools/check_classes.py [ROOT]

A class of the core or of an extension has a limit of methods, constructors and accessors included, and
of data members; constants count as neither. A file of het_tf has a limit of lines. LARGER lists what is
larger, with its size and the reason. The list only shrinks: an entry is an error when its class or file
has another size, or is within the limits. Prints one line for each fault; the exit status is their
presence.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_OF_A_CLASS = (36, 15)  # methods and data members
MOST_OF_A_FILE = (400,)  # lines
Size = tuple[int, ...]  # one or the other

# What is larger, and why.
LARGER: dict[str, Size] = {
    "serve::Header": (0, 22),  # the same
}

NOISE = re.compile(  # comments, literals and directives, which may hold braces
    r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\n])+\'|^[ \t]*#(?:\\\n|[^\n])*',
    re.DOTALL | re.MULTILINE,
)
CLASS = re.compile(r"(?:^|[\s>])(?:class|struct)\s+([\w:]+)(?:\s+final)?(?:\s*:[^:].*)?\s*$", re.DOTALL)
NAMESPACE = re.compile(r"\s*(?:(?:inline\s+)?namespace\b\s*([\w:]*)|extern)\s*")
ACCESS = re.compile(r"\s*(public|private|protected)\s*")
OTHER = re.compile(r"(using|friend|typedef|static_assert|enum)\b|(class|struct)\s+[\w:]+$")


def without(pattern: str, text: str) -> str:
    """The text without all matches, the innermost first."""
    while (shorter := re.sub(pattern, "", text)) != text:
        text = shorter
    return text


def is_function(flat: str) -> bool:
    """Whether a statement without its template arguments declares a function."""
    return "operator" in flat or "(" in flat.split("=")[0]


def size_of(statement: str) -> Size:
    """What one statement of a class declares; what stood in braces is left out."""
    flat = without(r"<[^<>]*>", statement.replace("->", "")).strip()
    before, after = (*flat.split("=", 1), "")[:2]
    if not flat or after.strip() == "delete" or OTHER.match(flat):
        return 0, 0
    if is_function(flat):
        return 1, 0
    return 0, 0 if "static" in before.split() else 1 + without(r"\([^()]*\)", flat).count(",")


def classes(text: str) -> Iterator[tuple[str, Size]]:
    """Name and size of every class of a C++ file, nested ones too; classes within functions are left out."""
    text = NOISE.sub(" ", text)
    scopes: list[tuple[str, bool, list[Size]]] = [("", False, [])]  # qualified names; whether it is a class
    statement, depth = "", 0  # braces around this character that belong to the statement
    for at, character in enumerate(text):
        name, is_class, declared = scopes[-1]
        if depth:
            depth += (character == "{") - (character == "}")
            flat = without(r"<[^<>]*>", statement)
            is_open = flat.count("(") > flat.count(")") or text[at + 1 :].lstrip()[:1] in (",", "{")
            if depth == 0 and is_function(flat) and not is_open:  # the body of a function
                declared.append(size_of(statement))
                statement = ""
        elif character == "{":
            found = CLASS.search(statement) if "enum" not in statement else None
            if found or (found := NAMESPACE.fullmatch(statement)):
                inner = re.sub(r"^het(::|$)", "", found[1] or "")
                scopes.append(("::".join(filter(None, [name, inner])), found.re is CLASS, []))
                statement = ""
            else:
                depth = 1
        elif character == "}":
            scopes.pop()
            if is_class:
                yield name, tuple(map(sum, zip((0, 0), *declared, strict=True)))
            statement = ""
        elif character == ";" or (character == ":" and ACCESS.fullmatch(statement)):
            declared.append(size_of(statement if character == ";" else ""))
            statement = ""
        else:
            statement += character


def sizes(root: Path) -> Iterator[tuple[str, Size]]:
    """Every class of the core and of extensions, as NAME, and every file of het_tf, as its path."""
    for path in sorted((root / "het_tf").rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix not in {".h", ".cc", ".cu", ".cuh", ".py"} or name.startswith("het_tf/lib/"):
            continue
        text = path.read_text()
        yield name, (text.count("\n"),)
        if re.match(r"het_tf/(core|ext/\w+/cc)/", name) and path.suffix != ".py":
            yield from classes(text)


def faults(root: Path, larger: dict[str, Size]) -> list[str]:
    """A line for each class and file that is too large, or whose entry in `larger` does not hold."""
    found, left = [], dict(larger)
    for name, size in sizes(root):
        listed = left.pop(name, None)
        most, unit = (
            (MOST_OF_A_FILE, "lines") if len(size) == 1 else (MOST_OF_A_CLASS, "methods, data members")
        )
        is_large = any(has > limit for has, limit in zip(size, most, strict=True))
        if is_large and listed is None:
            found.append(f"{name}: {size} {unit}; the most is {most}. Cut it along what it does")
        elif listed not in (None, size):
            found.append(f"{name}: {size} {unit}; LARGER says {listed}, and may only shrink")
        elif listed is not None and not is_large:
            found.append(f"{name}: {size} {unit} is within the limits: remove it from LARGER")
    return found + [f"{name} is in LARGER, and nowhere else: remove it" for name in left]


def main(root: Path = ROOT) -> int:
    """Prints one line for each fault; the exit status is their presence."""
    found = faults(root, LARGER)
    print("\n".join(found) or f"{len(list(sizes(root)))} classes and files: none is too large")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*[Path(argument) for argument in sys.argv[1:2]]))
