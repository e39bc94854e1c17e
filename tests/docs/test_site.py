"""The site of `make docs`: it builds without a warning, which mkdocs gives of links and anchors, too."""

import html.parser
import json
import os
import re
import subprocess

import pytest
from tools_lib import ROOT, script

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
    marks = re.compile(r".*(?:\]\(|\]\[|\*\*(?!\d)).*")
    assert not {path: found for path, page in pages.items() if (found := marks.findall(page.words))}


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


def test_pages_ask_no_other_host_and_are_searched(site, pages):
    asked = {(path.name, link) for path, page in pages.items() for link in page.fetched}
    assert len(pages) > 35
    assert not {one for one in asked if one[1].startswith(("http:", "https:", "//"))}
    found = json.loads((site / "search/search_index.json").read_text())["docs"]
    assert "reference/het_tf.html#het_tf.lookahead" in {one["location"] for one in found}
