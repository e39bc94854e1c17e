"""Public names and their arguments change on purpose only."""

from pathlib import Path

import pytest
from tools_lib import script

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool():
    return script("tools/public_api")


def test_public_names_are_those_of_the_file(tool):
    """A renamed argument, a lost name or another default breaks programs of users without an error here."""
    kept, found = set(tool.FILE.read_text().splitlines()), set(tool.public_api().splitlines())
    gone, new = sorted(kept - found), sorted(found - kept)
    assert not gone and not new, f"gone: {gone}; new: {new}. Meant so? python tools/public_api.py --write"


def test_a_changed_default_and_a_new_method_show(tool):
    class Old:
        __module__ = "het_tf.old"

        def __init__(self, rows=1, *, staleness=30):
            pass

    class New(Old):
        __module__ = "het_tf.new"

        def __init__(self, rows=1, *, staleness=100):
            pass

        @classmethod
        def of(cls, rows):
            pass

    assert list(tool.lines("Cache", Old)) == ["Cache(rows=1, *, staleness=30)"]
    assert list(tool.lines("Cache", New)) == ["Cache(rows=1, *, staleness=100)", "Cache.of(rows)"]
