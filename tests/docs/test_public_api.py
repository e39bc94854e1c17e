"""Public names and their arguments change on purpose only."""

from tools_lib import script


def test_public_names_are_those_of_the_file():
    """A renamed argument, a lost name or another default breaks programs of users without an error here."""
    tool = script("tools/public_api")
    kept, found = set(tool.FILE.read_text().splitlines()), set(tool.public_api().splitlines())
    gone, new = sorted(kept - found), sorted(found - kept)
    assert not gone and not new, f"gone: {gone}; new: {new}. Meant so? python tools/public_api.py --write"
