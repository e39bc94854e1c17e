"""The partitions of a namespace: their keys, and how far each has changed.

The keys follow the rule of ext/ps/keyspace.h: a partition's tag is the smallest number whose slot lies in
the middle of its share of the slots.
"""

import functools
import itertools

from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.cluster import SLOTS, slot_of
from het_tf.ext.ps.python.errors import ServerError


def meta_key(namespace: str) -> str:
    """The key of a namespace's own record, with which those of its parts begin."""
    return f"het:{namespace}"


@functools.lru_cache
def _tags(partitions: int) -> tuple[int, ...]:
    left = {(2 * one + 1) * SLOTS // (2 * partitions): one for one in range(partitions)}
    tags = [0] * partitions
    for tag in itertools.count():
        if not left:
            return tuple(tags)
        one = left.pop(slot_of(str(tag)), None)
        if one is not None:
            tags[one] = tag
    raise AssertionError


def keys(namespace: str, partitions: int) -> list[str]:
    """Returns the keys of a namespace's partitions, by their index."""
    return [f"{meta_key(namespace)}:{{{tag}}}" for tag in _tags(partitions)]


def positions(client: Client, namespace: str) -> tuple[str, ...]:
    """Returns the present position of each partition, by index: "INCARNATION:CHANGES", in decimal.

    A row that was changed before this call is in the changes up to its partition's position.

    Raises:
      ServerError: There is no such namespace, a partition is missing, or the server's module is too old.
      Unreachable, Refused: As `Client.ask`.
    """
    key = meta_key(namespace)
    count = client.ask(key, "HGET", key, "partitions")
    if count is None or not count.isdigit() or not 1 <= int(count) <= SLOTS:
        raise ServerError(f"{client.address} has no namespace {namespace!r}: no worker has trained there")
    found = []
    for one in keys(namespace, int(count)):
        words = client.ask(one, "HET.STAT", one)
        stat = dict(zip(words[::2], words[1::2], strict=True))
        if "changes" not in stat:
            raise ServerError(f"{client.address} has an older het.so, which counts no changes; update it")
        found.append(f"{stat['incarnation']}:{stat['changes']}")
    return tuple(found)
