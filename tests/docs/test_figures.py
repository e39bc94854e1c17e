"""Figures in prose come from JSON: tools/figures.py."""

import json

import pytest
from tools_lib import script

figures = script("tools/figures")


@pytest.fixture
def root(tmp_path):
    entries = [{"of": "a", "n": 8, "part": 0.8951}, {"of": "b", "n": 8, "part": -0.25}]
    (tmp_path / "result.json").write_text(json.dumps({"runs": entries}))
    return tmp_path


def document(*lines: str) -> str:
    """A page that ends with the sources of its figures."""
    return "\n".join(["saves 88.0 % of it, 0.25 less\n\n<!-- figures", *lines, "-->\n"])


def test_a_stale_figure_is_reported_and_renewed(root):
    text = document("88.0 % = result.json runs of=a,n=8 part .1%", "0.25 = result.json runs of=b part -.2f")
    new, faults = figures.renewed(text, root)
    assert new == text.replace("88.0 %", "89.5 %")
    assert faults == ["'88.0 %' is '89.5 %' in result.json runs of=a,n=8 part .1%"]
    assert figures.renewed(new, root) == (new, [])


FAULTS = [
    # A figure that is silently kept after its file was moved, or its entry renamed.
    ("88.0 %", "gone.json runs of=a part .1%"),
    ("88.0 %", "result.json runs n=8 part .1%"),
    ("88.0 %", "result.json runs of=a other .1%"),
    # A source that outlives its figure, or one that is found inside of another number.
    *[(said, "result.json runs of=a part .1%") for said in ("5.0 %", "0.2", "89.5 %")],
]


@pytest.mark.parametrize(("figure", "source"), FAULTS)
def test_what_a_source_cannot_renew_is_a_fault(root, figure, source):
    text = document(f"{figure} = {source}")
    new, faults = figures.renewed(text, root)
    assert faults
    assert new == text if figure == "88.0 %" else "the text has no" in faults[0]


def test_sources_that_are_not_the_end_are_a_fault(root):
    assert figures.renewed(document("88.0 % = result.json runs of=a part .1%") + "more\n", root)[1]
