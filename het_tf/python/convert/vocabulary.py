"""Under which ids the rows of a layer go into its table.

A row's number is its id, as long as a lookup layer turns tokens into numbers. With an open vocabulary the
lookup goes, and a token itself is the id: a string by its hash (`layer/inputs.py`), an integer as it is.

    StringLookup(vocabulary=["a", "b"], mask_token="")     number   token    id with an open vocabulary
                                                           0        ""       hash("")
                                                           1        [UNK]    hash("[UNK]")
                                                           2        a        hash("a")
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from het_tf.python import ids as ids_lib
from het_tf.python.convert import graph
from het_tf.python.session import native
from het_tf.python.session.native import tf

keras: Any = tf.keras
_LOOKUPS = ("StringLookup", "IntegerLookup")


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a lookup layer.

    Attributes:
      lookup: The layer.
      tokens: By their number, with the mask token and the tokens of the buckets; strings or integers.
      buckets: How many numbers are of tokens that the vocabulary lacks (`num_oov_indices`).
      mask_token: What is masked has this token; None: nothing is.
    """

    lookup: Any
    tokens: list[Any]
    buckets: int
    mask_token: Any

    def ids(self, rows: int) -> tuple[native.Int64Array, native.Int64Array]:
        """Which rows go into the table.

        Args:
          rows: Of the layer.

        Returns:
          Their ids, int64 [N], and their numbers, int64 [N]. The row of a single bucket goes with the token
          of the bucket ("[UNK]", -1); of several buckets, and behind the vocabulary, nothing does.
        """
        first = 0 if self.mask_token is None else 1
        left_out = range(first, first + self.buckets) if self.buckets > 1 else ()
        numbers = [n for n in range(min(rows, len(self.tokens))) if n not in left_out]
        return ids_of([self.tokens[n] for n in numbers]), np.asarray(numbers, np.int64)

    def mask_id(self) -> int:
        """The id of what is masked."""
        return int(ids_of([self.mask_token])[0])


def ids_of(tokens: list[Any]) -> native.Int64Array:
    """The ids of strings (their hashes) or integers, int64 [N]."""
    if not tokens:
        return np.empty(0, np.int64)
    if isinstance(tokens[0], (str, bytes, np.str_, np.bytes_)):
        return np.asarray(ids_lib.as_int64(tf.constant([str_of(token) for token in tokens])))
    return np.asarray(tokens, np.int64)


def str_of(token: Any) -> Any:
    """A token as TensorFlow takes it."""
    return bytes(token) if isinstance(token, (bytes, np.bytes_)) else str(token)


def is_lookup(layer: Any) -> bool:
    """Whether it is a StringLookup or an IntegerLookup."""
    return type(layer) in tuple(getattr(keras.layers, name) for name in _LOOKUPS)


def choose(found: dict[int, Any], calls: Iterable[graph.Call], faults: list[str]) -> None:
    """Gives each layer behind a lookup the lookup's vocabulary; `found` and `faults`: of find.Search."""
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
    """Why the lookups in front of a layer cannot go."""
    names = ", ".join(repr(lookup.name) for lookup in lookups)
    if len(lookups) > 1 and not _equal(lookups):
        return f"it reads numbers of {names}, which differ; give each a layer of its own"
    if others:
        return f"what {names} gives is read by {', '.join(map(repr, others))}, too; give that its own lookup"
    config = lookups[0].get_config()
    if config.get("invert") or config.get("output_mode", "int") != "int" or config.get("sparse"):
        return f"{names} gives no numbers of tokens; make it with output_mode='int'"
    if one.layer.mask_zero and config.get("mask_token") is None:
        return f"mask_zero is True, and {names} has no mask_token, so that a bucket is masked; give it one"
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
