"""The rules that place samples of files: by a field, and by location."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from het_tf.ext.placement.python.cli.samples import Samples
from het_tf.ext.placement.python.location import LOCATION, Location, keys_of
from het_tf.ext.placement.python.placement import Int64Array, Placement, hashes


class ByField:
    """By the hash of a field.

    Args:
      samples: The samples to place.
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
        """Returns the rule's input from the columns of samples, uint64 `[M, ...]`."""
        return hashes(columns[self._placement.by])

    def owners(self, words: Any) -> Int64Array:
        """Returns the owners of a global batch, int64 `[samples]`. Call it in the order of the stream."""
        return self._placement.owners(words)  # type: ignore[no-any-return]


class ByLocation:
    """By the workers that last used a sample's ids, in all fields of one integer or string a sample."""

    def __init__(self, samples: Samples[Any], placement: Placement) -> None:
        self.names = [name for name, reason in samples.fields().items() if not reason]
        if not self.names:
            raise ValueError(
                f"--by is {LOCATION!r}, but {samples.paths[0]} has no field of one integer or string a sample"
            )
        self._rule = Location(placement)

    def words(self, columns: Mapping[str, Any]) -> Any:
        """See `ByField`."""
        return location_keys({name: hashes(columns[name]) for name in self.names})

    def owners(self, words: Any) -> Int64Array:
        """See `ByField`."""
        return self._rule.owners(words)


def location_keys(hashed: Mapping[str, Any]) -> Any:
    """Returns keys of samples, uint64 `[M, fields]`, from each field's hashes; each field is a table."""
    return keys_of([(table, one[:, None].view(np.int64)) for table, one in enumerate(hashed.values())])


def rule_of(samples: Samples[Any], placement: Placement) -> ByField | ByLocation:
    """Returns the rule of a placement. ValueError: it cannot place the samples."""
    return (ByLocation if placement.by == LOCATION else ByField)(samples, placement)
