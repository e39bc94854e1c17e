"""The lint of who uses whom (tools/check_arrows.py)."""

from pathlib import Path

import pytest
from tools_lib import script

TREE = {
    "het_tf/core/PORTS": "# headers\nrow/a.h\n",
    "het_tf/core/row/a.h": "",
    "het_tf/core/cache/b.h": '#include "het_tf/core/row/a.h"\n',
    "het_tf/ext/gpu/cc/c.cc": '#include "het_tf/core/row/a.h"\n',
    "het_tf/ext/ps/python/d.py": "",
    "het_tf/ext/gpu/python/e.py": "def f():\n    from het_tf.ext.ps.python import d\n",
    "het_tf/keras.py": "",
    "het_tf/python/table/f.py": "",
    "tools/arrows.toml": """[cc]
"core/row" = []
"core/cache" = ["core/row"]
"ext/gpu" = ["core/row"]

[python]
"public" = []
"python/table" = []
"ext/ps" = []
"ext/gpu" = ["ext/ps"]
""",
}


@pytest.fixture
def faults(tmp_path, monkeypatch, capsys):
    """What the lint says of the tree above, with some files of another text."""
    lint = script("tools/check_arrows")
    monkeypatch.setattr(lint, "TABLE", tmp_path / "tools/arrows.toml")

    def of(*arguments: str, **files: str) -> str:
        for name, text in {**TREE, **files}.items():
            path = tmp_path / Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        status = lint.main(list(arguments), tmp_path)
        said = capsys.readouterr().out
        assert bool(status) == ("all in arrows.toml" not in said)
        return said

    return of


def test_a_tree_that_keeps_its_table(faults):
    assert faults() == "3 includes and imports: all in arrows.toml\n"


REFUSED = [
    ("het_tf/core/row/z.h", '#include "het_tf/ext/gpu/cc/c.h"', "the core uses no extension"),
    ("het_tf/core/row/z.h", '#include "het_tf/core/cache/b.h"', "core/row may not use core/cache"),
    ("het_tf/python/table/z.py", "import het_tf.ext.ps.python.d", "python/ uses no extension"),
    ("het_tf/python/table/z.py", "HOME = 'het_tf.ext.ps.python.d'", "python/ uses no extension"),
    ("het_tf/ext/ps/python/z.py", "import het_tf.keras", "ext/ps may not use public"),
    ("het_tf/ext/gpu/cc/z.h", '#include "het_tf/core/row/b.h"', "row/b.h is no port"),
    ("het_tf/core/PORTS", "row/a.h\nrow/b.h\n", "nobody uses row/b.h"),
]


@pytest.mark.parametrize(("file", "text", "fault"), REFUSED)
def test_what_is_refused(faults, file, text, fault):
    assert fault in faults(**{file: text})


def test_an_arrow_that_nobody_uses_goes(faults):
    loose = TREE["tools/arrows.toml"].replace('"ext/ps" = []', '"ext/ps" = ["public"]')
    name = {"tools/arrows.toml": loose}
    assert "ext/ps uses public no more" in faults(**name)
    assert "all in arrows.toml" in faults("--write", **name)
