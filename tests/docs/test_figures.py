"""Figures in prose come from JSON: tools/figures.py."""

import json
from pathlib import Path

import pytest
from tools_lib import script

ROOT = Path(__file__).resolve().parents[2]
figures = script("tools/figures")


@pytest.fixture
def root(tmp_path):
    entries = [{"of": "a", "n": 8, "part": 0.8951}, {"of": "b", "n": 8, "part": -0.25}]
    (tmp_path / "result.json").write_text(json.dumps({"runs": entries}))
    return tmp_path


def test_figures_of_the_documents_are_those_of_the_files():
    for name in figures.DOCUMENTS:
        text = (ROOT / name).read_text()
        assert "<!-- figure" in text
        assert figures.renewed(text) == (text, []), name


def test_a_stale_figure_is_reported_and_renewed(root):
    text = "saves <!-- figure result.json runs of=a,n=8 part .1% -->88.0 %<!-- end --> of it"
    new, faults = figures.renewed(text, root)
    assert new == text.replace("88.0 %", "89.5 %")
    assert faults == ["'88.0 %' is '89.5 %' in result.json runs of=a,n=8 part .1%"]
    assert figures.renewed(new, root) == (new, [])


def test_a_loss_is_the_negated_number(root):
    assert figures.figure("result.json runs of=b part -.2f", root) == "0.25"


@pytest.mark.parametrize(
    "marker",
    ["gone.json runs of=a part .1%", "result.json runs n=8 part .1%", "result.json runs of=a other .1%"],
)
def test_marker_must_select_one_number(root, marker):
    """Would catch a figure that is silently kept after its file was moved, or its entry renamed."""
    text = f"<!-- figure {marker} -->1<!-- end -->"
    new, faults = figures.renewed(text, root)
    assert new == text
    assert faults


def test_a_figure_without_an_end_is_a_fault(root):
    assert figures.renewed("<!-- figure result.json runs of=a part .1% -->1", root)[1]
