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


def document(*lines: str) -> str:
    """A page that ends with the sources of its figures."""
    return (
        "saves 88.0 % of it, 0.25 less\n\n<!-- figures\n" + "".join(f"{line}\n" for line in lines) + "-->\n"
    )


def test_figures_of_the_documents_are_those_of_the_files():
    pages = figures.documents()
    assert ROOT / "README.md" in pages and len(pages) > 3
    for path in pages:
        assert figures.renewed(path.read_text()) == (path.read_text(), []), path


def test_a_stale_figure_is_reported_and_renewed(root):
    text = document("88.0 % = result.json runs of=a,n=8 part .1%", "0.25 = result.json runs of=b part -.2f")
    new, faults = figures.renewed(text, root)
    assert new == text.replace("88.0 %", "89.5 %")
    assert faults == ["'88.0 %' is '89.5 %' in result.json runs of=a,n=8 part .1%"]
    assert figures.renewed(new, root) == (new, [])


def test_a_loss_is_the_negated_number(root):
    assert figures.figure("result.json runs of=b part -.2f", root) == "0.25"


@pytest.mark.parametrize(
    "source",
    ["gone.json runs of=a part .1%", "result.json runs n=8 part .1%", "result.json runs of=a other .1%"],
)
def test_a_source_must_select_one_number(root, source):
    """Would catch a figure that is silently kept after its file was moved, or its entry renamed."""
    text = document(f"88.0 % = {source}")
    new, faults = figures.renewed(text, root)
    assert new == text and faults


@pytest.mark.parametrize("said", ["5.0 %", "0.2", "89.5 %"])
def test_a_figure_that_the_text_has_not_is_a_fault(root, said):
    """Would catch a source that outlives its figure, and one that is found inside of another number."""
    assert (
        "the text has no" in figures.renewed(document(f"{said} = result.json runs of=a part .1%"), root)[1][0]
    )


def test_sources_that_are_not_the_end_are_a_fault(root):
    assert figures.renewed(document("88.0 % = result.json runs of=a part .1%") + "more\n", root)[1]
