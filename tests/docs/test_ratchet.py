"""The lint of sizes that may only fall (tools/check_ratchet.py)."""

from collections import Counter
from pathlib import Path

import pytest
import tomllib
from tools_lib import script


@pytest.fixture(scope="module")
def lint():
    return script("tools/check_ratchet")


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_what_is_code(lint, tmp_path):
    """Would count comments, docstrings, or a literal that looks like a comment as one."""
    write(
        tmp_path,
        a_dot_cc='// one\n/* two\n three */ int a;\n\nconst char* b = "http://x";  // four\n',
        b_dot_py='"""Doc.\n\nMore."""\n# no\nx = """a\nb"""\n\n\ndef f():\n    "Doc."\n    return 1\n',
    )
    assert lint.code_lines(tmp_path / "a.cc") == 2
    assert lint.code_lines(tmp_path / "b.py") == 4


def test_names_for_tests_alone(lint, tmp_path):
    """Would miss a function that only tests call, or take a definition apart for a call."""
    write(
        tmp_path,
        het_tf__core__a_dot_h="class A {\n  void Used(int n);\n  int Unused() const;\n  // Unused()\n};\n",
        het_tf__core__a_dot_cc="void A::Used(int n) {}\nint A::Unused() const {}\nvoid F() { a.Used(1); }\n",
        tests__a_dot_cc="a.Used(2); a.Unused();",
    )
    assert lint.for_tests_alone(tmp_path) == ["Unused"]


def test_a_home_for_each_file(lint, tmp_path):
    """Would leave a new folder uncounted."""
    files = ("het_tf__core__a_dot_py", "het_tf__new__b_dot_py", "tests__c_dot_py")
    write(tmp_path, **dict.fromkeys(files, "a = 1\n"))
    with pytest.raises(SystemExit, match=r"het_tf/new/b\.py is in no home"):
        lint.lines_of(tmp_path, {"core": ["core"]})
    assert lint.lines_of(tmp_path, {"core": ["core"], "rest": [""]}) == Counter(core=1, rest=1, tests=1)


def test_limits_only_fall(lint):
    """Would take growth, or leave room for it after something went."""
    table = {"lines": {"core": 100}, "most": {"public names": 5}}
    at, above, below = (
        {"lines": {"core": core}, "most": {"public names": names}}
        for core, names in ((60, 5), (101, 6), (40, 4))
    )
    assert lint.faults(table, at) == []
    found = [fault.split(":")[0] for fault in lint.faults(table, above)]
    assert found == ["lines, core", "most, public names"]
    assert len(lint.faults(table, below)) == 2
    text = '[lines]\n"core" = 100\n[most]\n"public names" = 5\n'
    assert tomllib.loads(lint.lowered(text, table, below)) == below
    assert lint.lowered(text, table, above) == text
