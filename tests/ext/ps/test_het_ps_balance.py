"""Which slots het ps reshard moves; without servers."""

import numpy as np
import pytest

from het_tf.ext.ps.python import balance


def plan_of(owned: dict[str, list[int]], weights: dict[int, int], leaving: str = ""):
    """Runs `plan` on a cluster that is given; returns the weight of each shard afterwards, and the moves."""
    now = {slot: name for name, slots in owned.items() for slot in slots}
    moves = balance.plan(owned, weights, leaving)
    assert len({move.slot for move in moves}) == len(moves), "no slot moves twice"
    for move in moves:
        assert now[move.slot] == move.source != move.target
        now[move.slot] = move.target
    assert leaving not in now.values()
    load = {name: sum(weights.get(s, 0) for s, owner in now.items() if owner == name) for name in owned}
    return load, moves


def test_the_only_shard_stays():
    with pytest.raises(Exception, match="the only shard cannot be removed"):
        plan_of({"a": [1]}, {1: 1}, "a")


def random_cluster(rng: np.random.Generator) -> dict[str, list[int]]:
    cuts = np.sort(rng.integers(0, 200, rng.integers(1, 6)))
    return {str(n): part.tolist() for n, part in enumerate(np.split(np.arange(200), cuts))}


@pytest.mark.parametrize("seed", range(40))
def test_equal_weights_become_even_by_the_fewest_moves(seed):
    """Would catch a rule under which clusters that are even are moved about."""
    rng = np.random.default_rng(seed)
    owned = random_cluster(rng)
    weights = dict.fromkeys(rng.choice(200, rng.integers(0, 150), replace=False).tolist(), 1)
    before = {name: sum(weights.get(slot, 0) for slot in slots) for name, slots in owned.items()}
    for leaving in ("", "0"):
        load, moves = plan_of(owned, weights, leaving)
        loads = [value for name, value in load.items() if name != leaving]
        assert max(loads) - min(loads) <= 1
        gained = sum(max(0, load[name] - before[name]) for name in owned)
        assert len(moves) == gained + sum(slot not in weights for slot in owned.get(leaving, ()))
    assert plan_of(owned, {}) == (dict.fromkeys(owned, 0), [])


@pytest.mark.parametrize("slots", [6, 12, 64])
def test_no_move_makes_the_heaviest_shard_heavier(slots):
    """Would catch a rule that moves too large a slot, moves one there and back, or stops too early."""
    rng = np.random.default_rng(slots)
    for _ in range(200):
        owned = random_cluster(rng)
        of = {slot: name for name, there in owned.items() for slot in there}
        chosen = rng.choice(200, slots, replace=False).tolist()
        weights = dict(zip(chosen, (10 * rng.pareto(1.1, slots)).astype(int).tolist(), strict=True))
        load, moves = plan_of(owned, weights)
        before, most = [sum(weights.get(s, 0) for s in there) for there in owned.values()], max(load.values())
        assert most <= max(before)
        if most > sum(before) / len(owned):
            of |= {move.slot: move.target for move in moves}
            heaviest = max(load, key=load.__getitem__)
            there = [weights.get(slot, 0) for slot in of if of[slot] == heaviest]
            assert not [weight for weight in there if 0 < weight < most - min(load.values())]
