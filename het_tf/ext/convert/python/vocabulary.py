"""The ids of a layer's rows in its table.

A row's number is its id while a lookup layer turns tokens into numbers. With an open vocabulary the lookup is
removed, and the id is the token itself: the hash of a string (`layer/inputs.py`), or the integer.

    StringLookup(vocabulary=["a", "b"], mask_token="")     number   token    id with an open vocabulary
                                                           0        ""       hash("")
                                                           1        [UNK]    hash("[UNK]")
                                                           2        a        hash("a")
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from het_tf.ext.convert.python import graph
from het_tf.python import ids as ids_lib
from het_tf.python.backend import keras
from het_tf.python.session import native

_LOOKUPS = ("StringLookup", "IntegerLookup")


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a lookup layer.

    Attributes:
      lookup: The layer.
      tokens: By their number, with the mask token and the tokens of the buckets; strings or integers.
      buckets: Count of numbers for tokens outside the vocabulary (`num_oov_indices`).
      mask_token: The token of masked positions; None: nothing is masked.
    """

    lookup: Any
    tokens: list[Any]
    buckets: int
    mask_token: Any

    def ids(self, rows: int) -> tuple[native.Int64Array, native.Int64Array]:
        """Returns the rows that go into the table.

        Args:
          rows: Number of the layer's rows.

        Returns:
          Ids, int64 [N], and numbers of the rows, int64 [N]. The row of a single bucket gets the bucket's
          token ("[UNK]", -1); rows of several buckets, and rows after the vocabulary, are left out.
        """
        first = 0 if self.mask_token is None else 1
        left_out = range(first, first + self.buckets) if self.buckets > 1 else ()
        numbers = [n for n in range(min(rows, len(self.tokens))) if n not in left_out]
        tokens = [self.tokens[n] for n in numbers]
        return ids_lib.array_of(tokens, "tokens"), np.asarray(numbers, np.int64)

    def mask_id(self) -> int:
        """The id of masked positions."""
        return int(ids_lib.array_of([self.mask_token], "tokens")[0])


def is_lookup(layer: Any) -> bool:
    """Whether it is a StringLookup or an IntegerLookup."""
    return type(layer) in tuple(getattr(keras.layers, name) for name in _LOOKUPS)


def choose(found: dict[int, Any], calls: Iterable[graph.Call], faults: list[str]) -> None:
    """Sets the vocabulary of each layer after a lookup; `found` and `faults` as in find.Search."""
    readers: dict[int, list[Any]] = {}
    for call in calls:
        for source in call.sources:
            if is_lookup(source):
                readers.setdefault(id(source), []).append(call.layer)
    for one in found.values():
        lookups = list({id(call.sources[0]): call.sources[0] for call in one.calls}.values())
        if not any(is_lookup(lookup) for lookup in lookups):
            continue  # numbers that come from elsewhere
        others = [
            reader.name
            for lookup in lookups
            for reader in readers.get(id(lookup), ())
            if id(reader) not in found and not graph.is_mask(reader)
        ]
        why = _against(one, lookups, others)
        if why:
            faults.append(f"{one.path}: {why}, or leave open_vocabulary=False")
        else:
            one.vocabulary = of_lookup(lookups[0])


def _against(one: Any, lookups: list[Any], others: list[str]) -> str | None:
    """Returns why the lookups in front of a layer cannot be removed, or None."""
    names = ", ".join(repr(lookup.name) for lookup in lookups)
    if len(lookups) > 1 and not _equal(lookups):
        return f"it reads numbers of {names}, which differ; give each a separate layer"
    if others:
        return f"{', '.join(map(repr, others))} reads the output of {names}, too; give it a separate lookup"
    config = lookups[0].get_config()
    if config.get("invert") or config.get("output_mode", "int") != "int" or config.get("sparse"):
        return f"{names} does not give numbers of tokens; make it with output_mode='int'"
    if one.layer.mask_zero and config.get("mask_token") is None:
        return f"mask_zero is True, but {names} has no mask_token, so a bucket is masked; give it one"
    return None


def _equal(lookups: list[Any]) -> bool:
    first = of_lookup(lookups[0]) if is_lookup(lookups[0]) else None
    return all(
        is_lookup(other)
        and first is not None
        and type(other) is type(lookups[0])
        and of_lookup(other).tokens == first.tokens
        and of_lookup(other).mask_token == first.mask_token
        for other in lookups[1:]
    )


def of_lookup(lookup: Any) -> Vocabulary:
    """The vocabulary of a StringLookup or IntegerLookup."""
    config = lookup.get_config()
    return Vocabulary(
        lookup,
        list(lookup.get_vocabulary(include_special_tokens=True)),
        int(config["num_oov_indices"]),
        config["mask_token"],
    )
