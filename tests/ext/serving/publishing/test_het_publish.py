"""The command het publish: what it lists, and which decisions the stream takes."""

import json
import re
import time

import pytest
import redis_lib
from cli_lib import het
from versions_lib import DIGEST, version

from het_tf.ext.serving.python.publishing.versions import Decision, History, Versions

pytestmark = redis_lib.MARKS


def command(*words, status=0):
    return het("publish", *words, status=status)


def test_het_publish_lists_and_shows(server, client):
    url = server.address
    assert command("list", url).out == "namespace '' has no versions\n"
    versions = Versions(client, "")
    now = time.time()
    for number, ago in ((1, 200_000), (2, 7000), (3, 5)):
        through = {"trained_through": 1.7e9} if number == 2 else {}
        versions.append(version(number, time=now - ago, bytes=3 << 20, **through))
    lines = command("list", url).out.splitlines()
    assert [line.split()[0] for line in lines] == ["version", "1", "2", "3"]
    assert ["  2 d  " in lines[1], "  2 h  " in lines[2], "  5 s  " in lines[3]] == [True] * 3
    assert all(re.match(r" +\d  \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  ", line) for line in lines[1:])
    assert lines[2].endswith("2023-11-14 22:13:20Z")  # a number of seconds says nothing
    assert lines[3].endswith('3.15 MB  released   {"day": [1, null]}') and max(map(len, lines)) <= 80
    assert len(command("list", url, "--last", 1).out.splitlines()) == 2
    assert [one["number"] for one in json.loads(command("list", url, "--json").out)] == [1, 2, 3]
    shown = command("show", url, 3).out
    assert "6 changes in 2 partitions" in shown and DIGEST in shown
    assert json.loads(command("show", url, 3, "--json").out)["cut"] == ["1:2", "3:4"]


def test_het_publish_says_what_is_wrong(server, client, tmp_path):
    url = server.address
    assert "has no version 4; none is kept" in command("show", url, 4, "--namespace", "a", status=1).err
    assert "it begins with none of redis://" in command("list", "ps:6379", status=1).err
    assert "'0' is not a whole number of 1 or more" in command("show", url, 0, status=2).err
    client.ask("het::versions", "XADD", "het::versions", "5-0", "kind", "version")
    assert "'5-0' is no version that this het_tf reads: it lacks dense" in command("list", url, status=1).err


def test_decisions_stand_in_one_order_with_versions(server, client):
    """Would catch a release that is refused because a later version was published meanwhile."""
    url = server.address
    versions = Versions(client, "")
    for number in (1, 2, 3):
        versions.append(version(number, kind="candidate"))
    assert versions.history().in_force == 0
    assert "there is no version 9" in command("release", url, 9, status=1).err
    assert "version 2 is released" in command("release", url, 2).out
    assert "released already" in command("release", url, 2, status=1).err
    assert "version 2 is released, which is newer" in command("release", url, 1, status=1).err
    versions.append(version(4))
    assert versions.history().in_force == 4
    assert "have not been told to go back" in command("resume", url, status=1).err
    assert "has no version 5; 1 to 4 are kept" in command("rollback", url, 5, status=1).err
    command("rollback", url, 3)
    assert "rows go on: to take them back, restore the store" in command("rollback", url, 2).out
    versions.append(version(5))
    assert versions.history().in_force == 2
    states = [line.split()[7] for line in command("list", url).out.splitlines()[1:]]
    assert states == ["candidate", "rollback", "candidate", "released", "released"]
    assert "candidate" in command("show", url, 3).out
    assert "go on from version 2" in command("resume", url).out
    history = versions.history()
    assert history.in_force == 5 and history.last == "5-1"


def test_a_decision_without_the_knowledge_of_a_newer_entry_is_made_again(client):
    """Would catch a release that is appended after one of a newer version, which it must not undo."""
    versions, asked = Versions(client, ""), []
    versions.append(version(1, kind="candidate"))

    def choose(history):
        asked.append(history.last)
        if len(asked) == 1:
            versions.append(version(2))
        if 2 in history.released:
            raise LookupError("2 is newer")
        return 1

    with pytest.raises(LookupError, match="2 is newer"):
        versions.decide("release", choose)
    assert asked == ["1-0", "2-0"] and versions.history().last == "2-0"


def test_a_history_keeps_what_followers_need():
    """Would catch versions in force that go because candidates come."""
    history = History()
    for number in range(1, 9):
        history.add(version(number, kind="version" if number == 2 else "candidate"))
    history.add(Decision("release", 3, 0.0, entry="8-1"))
    history.add(Decision("rollback", 2, 0.0, entry="8-2"))
    entries, gone = history.forget(3)
    assert sorted(history.versions) == [2, 3, 6, 7, 8] and [one.number for one in gone] == [1, 4, 5]
    assert entries == ["1-0", "4-0", "5-0"] and history.in_force == 2
    history.add(version(9))
    history.add(Decision("resume", 2, 0.0, entry="9-1"))
    entries, _ = history.forget(3)
    assert sorted(history.versions) == [7, 8, 9] and history.in_force == 9
    assert entries == ["2-0", "3-0", "6-0", "8-1", "8-2"]
