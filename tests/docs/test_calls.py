"""What texts name is there: the lint of calls and commands (tools/check_calls.py), and of docstrings' links.

Defects: five messages advised `het_tf.init(deadline=...)`, a TypeError; a docstring's `HOST[:PORT][,...]` was
read as a link, and the site did not build.
"""

from collections import Counter

import pytest
from tools_lib import script


@pytest.fixture(scope="module")
def lint():
    return script("tools/check_calls")


def of(lint, text):
    """The faults of a text."""
    return list(lint.faults([text], Counter()))


TEXTS = [
    ("raise het_tf.init(deadline=...)", "unexpected keyword argument 'deadline'"),
    ("give het_tf.Stores(deadline=3)", "has no 'Stores'"),
    ("see het_tf.checkpoint.rest", "has no 'rest'"),
    ("use Cache(rowss=4)", "unexpected keyword argument 'rowss'"),
    ('het_tf.Table("x").look(ids)', "Table has no 'look'"),
    ("set het_tf.Store(durability='always')", "always"),
    ("call `table.lookup(ids, store=True)`", "unexpected keyword argument 'store'"),
    ("give a het_tf.Store(ADDRESS, deadline=, keep_bytes=, ...) or het_tf.Table(", None),
    ('het_tf.init(ps=het_tf.Store("redis://HOST:PORT", durability="replicated"))', None),
    ("start them (`het ps begin`)", "there is no het ps begin"),
    ("`het ps up --appendfsync never`", "not one of"),
    ("`het ps up --shards x7`", "x7"),
    ("run het ps up --shard 2 first", "no option --shard"),
    ("`het ps [up|down] --dir DIR`, `het ps up --shards 2 --dir DIR` | tee and het ps itself", None),
    ("`het run --nproc 2 train.py --epochs 3`", None),
    ("then `make weel`", "no target 'weel'"),
    ("`make wheel DIST=here` or make it again", None),
    ("`python -m het_tf.python.doctor`", "no module het_tf.python.doctor"),
    ("`python examples/wide_deep.py --no-such-option 3`", "no option --no-such-option"),
]


@pytest.mark.parametrize(("words", "why"), TEXTS)
def test_texts(lint, words, why):
    from calls.texts import Text

    found = of(lint, Text("a.py:1", words))
    assert bool(found) == (why is not None), found
    assert why is None or why in found[-1]


def test_strings_of_both_languages(lint):
    """A message in pieces is one text: a call may begin in one and end in another."""
    from calls.texts import of_cpp, of_python

    code = 'raise ValueError(f"{name} is old; raise het_tf.init(" "deadline=...)")\n'
    (text,) = of_python("a.py", code)
    assert "unexpected keyword argument 'deadline'" in of(lint, text)[0]
    code = 'return Error("late (" + Text(s) + "). Raise het_tf.init(" // why: "x"\n  "deadline=...)");'
    (text,) = of_cpp("a.cc", code)
    assert "unexpected keyword argument 'deadline'" in of(lint, text)[0]


def test_pages(lint):
    """Variables keep their class through the blocks of a page; words of usages are no words of a command."""
    from calls.texts import of_markdown

    page = """
Give `Cache(row=3)`.

```python
import het_tf
table = het_tf.Table("t")
```

```python
table.lookup(ids, stored=True)
table.lookup(ids, store=True)
```

```bash
het ps up --shards 2 \\
  --dirs x   # a comment with --shards
PS=x het ps status --dir d && het ckpt inspct d
```
"""
    found = "\n".join(of(lint, of_markdown("a.md", page)))
    for why in ("'row'", "'store'", "--dirs", "inspct"):
        assert why in found, found
    assert len(found.splitlines()) == 4, found


def test_too_few_are_an_error(lint, monkeypatch, capsys):
    monkeypatch.setattr(lint, "texts", lambda: iter(()))
    assert lint.main() == 1
    assert "the extraction has failed" in capsys.readouterr().out


def test_brackets_of_a_docstring_are_no_links():
    check = script("tools/check_docs")
    assert check.links_by_chance('Args:\n  ps: "redis://HOST[:PORT][,...]", or\n    unix.') != []
    assert check.links_by_chance("Args:\n  ps: `redis://HOST[:PORT][,...]`\n\n    rows[0](x)") == []
