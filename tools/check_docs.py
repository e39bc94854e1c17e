"""Checks the Markdown files, and the texts and code of the tutorials.

Relative links and their anchors lead somewhere, paths in backticks and public names exist (except in the
changelog, and names in decisions and results, which tell of what has gone), every `make x` names a target,
prose (not tables, not code) ends before column 100, no Markdown is left where CommonMark reads HTML or text
(GitHub does), figures are those of their files, and all pages together keep to the limits of pages and words.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docs_site
import figures
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
CODE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
COLUMNS = 100
QUOTED = re.compile(r"`([\w.-]+(?:/[\w.*-]+)+)/?[` ]")  # also a path in front of its arguments
RUN = re.compile(r"\b(?:python|bash) ((?:[\w.-]+/)+[\w-]+\.(?:py|sh))")  # also in code
NAME = re.compile(r"\bhet_tf\.(?!(?:python|ext)\b|\w+/)(\w+)(?:\.(\w+))?")
PAST = ("CHANGELOG.md", "docs/adr/", "docs/benchmarks.md")
PAGES, WORDS = 45, 55_000  # at most; a page that needs more takes them from another
SOURCE = (".cc", ".cu", ".cuh", ".h", ".ipynb", ".md", ".py", ".sh", ".toml")
BRACKETS = re.compile(r"\S*\[[^\[\]]*\](?:\[[^\[\]]*\]|\([^()]*\))\S*")
MAKE = re.compile(r"(?:`|^\s*\$ ?)make ([a-z][a-z0-9-]*)", re.MULTILINE)
MAKE_LINE = re.compile(r"^ *make ([a-z][a-z0-9-]*)", re.MULTILINE)


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub makes of a document's headings."""
    headings = HEADING.findall(CODE.sub("", document.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def left_over(text: str) -> list[str]:
    """Markdown that a reader sees as such: in a block of HTML, as behind a comment, or in plain text."""
    found = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "html_block":
            found.append(COMMENT.sub("", token.content))
        found += [one.content for one in token.children or [] if one.type == "text"]
    return [text for text in found if re.search(r"\*\*|\]\(|^\|.*\|$|\|-{3}", text.strip())]


def long_lines(text: str) -> list[str]:
    """Lines of prose that pass COLUMNS, comments left out; a single word that is longer (a link) may."""
    lines = COMMENT.sub("", CODE.sub("", text)).splitlines()
    prose = (line for line in lines if not line.startswith("    ") and not line.lstrip().startswith("|"))
    return [
        line for line in prose if len(line) > COLUMNS and " " in re.sub("`[^`]*`", "", line).strip("*-. ")
    ]


def made(text: str) -> list[str]:
    """The targets of make that a document names: in prose as `make x`, in code as a line."""
    code = "\n".join(CODE.findall(text))
    return MAKE.findall(text) + MAKE_LINE.findall(code)


def gone(text: str, files: list[str]) -> list[str]:
    """Paths, in backticks or run, of no file or folder: from the root, or a source's from some folder."""
    tops = {file.partition("/")[0] for file in files if "/" in file}
    built = (ROOT / ".gitignore").read_text()
    prose = CODE.sub("", text)
    return [
        path
        for path in [*QUOTED.findall(prose), *RUN.findall(text)]
        if path.partition("/")[0] in tops or (path.endswith(SOURCE) and "*" not in path)
        if not any(ROOT.glob(path)) and not any(file.endswith(f"/{path}") for file in files)
        if f"/{path}/" not in built  # not built yet
    ]


def unknown(text: str) -> list[str]:
    """Names under het_tf that are neither public nor a module."""
    public = docs_site.public_names()
    modules = {path.stem for path in (ROOT / "het_tf").glob("*.py")} | set(docs_site.modules())
    return [
        f"het_tf.{first}.{second}".rstrip(".")
        for first, second in NAME.findall(text)
        if first not in {*public["het_tf"], *modules}
        or (second and second not in public.get(f"het_tf.{first}", [second]))
    ]


def docstrings() -> Iterator[tuple[str, str]]:
    """Where a docstring of het_tf is, and its text."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in sorted((ROOT / "het_tf").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                where = f"{path.relative_to(ROOT)}: {getattr(node, 'name', 'the module')}"
                yield where, text


def links_by_chance(text: str) -> list[str]:
    """What the site would take for a link in a docstring: brackets in prose, such as HOST[:PORT][,...]."""
    paragraphs = re.split(r"\n\s*\n", CODE.sub("", text))
    prose = [one for one in paragraphs if any(not line.startswith("    ") for line in one.split("\n"))]
    return BRACKETS.findall(re.sub(r"`[^`]*`", "", "\n".join(prose)))


def text_of(name: str) -> str:
    """A document as Markdown; the code of a notebook is in fences."""
    text = (ROOT / name).read_text()
    if not name.endswith(".ipynb"):
        return text
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    return "\n\n".join(one if kind == "markdown" else f"```python\n{one}\n```" for kind, one in cells)


def prose_of(name: str) -> str:
    """The words that a reader has: a document, or the Markdown of a notebook."""
    text = (ROOT / name).read_text()
    if not name.endswith(".ipynb"):
        return text
    return "\n".join("".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "markdown")


def files_of_git(*patterns: str) -> list[str]:
    """The files that are in the repository, or could be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [name for name in found if (ROOT / name).exists()]


def main() -> int:
    """Prints one line for each fault; the exit status is their presence."""
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    files, documents = files_of_git(), files_of_git("*.md", "*.ipynb")
    faults = []
    words = sum(len(prose_of(name).split()) for name in documents)
    if len(documents) > PAGES or words > WORDS:
        faults.append(f"{len(documents)} pages with {words:,} words; at most {PAGES} with {WORDS:,}")
    for where, text in docstrings():
        faults += [f"{where}: {link} reads as a link; set it in backticks" for link in links_by_chance(text)]
    for name in documents:
        text = text_of(name)
        for link, anchor in LINK.findall(text):
            if link.startswith(("http://", "https://", "mailto:")):
                continue
            target = (ROOT if link.startswith("/") else (ROOT / name).parent) / link.lstrip("/")
            target = target if link else ROOT / name
            if not target.exists():
                faults.append(f"{name}: the link to {link} leads nowhere")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                faults.append(f"{name}: {link} has no heading for #{anchor}")
        if name.endswith(".md"):
            faults += [f"{name}: longer than {COLUMNS} columns: {line[:60]}..." for line in long_lines(text)]
            faults += [f"{name}: stays Markdown: {one.strip()[:60]}" for one in left_over(text)]
        if name != "CHANGELOG.md":
            faults += [f"{name}: there is no `{path}`" for path in gone(text, files)]
        if not name.startswith(PAST):
            faults += [f"{name}: there is no {one}" for one in unknown(text)]
        faults += [f"{name}: there is no `make {t}`" for t in made(text) if t not in targets]
        faults += [f"{name}: {fault}" for fault in figures.renewed(text)[1]]
    said = f"{len(documents)} pages with {words:,} words: links, paths and make targets exist"
    print("\n".join(faults) or said)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
