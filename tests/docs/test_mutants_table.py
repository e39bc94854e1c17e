"""The table of random mutants (tools/mutants_table.py, mutation.py)."""

import json

import pytest
from tools_lib import script

SOURCE = """constexpr int kMost = 4;
void g(int);
bool f(int a, bool b) {
  if (a < kMost && !b) g(3);
  g(a);
  return b;
}
"""
# What is compiled: an operator in another, a condition, a literal, a call, a result; the constant stays.
MUTATED = """  if ((::het::Mutant(1) ? (!(a < kMost && !b)) : static_cast<bool>((::het::Mutant(2) ? \
(a < kMost || !b) : ((::het::Mutant(3) ? (a <= kMost) : (a < kMost)) && \
(::het::Mutant(4) ? (static_cast<bool>(b)) : (!b))))))) g((::het::Mutant(5) ? (3 + 1) : (3)));
  if (!::het::Mutant(0)) g(a);
  return (::het::Mutant(6) ? (!(b)) : static_cast<bool>(b));"""


def test_what_is_mutated(tmp_path):
    pytest.importorskip("clang.cindex", reason="make mutants-table installs it")
    tool = script("tools/mutation")
    (tmp_path / "a.cc").write_text(SOURCE)
    found = tool.find(tmp_path / "a.cc", [], tmp_path, lambda name: name == "a.cc")
    text = tool.rewrite(SOURCE.encode(), list(enumerate(found))).decode().splitlines()
    assert "\n".join(text[3:6]) == MUTATED and text[:3] == SOURCE.splitlines()[:3]
    assert len({tool.draw(found, seed, 1)[0].id for seed in range(50)}) == 7
    (tmp_path / "a.cc").write_text("// a line more\n" + SOURCE)  # changes no identity
    assert {m.id for m in found} == {m.id for m in tool.find(tmp_path / "a.cc", [], tmp_path, bool)}


def test_a_sole_killer(tmp_path):
    killers = [{"a": ["A.x"], "b": ["P/B.y/0", "P/B.y/1"]}, {"a": [], "b": ["P/B.y/1"]}, {"a": []}, {}]
    records = [{"id": n, "text": f"m{n}", "hangs": 0, "killers": of} for n, of in enumerate(killers)]
    records.append({"suite": "c", "tests": ["C.z"]})
    (tmp_path / "r").write_text("\n".join(map(json.dumps, records)))
    report = script("tools/mutants_table").report
    rows = [line.split() for line in report(tmp_path / "r", each_test=True).splitlines()]
    assert rows[2:5] == [["2", "1", "B.y"], ["1", "0", "A.x"], ["0", "0", "C.z"]]
    assert rows[5:] == [["survivors"], ["m2"], ["not", "reached"], ["m3"]]
    assert ["2", "1", "b"] in [line.split() for line in report(tmp_path / "r", each_test=False).splitlines()]
