"""Exchanges between ranks, without rows."""

from __future__ import annotations

import pytest
from played_lib import Played

from het_tf.ext.checkpoint.python.ranks import Ranks
from het_tf.python.session import settings


@pytest.fixture
def play(monkeypatch):
    """Makes this process rank `me` of two; the other one says what `other` makes of this one's value."""

    def play(other, me=0):
        hvd = Played(me=me)
        hvd.others = lambda value: [other(value)]
        monkeypatch.setattr(settings.current, "workers", hvd)
        return hvd

    return play


def test_results_of_all_ranks_and_of_the_first(play):
    hvd = play(lambda value: ([one * 10 for one in value[0]], [], ""))
    ranks = Ranks()
    assert ranks.together("x", lambda: 3) == [3, 30] and ranks.first("x", lambda: 4) == 4
    play(lambda value: (["of rank 0"], [], ""), me=1)
    ranks = Ranks()

    def never():
        raise AssertionError

    assert ranks.first("x", never) == "of rank 0"
    assert ranks.share([1, 2, 3]) == [2]
    assert Ranks(alone=True).size == 1 and len(hvd.gathered) == 2


def test_an_error_of_one_rank_is_one_of_all(play):
    hvd = play(lambda value: ([None], [], ""))
    with pytest.raises(ZeroDivisionError):
        Ranks().together("divide", lambda: 1 // 0)
    assert len(hvd.gathered) == 1, "the other rank was told"
    with pytest.raises(KeyboardInterrupt):
        Ranks().together("wait", lambda: (_ for _ in ()).throw(KeyboardInterrupt()))
    assert len(hvd.gathered) == 2

    class DiskFull(OSError):
        pass

    for error, expected in [
        (DiskFull("no space"), OSError),
        (FileNotFoundError("no file"), FileNotFoundError),
        (KeyboardInterrupt("key"), RuntimeError),
    ]:
        kinds = [cls.__name__ for cls in type(error).__mro__]
        play(lambda value, said=([], kinds, str(error)): said)
        with pytest.raises(expected, match=f"rank 1 could not write: {error}"):
            Ranks().together("write", lambda: 3)


def test_ranks_that_were_called_differently_are_told(play):
    play(lambda value: ([{"step": 2}], [], ""))
    with pytest.raises(
        ValueError, match=r"different arguments: rank 0: \{'step': 1\}, rank 1: \{'step': 2\}"
    ):
        Ranks().agree("arguments", {"step": 1})
