"""The weights that `het ps reshard` evens: a shard's number of partitions, or their load."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from redis.crc import key_slot

from het_tf.ext.ps.python.balance import Move, plan
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.node import Refused, Unreachable
from het_tf.ext.ps.python.reshard import Say, Shards


class ByCount:
    """Every partition weighs the same. Without any partition, every slot does."""

    even = "partitions are even"
    enough = 1.0  # weight of the heaviest shard, as a multiple of the mean

    def plan(self, shards: Shards, leaving: str, say: Say) -> list[Move]:
        """As `balance.plan`. ServerError: the weights cannot be measured now."""
        return plan(shards.owned, self.weights(shards, say), leaving, self.enough)

    def weights(self, shards: Shards, say: Say) -> Mapping[int, int]:
        """Slot -> its weight."""
        slots = (key_slot(key.encode()) for _, key in shards.partitions())
        return Counter(slots) or dict.fromkeys(shards.owners, 1)


@dataclass
class ByLoad(ByCount):
    """A partition weighs the microseconds that its server's main thread works for it in `seconds`."""

    even = "load is as even as moves make it"
    enough = 1.05
    seconds: float

    def weights(self, shards: Shards, say: Say) -> Mapping[int, int]:
        """Slot -> microseconds. Passes each shard's share of the mean to `say`."""
        if len(shards.nodes) < 2:
            raise ServerError("the cluster has one shard: there is nothing to move; --add adds one")
        found = self._measure(shards)
        mean = sum(found.values()) / len(shards.nodes)
        if not found:
            say(f"no partition was busy in {self.seconds:g} s: ask while training goes on, or measure longer")
            return found
        load = {name: sum(found[slot] for slot in slots) / mean for name, slots in shards.owned.items()}
        said = (f"{shards.nodes[name].place} {share:.2f}" for name, share in load.items())
        say(f"load of each shard, 1 is the mean: {', '.join(said)}")
        return found

    def _measure(self, shards: Shards) -> Counter[int]:
        changed = f"a server was restarted, a replica took over, or a slot moved in the {self.seconds:g} s of"
        changed += " measuring; run het ps reshard --by load again"
        before = _look(shards)
        time.sleep(self.seconds)
        try:
            after = _look(shards)
        except (Refused, Unreachable) as error:
            raise ServerError(f"{error}: {changed}") from None
        found: Counter[int] = Counter()
        for key, (life, busy) in before.items():
            life_now, busy_now = after.get(key, ("", 0))
            if life_now != life or busy_now < busy:
                raise ServerError(f"{key} counts anew: {changed}")
            found[key_slot(key.encode())] += busy_now - busy
        return +found


def _look(shards: Shards) -> dict[str, tuple[str, int]]:
    """Key of a partition -> its incarnation, and the microseconds since it began."""
    looks = {}
    for name, key in shards.partitions():
        words = (node := shards.nodes[name]).ask("HET.STAT", key)
        stat = dict(zip(words[::2], words[1::2], strict=True))
        if "busy_us" not in stat:
            raise ServerError(f"{node.place} has an older het.so, which measures no load; update it")
        loader, _, until = ["", "", *str(stat["loading"] or "0").rsplit(" ", 2)][-3:]
        if int(until) > time.time():
            raise ServerError(
                f"{key} is being loaded by {loader}: its load is not that of training. Wait for it, or end"
                f" it with HET.TABLE {key} ABORT {loader}, and run het ps reshard --by load again"
            )
        looks[key] = (str(stat["incarnation"]), int(stat["busy_us"]))
    return looks
