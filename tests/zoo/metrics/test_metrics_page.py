"""The Python of docs/metrics.md runs, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"


@pytest.mark.long
def test_the_page_runs(fresh, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    assert len((tmp_path / "progressive.csv").read_text().splitlines()) == 1 + 3 + 1
    assert "50 groups, 0 left out" in printed
    assert "ndcg_at_2 0.157" in printed and "recall_at_2 0.25" in printed and "mrr 0.375" in printed
