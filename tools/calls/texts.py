"""The texts that name calls and commands: strings of Python and C++, Markdown files and notebooks."""

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAST = ("CHANGELOG.md", "docs/adr/", "benchmarks/")  # they tell of what has gone
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
STRING = re.compile(r'(?:R"\((?P<raw>.*?)\)"|"(?P<plain>(?:\\.|[^"\\\n])*)")', re.DOTALL)
COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
ANY = "_"  # stands for a value that only the program knows


@dataclass(frozen=True)
class Text:
    """A text and where it is.

    Attributes:
      where: "file: what", for people.
      prose: The words, code inside of backticks included.
      python: Blocks of Python.
      shell: Lines of blocks that a shell reads.
    """

    where: str
    prose: str
    python: tuple[str, ...] = ()
    shell: tuple[str, ...] = ()


def texts() -> Iterator[Text]:
    """Those of the tree."""
    for path in sorted((ROOT / "het_tf").rglob("*.py")):
        yield from of_python(str(path.relative_to(ROOT)), path.read_text())
    for path in sorted(path for kind in ("*.cc", "*.h") for path in (ROOT / "het_tf").rglob(kind)):
        yield from of_cpp(str(path.relative_to(ROOT)), path.read_text())
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "*.ipynb"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        if not name.startswith(PAST) and (ROOT / name).exists():
            content = (ROOT / name).read_text()
            yield of_notebook(name, content) if name.endswith(".ipynb") else of_markdown(name, content)


def said(node: ast.AST) -> str | None:
    """The text of an expression of strings, with ANY for values; None if it has no string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(
            ANY if isinstance(part, ast.FormattedValue) else said(part) or "" for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [said(node.left), said(node.right)]
        return None if sides == [None, None] else "".join(ANY if side is None else side for side in sides)
    return None


def of_python(name: str, code: str) -> Iterator[Text]:
    """The strings of a module, docstrings among them."""
    stack: list[ast.AST] = [ast.parse(code)]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef) and node.name == "__repr__":
            continue  # for people, and short
        text = said(node)
        if text is None:
            stack += ast.iter_child_nodes(node)
        elif " " in text.strip() or "(" in text:
            text = re.sub(r"%[-+.\d]*[sdrgf]", ANY, text)
            yield Text(f"{name}:{getattr(node, 'lineno', 0)}", text)


def of_cpp(name: str, code: str) -> Iterator[Text]:
    """The literals of a source; those beside each other, or joined by + with values between, are one."""
    code = COMMENT.sub(lambda match: match[1] or " ", code)
    joined, end = "", 0
    for match in STRING.finditer(code):
        literal = match["raw"] if match["raw"] is not None else re.sub(r"\\(.)", unescaped, match["plain"])
        between = code[end : match.start()]
        if joined and not between.strip():
            joined += literal
        elif joined and re.fullmatch(r"[)\s]*\+[^;{}]*\+\s*|[)\s]*\+\s*", between):
            joined += (ANY if between.count("+") > 1 else "") + literal
        else:
            if joined:
                yield Text(f"{name}: {joined[:30]!r}", joined)
            joined = literal
        end = match.end()
    if joined:
        yield Text(f"{name}: {joined[:30]!r}", joined)


def unescaped(match: re.Match[str]) -> str:
    """What a backslash and a letter stand for in C++."""
    return {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}.get(match[1], ANY)


def of_markdown(name: str, content: str) -> Text:
    """A document."""
    blocks: dict[str, list[str]] = {"python": [], "shell": []}
    for indent, language, block in FENCE.findall(content):
        block = re.sub(f"^{indent}", "", block, flags=re.MULTILINE)
        if language == "python":
            blocks["python"].append(block)
        elif language in ("bash", "sh", "console", "shell", ""):
            lines = re.sub(r"\\\n\s*", " ", block).splitlines()
            blocks["shell"] += [line[2:] if line.startswith("$ ") else line for line in lines]
    prose = re.sub(r"<!--.*?-->", "", FENCE.sub("", content), flags=re.DOTALL)
    return Text(f"{name}:", prose, tuple(blocks["python"]), tuple(blocks["shell"]))


def of_notebook(name: str, content: str) -> Text:
    """A notebook."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(content)["cells"]]
    parts = [of_markdown(name, source) for kind, source in cells if kind == "markdown"]
    code = [source for kind, source in cells if kind == "code"]
    lines = [line for source in code for line in source.splitlines()]
    return Text(
        f"{name}:",
        "\n\n".join(part.prose for part in parts),
        tuple(re.sub(r"^[!%].*$", "", source, flags=re.MULTILINE) for source in code),
        tuple(line[1:] for line in lines if line.startswith("!")),
    )
