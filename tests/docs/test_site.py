"""The site of `make docs`: it builds without a warning, every link leads somewhere, every name is there.

Links and anchors are read from the HTML.
"""

import html.parser
import json
import os
import re
import subprocess
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tools_lib import script

ROOT = Path(__file__).resolve().parents[2]
MKDOCS = ROOT / ".venv-docs/bin/mkdocs"
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not MKDOCS.exists(), reason=f"there is no {MKDOCS}; `make docs` makes it"),
]


CODE = ("code", "pre", "script", "style", "title")


class Page(html.parser.HTMLParser):
    """Where the links of a page lead, which anchors it has, and its words outside of code."""

    def __init__(self, path):
        super().__init__()
        self.links, self.fetched, self.anchors, self.text = [], [], set(), path.read_text()
        self.words, self._in_code = "", 0
        self.feed(self.text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        for name in ("href", "src"):
            if found.get(name) is not None:
                self.links.append(found[name])
                if name == "src" or (tag == "link" and found.get("rel") != "canonical"):
                    self.fetched.append(found[name])
        self._in_code += tag in CODE

    def handle_endtag(self, tag):
        self._in_code -= tag in CODE

    def handle_data(self, data):
        self.words += "" if self._in_code else data


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    place = tmp_path_factory.mktemp("site") / "site"
    done = subprocess.run(
        [MKDOCS, "build", "--strict", "--site-dir", place], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return place


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def test_no_page_shows_markdown(pages):
    """Would catch: a list or table that is not one for want of an empty line, and a link that stays text."""
    left = {
        str(path): re.findall(r".*(?:\]\(|\]\[|\*\*(?!\d)).*", page.words) for path, page in pages.items()
    }
    assert not {path: lines for path, lines in left.items() if lines}


def test_every_link_and_anchor_resolves(site, pages):
    broken = []
    there = {str(path) for path in site.rglob("*")}
    anchors = {str(path): page.anchors for path, page in pages.items()}
    for path, page in pages.items():
        for link in set(page.links):
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data", "javascript") or path.name == "404.html":
                continue
            target = os.path.normpath(path.parent / unquote(parts.path)) if parts.path else str(path)
            if f"{target}/index.html" in there:
                target += "/index.html"
            if target not in there:
                broken.append(f"{path.relative_to(site)}: {link}")
            elif parts.fragment and target in anchors:
                anchor = unquote(parts.fragment)
                if anchor not in anchors[target] and not anchor.startswith("__"):  # Material's own
                    broken.append(f"{path.relative_to(site)}: {link}: no such anchor")
    assert len(pages) > 35
    assert not broken, "\n".join(broken)


def test_reference_lists_exactly_the_public_names(site, pages):
    missing = []
    for module, names in script("tools/docs_site").public_names().items():
        assert names
        page = pages[site / f"reference/{module}.html"]
        missing += [f"{module}.{name}" for name in names if f"{module}.{name}" not in page.anchors]
        missing += [f"{module}.{name}" for name in names if f"#{module}.{name}" not in page.links]  # summary
        of_keras = ("call", "get_config", "compute_output_spec", "on_epoch_end", "save_own_variables")
        missing += [name for name in page.anchors if name.rpartition(".")[2] in of_keras]
    assert not missing


def test_no_page_asks_another_host_for_anything(pages):
    asked = {(path.name, link) for path, page in pages.items() for link in page.fetched}
    assert not {one for one in asked if one[1].startswith(("http:", "https:", "//"))}


def test_the_search_knows_names_and_words(site):
    found = json.loads((site / "search/search_index.json").read_text())["docs"]
    locations = {one["location"] for one in found}
    assert {"concepts.html#clocks-and-bounds", "reference/het_tf.html#het_tf.lookahead"} <= locations
    assert sum("staleness" in one["text"] for one in found) > 5
