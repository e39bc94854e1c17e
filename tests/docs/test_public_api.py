"""Public names and their arguments change on purpose only."""

import pytest
from tools_lib import script


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


def test_classes_that_are_read_have_the_lines_of_imported_ones(tool):
    source = """
class _Base:
    def __init__(self, of):
        ...
    @property
    def tables(self) -> list[int]:
        ...
    def load(self, state: dict[str, int], *, slots: bool = True) -> None:
        ...
class Bag(_Base):
    def __init__(self, dim: int, mode: str = "mean", padding_id: int | None = None, **options):
        ...
    def _learns(self):
        ...
"""
    names: dict = {}
    exec(source, names)
    names["Bag"].__module__ = names["_Base"].__module__ = "het_tf.torch"
    assert sorted(tool.read("Bag", source, ["Bag"])) == [
        "Bag.Bag(dim, mode='mean', padding_id=None, **options)",
        "Bag.Bag.load(state, *, slots=True)",
        "Bag.Bag.tables",
    ]
    assert sorted(tool.read("Bag", source, ["Bag"])) == sorted(tool.lines("Bag.Bag", names["Bag"]))
