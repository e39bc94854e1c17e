"""Which slots move, so that shards carry equal weight: arithmetic that asks no server."""

import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from het_tf.ext.ps.python.cluster import SLOTS
from het_tf.ext.ps.python.errors import ServerError


@dataclass(frozen=True)
class Move:
    """One slot that must change its owner, or finish doing so."""

    slot: int
    source: str
    target: str


def plan(owned: Mapping[str, Iterable[int]], weights: Mapping[int, int], leaving: str = "") -> list[Move]:
    """Returns moves until no move makes the heaviest shard lighter.

    Each move takes the largest slot that does not reverse the gap between the heaviest shard and the
    lightest, so few slots move. With equal weights the shards' counts differ by at most one afterwards.
    ServerError: the only shard must leave.

    Args:
      owned: The slots of each shard, by its id.
      weights: Weight of each slot: its partitions. Slots without weight stay.
      leaving: The id of a shard that must own nothing afterwards; "" for none.
    """
    slots = {name: sorted((weights.get(slot, 0), slot) for slot in of) for name, of in owned.items()}
    begin = {slot: name for name, of in slots.items() for _, slot in of}
    load = {name: sum(weight for weight, _ in of) for name, of in slots.items()}
    staying = [name for name in slots if name != leaving]
    if not staying:
        raise ServerError("the only shard cannot be removed")
    wanted = sum(load.values()) / len(staying)
    targets: dict[int, str] = {}

    def move(at: int, source: str) -> None:
        weight, slot = slots[source].pop(at)
        others = (name for name in staying if name != source)
        targets[slot] = target = min(others, key=lambda name: (load[name], len(slots[name])))
        bisect.insort(slots[target], (weight, slot))
        load[source] -= weight
        load[target] += weight

    while leaving and (rest := slots[leaving]):
        move(bisect.bisect_left(rest, (rest[-1][0], 0)), leaving)  # the first of the largest
    while load[most := max(staying, key=load.__getitem__)] > wanted:
        at = _best(slots[most], load[most] - min(load[name] for name in staying))
        if at is None:
            break
        move(at, most)
    return [Move(slot, begin[slot], target) for slot, target in targets.items() if target != begin[slot]]


def _best(slots: list[tuple[int, int]], gap: int) -> int | None:
    """Index of the (weight, slot), sorted, that evens a gap best; the last of equals, so ranges stay."""
    at = bisect.bisect_right(slots, (gap // 2, SLOTS)) - 1
    if at < 0 or not slots[at][0]:  # the next larger one then
        at = bisect.bisect_right(slots, (slots[at + 1][0], SLOTS)) - 1 if at + 1 < len(slots) else -1
    return at if at >= 0 and 0 < slots[at][0] < gap else None
