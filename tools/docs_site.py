"""What mkdocs (mkdocs.yml, `make docs`) builds beside the files of docs/: a hook, of which it calls `on_*`.

* README.md, ARCHITECTURE.md, CONTRIBUTING.md, CHANGELOG.md and examples/README.md are pages, written once.
* A notebook of docs/ is a page, with the outputs that it has stored.
* The reference has a page for the package and one for each public module: a table of the public names, then
  each of them.
* The navigation: tutorials, concepts and decisions by their files, all other pages of docs/ as how-to.
* A link to a file that is not in the site becomes plain text, with the path in the repository.
"""

from __future__ import annotations

import ast
import functools
import os
import posixpath
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parent))
import docs_notebooks

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
# Pages that are not in docs/: where they lie in the site, and in the tree.
ELSEWHERE = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "examples.md": "examples/README.md",
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
}
CONCEPTS = ["concepts.md", "own-loop.md", "optimizers.md", "protocol.md"]
CHANGING = ["architecture.md", "contributing.md", "style.md", "releasing.md"]
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")  # a picture's, too


# --- names ----------------------------------------------------------------------------------------


def _assigned(module: Path, name: str) -> list[str]:
    """The strings of a tuple or list that a module assigns to a name; [] if it does not."""
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.Assign) and [getattr(one, "id", "") for one in node.targets] == [name]:
            return list(ast.literal_eval(node.value))
    return []


def modules() -> list[str]:
    """The public modules of the package."""
    return _assigned(ROOT / "het_tf/__init__.py", "_MODULES")


def public_names() -> dict[str, list[str]]:
    """By the name of a public module, and of the package: the names that are documented there."""
    package = _assigned(ROOT / "het_tf/__init__.py", "__all__")
    found = {"het_tf": [name for name in package if name not in modules() and not name.startswith("__")]}
    for module in modules():
        path = ROOT / f"het_tf/{module}.py"
        path = path if path.exists() else path.with_suffix("") / "__init__.py"
        names = _assigned(path, "__all__")
        if not names:  # it has those of a package of het_tf.python
            source = re.search(r"^from (het_tf\.\S+) import __all__", path.read_text(), re.MULTILINE)
            assert source, f"{path} has no __all__"
            names = _assigned(ROOT / source[1].replace(".", "/") / "__init__.py", "__all__")
        found[f"het_tf.{module}"] = names
    return found


def _summary(module: str, names: list[str], package: Any) -> str:
    """A table of names, with the first sentence of each docstring."""
    rows = ["| | |", "|---|---|"]
    for name in names:
        docstring = package[f"{module}.{name}".removeprefix("het_tf.")].docstring
        first = re.split(r"\n\n|(?<!al\.)(?<=\.)\s", docstring.value.strip())[0] if docstring else ""
        words = " ".join(first.split()).replace("|", "\\|")
        rows.append(f"| [`{name}`](#{module}.{name}) | {words} |")
    return "\n".join(rows)


@functools.cache
def reference() -> dict[str, str]:
    """The pages of the reference: where they lie, and what is in them."""
    import griffe

    package = griffe.load("het_tf", search_paths=[ROOT], resolve_aliases=True)
    pages = {}
    for module, names in public_names().items():
        options = "".join(
            f"      {option}: false\n" for option in ("members", "show_root_heading", "show_root_toc_entry")
        )
        head = f"# {module}\n\n::: {module}\n    options:\n{options}"
        names = sorted(names)
        pages[f"reference/{module}.md"] = "\n".join(
            [head, _summary(module, names, package), "", *(f"::: {module}.{name}\n" for name in names)]
        )
    return pages


def notebooks() -> dict[str, Path]:
    """The pages that are notebooks, and their files."""
    docs = ROOT / "docs"
    return {path.relative_to(docs).with_suffix(".md").as_posix(): path for path in docs.rglob("*.ipynb")}


# --- what mkdocs calls ----------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation."""
    docs = Path(config.docs_dir)
    pages = sorted([*(path.relative_to(docs).as_posix() for path in docs.rglob("*.md")), *notebooks()])
    pages += [page for page, source in ELSEWHERE.items() if (ROOT / source).exists()]
    taken = {"index.md", "changelog.md", "benchmarks.md"}
    nav: list[dict[str, Any]] = [{"Home": "index.md"}]

    def group(name: str, members: list[str]) -> None:
        there = [page for page in members if page in pages and page not in taken]
        taken.update(there)
        if there:
            nav.append({name: there})

    decisions = [page for page in pages if page.startswith("adr/")]
    tutorials = [page for page in pages if page.startswith("tutorials/")]
    group("Tutorials", ["quickstart.md", *tutorials, "examples.md"])
    group("Concepts", CONCEPTS)
    group("How to", [page for page in pages if page not in {*taken, *decisions, *CHANGING}])
    nav += [{"Reference": list(reference())}, {"Benchmarks": "benchmarks.md"}]
    group("Changing het_tf", CHANGING)
    group("Decisions", decisions)
    nav.append({"Changes": "changelog.md"})
    config.nav = nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/."""
    from mkdocs.structure.files import File

    made = {
        page: (ROOT / source).read_text() for page, source in ELSEWHERE.items() if (ROOT / source).exists()
    }
    made |= {page: docs_notebooks.page(path) for page, path in notebooks().items()}
    for path in notebooks().values():
        files.remove(files.get_file_from_path(path.relative_to(config.docs_dir).as_posix()))
    for page, text in {**made, **reference()}.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as the site has them."""
    here = page.file.src_uri
    source = ELSEWHERE.get(here, f"docs/{here}")

    def link(match: re.Match[str]) -> str:
        words, target = match[1], match[2]
        path, hash, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not path:
            return match[0]
        in_tree = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        pages = {tree: site for site, tree in ELSEWHERE.items()}
        pages |= {path.relative_to(ROOT).as_posix(): page for page, path in notebooks().items()}
        in_site = pages.get(in_tree, in_tree.removeprefix("docs/") if in_tree.startswith("docs/") else "")
        if not files.get_file_from_path(in_site):
            there = words.startswith("`") or Path(in_tree).name in words
            return words if there else f"{words} (`{in_tree}`)"
        return f"[{words}]({os.path.relpath(in_site, posixpath.dirname(here) or '.')}{hash}{anchor})"

    return _bars(_outside_of_code(markdown, link))


def _bars(markdown: str) -> str:
    """In code of a table GitHub wants `\\|` for a bar; here it would be two characters."""
    lines = markdown.split("\n")
    return "\n".join(
        re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line
        for line in lines
    )


def _outside_of_code(markdown: str, link: Any) -> str:
    """Replaces links, those of fenced blocks left out."""
    pieces = re.split(r"(^ *```.*?^ *```)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(piece if number % 2 else LINK.sub(link, piece) for number, piece in enumerate(pieces))
