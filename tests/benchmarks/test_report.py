"""benchmarks/report.py: documents have the figures of the results, and goals say what they judged."""

from pathlib import Path

import pytest
from tools_lib import python

from benchmarks import report


def test_documents_are_up_to_date() -> None:
    """Would see a figure that was made by hand, a block that nobody wrote, and a stale accuracy.json."""
    stale = [path for path, text in report.outputs().items() if path.read_text() != text]
    assert not stale, f"python benchmarks/report.py writes {stale}"
    empty = [path for path, text in report.outputs().items() if "Not measured yet." in text]
    assert not empty, f"a table of {empty} selects no record"


def test_every_question_has_its_files_and_is_linked() -> None:
    """Would see a result that no document leads to."""
    links = (report.ROOT / "docs/benchmarks.md").read_text()
    for program in report.HERE.glob("*/run.py"):
        folder = program.parent
        assert report.load(folder.name)["command"].startswith("python benchmarks/"), folder
        assert f"benchmarks/{folder.name}/run.py" in links, folder


def test_goals() -> None:
    """Would see a sign the wrong way round, and a miss that is not told."""
    judged = [report.goal("share", 0.5, ">=", 0.4), report.goal("points", 5, "<=", 4)]
    assert [one["met"] for one in judged] == [True, False]
    lines = report.block("goals", "some", {"some": {"goals": judged}})
    assert lines[0].startswith("1 of 2") and lines[-1] == "| points | at most 4 |        5 |"


@pytest.mark.long
@pytest.mark.parametrize("program", sorted(report.HERE.glob("*/run.py")), ids=lambda path: path.parent.name)
def test_programs_say_how_they_are_called(program: Path) -> None:
    """Would see an import of a module that has moved."""
    assert "--out" in python(program, "--help").stdout
