"""The rules that place samples of files: by a field, and by location."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from het_tf.python.placement.cli.samples import Samples
from het_tf.python.placement.location import LOCATION, Location, keys_of
from het_tf.python.placement.placement import Int64Array, Placement, hashes


class ByField:
    """By the hash of a field.

    Args:
      samples: What is placed.
      placement: Field, workers and batch.

    Attributes:
      names: The fields that the rule reads.

    Raises:
      ValueError: Samples cannot be placed by the field.
    """

    def __init__(self, samples: Samples[Any], placement: Placement) -> None:
        samples.require(placement.by)
        self.names = [placement.by]
        self._placement = placement

    def words(self, columns: Mapping[str, Any]) -> Any:
        """What the rule goes by, uint64 `[M, ...]`, of the columns of samples."""
        return hashes(columns[self._placement.by])

    def owners(self, words: Any) -> Int64Array:
        """The owners of a global batch, int64 `[samples]`; batches come in the order of the stream."""
        return self._placement.owners(words)  # type: ignore[no-any-return]


class ByLocation:
    """By the workers that used a sample's ids last: those of all fields of one integer or string a sample."""

    def __init__(self, samples: Samples[Any], placement: Placement) -> None:
        self.names = [name for name, reason in samples.fields().items() if not reason]
        if not self.names:
            raise ValueError(
                f"--by is {LOCATION!r}, and {samples.paths[0]} has no field of one integer or string a sample"
            )
        self._rule = Location(placement)

    def words(self, columns: Mapping[str, Any]) -> Any:
        """See `ByField`."""
        return location_keys({name: hashes(columns[name]) for name in self.names})

    def owners(self, words: Any) -> Int64Array:
        """See `ByField`."""
        return self._rule.owners(words)


def location_keys(hashed: Mapping[str, Any]) -> Any:
    """Keys of samples, uint64 `[M, fields]`, of the hashes of each field; a field is a table of its own."""
    return keys_of([(table, one[:, None].view(np.int64)) for table, one in enumerate(hashed.values())])


def rule_of(samples: Samples[Any], placement: Placement) -> ByField | ByLocation:
    """The rule of a placement. ValueError: samples cannot be placed by it."""
    return (ByLocation if placement.by == LOCATION else ByField)(samples, placement)
