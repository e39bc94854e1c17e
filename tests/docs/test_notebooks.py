"""The tutorials as they are stored; check_docs.py reads their links, `make test-all-notebooks` runs them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))
MACHINE = re.compile(r"(?<![\w.~])/(?:home|root|tmp|work|usr/lib|var)/\S*|site-packages")


def text(output: Any) -> str:
    return "".join(output.get("text", output.get("data", {}).get("text/plain", "")))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_stored(path: Path) -> None:
    """Parsed and executed in order, without errors, warnings, and what differs between runs and machines."""
    notebook = json.loads(path.read_text())
    assert sorted(notebook["metadata"]) == ["kernelspec", "language_info"]
    assert list(notebook["metadata"]["language_info"]) == ["name"], "the version of Python is the machine's"
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        assert not any(output.get("metadata") for output in cell.get("outputs", ()))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), "make notebooks"
    for number, cell in enumerate(code, 1):
        where = f"{path.name}, code cell {number}"
        compile("".join(cell["source"]), where, "exec")
        for output in cell["outputs"]:
            assert output["output_type"] != "error", where
            assert output.get("name") != "stderr", f"{where}: {text(output)}"
            assert not MACHINE.findall(text(output)), where
    assert sum(bool(cell["outputs"]) for cell in code) > len(code) // 2, "make notebooks"
