"""The tutorials as they are stored: parsed and executed; `make test-all-notebooks` executes them again."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))
MACHINE = re.compile(r"(?<![\w.~])/(?:home|root|tmp|work|usr/lib|var)/\S*|site-packages")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def cells(path: Path, kind: str) -> list[Any]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def text(output: Any) -> str:
    return "".join(output.get("text", output.get("data", {}).get("text/plain", "")))


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) == 7


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_code_parses_and_was_executed_in_order(path: Path) -> None:
    """Without errors or warnings, and outputs name neither directories nor packages of the machine."""
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), "make notebooks"
    for number, cell in enumerate(code, 1):
        where = f"{path.name}, code cell {number}"
        compile("".join(cell["source"]), where, "exec")
        for output in cell["outputs"]:
            assert output["output_type"] != "error", where
            assert output.get("name") != "stderr", f"{where}: {text(output)}"
            assert not MACHINE.findall(text(output)), where
    assert sum(bool(cell["outputs"]) for cell in code) > len(code) // 2, "make notebooks"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_nothing_is_stored_that_differs_from_run_to_run(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert sorted(notebook["metadata"]) == ["kernelspec", "language_info"]
    assert list(notebook["metadata"]["language_info"]) == ["name"], "the version of Python is the machine's"
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        assert not any(output.get("metadata") for output in cell.get("outputs", ()))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_to_pages(path: Path) -> None:
    for cell in cells(path, "markdown"):
        for link in LINK.findall("".join(cell["source"])):
            assert link.startswith("http") or (TUTORIALS / link).exists(), f"{path.name}: {link}"
