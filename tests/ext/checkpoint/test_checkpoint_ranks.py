"""Matching of tables before a load, and exchanges between ranks, without rows."""

from __future__ import annotations

import pytest
from checkpoint_lib import SPEC, document
from played_lib import Played

from het_tf.ext.checkpoint.python import compare, manifest
from het_tf.ext.checkpoint.python.ranks import Ranks
from het_tf.python.session import settings

# --- what tables must have in common -----------------------------------------------------------------------


def saved(tmp_path, **tables) -> manifest.Manifest:
    listed = [{**document()["tables"][0], "name": name, "spec": {**SPEC, "name": name, **spec}}
              for name, spec in tables.items()]  # fmt: skip
    return manifest.Manifest(tmp_path, document(tables=listed))


def live(**tables):
    return {
        name: {"spec": {**SPEC, "name": name, **spec}, "slots": [["accumulator", 4]]}
        for name, spec in tables.items()
    }


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"dim": 8}, r"dim +4 +8"),
        ({"seed": 3}, r"seed +0 +3"),
        ({"initializer": {"name": "uniform", "a": -0.1, "b": 0.05}}, r"initializer\.a +-0\.05 +-0\.1"),
        ({"optimizer": {"name": "sgd", "params": {}}, "dim": 2}, r"optimizer\.params\.eps +1e-07 +-"),
    ],
)
def test_what_a_row_means_must_not_differ(tmp_path, change, line):
    for slots in (True, False):
        if slots or "optimizer" not in change:
            with pytest.raises(ValueError, match=line) as caught:
                compare.match(saved(tmp_path, a={}), live(a=change), slots=slots, strict=False)
            assert "declare the table as it was saved" in str(caught.value)
    assert "slots=False" not in str(caught.value), "that would not help"


def test_an_optimizer_may_change_if_its_slots_begin_anew(tmp_path):
    here = live(a={"optimizer": {"name": "adam", "params": {"beta1": 0.9}}})
    with pytest.raises(ValueError, match=r'optimizer\.name +"adagrad" +"adam"') as caught:
        compare.match(saved(tmp_path, a={}), here)
    assert "give slots=False" in str(caught.value) and "optimizer.params.beta1" in str(caught.value)
    assert compare.match(saved(tmp_path, a={}), here, slots=False).tables == {"a": "a"}
    # Equal by name and parameters, with other slots: as of another version.
    here = live(a={})
    here["a"]["slots"] = [["accumulator", 1]]
    with pytest.raises(ValueError, match=r'slots +\[\["accumulator", 4\]\] +\[\["accumulator", 1\]\]'):
        compare.match(saved(tmp_path, a={}), here)
    # Ftrl's values are made of its slots.
    here = live(a={"optimizer": {"name": "ftrl", "params": {}}})
    with pytest.raises(ValueError, match="FTRL computes the values from the slots"):
        compare.match(saved(tmp_path, a={}), here, slots=False)
    with pytest.raises(ValueError, match=r"as it was saved$"):
        compare.match(saved(tmp_path, a={}), here)


# --- ranks -------------------------------------------------------------------------------------------------


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
