"""What a profile found, and its files: DIR/stats.json, and the hash-sampled stream DIR/keys.npz.

keys.npz has of table number t, as `Stats.keys` returns them: t{t}_keys, t{t}_ids and t{t}_samples.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.data.placement import Int64Array
from het_tf.python.files import open_file, parse_json, read_bytes

FORMAT, VERSION = "het_tf stats", 1
STATS, KEYS = "stats.json", "keys.npz"
ARRAYS = ("keys", "ids", "samples")

_MOST = 256 << 20  # bytes of stats.json
_AGAIN = "make it again with het-plan profile"

Points = list[list[float]]


@dataclasses.dataclass(frozen=True)
class FeatureStats:
    """A feature.

    Attributes:
      name: Of the feature.
      table: The name of its table.
      ids_per_sample: Mean, without padding.
    """

    name: str
    table: str
    ids_per_sample: float


@dataclasses.dataclass(frozen=True)
class TableStats:
    """A table.

    Attributes:
      name: Of the table.
      dim: Floats of a row; None: not said.
      uses: Ids in the pass, of all its features.
      rows: Distinct ids.
      rows_exact: Whether they were counted; else those of the hash sample, times ratio.
      ratio: Entries are of the ids whose hash is below 2^64 / ratio, a power of two.
      until: Entries are of samples below; less than all where the table has few ids, so that half of them
        would say nothing.
      growth: [samples, distinct ids], about 24 points.
      top: Uses of the most used ids, descending, at most 4,096.
      top_missed: The most uses that one of `top` may lack; 0: they are exact.
      quantiles: [share of the rows, share of the uses], 64 points, the most used rows first.
      unique: [batch, unique ids of a batch], mean over the first samples, for batches of 1, 2, 4, ... samples
        up to 131,072, or to the most whose ids were all held.
      drift: Share of the uses of the second half that the first half's most used tenth of rows has; None:
        there are none.
      entries: In keys.npz.
    """

    name: str
    dim: int | None
    uses: int
    rows: int
    rows_exact: bool
    ratio: int
    until: int
    growth: Points
    top: list[int]
    top_missed: int
    quantiles: Points
    unique: Points
    drift: float | None
    entries: int


@dataclasses.dataclass(frozen=True)
class Stats:
    """A profile.

    Attributes:
      samples: In the pass.
      source: What was read.
      features: By name, as the layer or file has them.
      tables: Those of the features.
      directory: Where the files are.
      sha256: Of keys.npz.
    """

    samples: int
    source: str
    features: list[FeatureStats]
    tables: list[TableStats]
    directory: Path
    sha256: str

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Stats:
        """Reads what `het-plan profile` wrote.

        Raises:
          ValueError: There is none; it is damaged, of another version, or keys.npz is not of it.
          OSError: It cannot be read.
        """
        place = Path(directory)
        for name in (STATS, KEYS):
            if not (place / name).is_file():
                fault = "there is no directory" if not place.is_dir() else f"no {name} is in"
                raise ValueError(f"{fault} {place}; make it with het-plan profile --out {place}")
        try:
            found = _parse(parse_json(read_bytes(place / STATS, _MOST)), place)
        except _VersionError as error:
            raise ValueError(f"{place / STATS} {error}; {_AGAIN}, or read it with the het_tf of it") from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{place / STATS} is damaged ({error}); {_AGAIN}") from None
        if sha256_of(place / KEYS) != found.sha256:
            raise ValueError(f"{place / KEYS} is damaged, or not of the {STATS} beside it; {_AGAIN}")
        return found

    def keys(self, table: int) -> tuple[Int64Array, npt.NDArray[np.uint32], npt.NDArray[Any]]:
        """The stream of a table, read now.

        Args:
          table: Its number in `tables`.

        Returns:
          The kept ids, int64 [distinct] ascending; of each entry, in the order of the stream, the number of
          its id in them, uint32 [entries], and of its sample, ascending, uint32 (int64 where there are 2^32
          samples or more) [entries].

        Raises:
          ValueError: The file has no such arrays, or they do not fit each other.
        """
        of, path = self.tables[table], self.directory / KEYS
        try:
            with np.load(path) as file:
                keys, ids, samples = (file[f"t{table}_{name}"] for name in ARRAYS)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} has no stream of table {of.name!r} ({error}); {_AGAIN}") from None
        fault = ""
        if not len(ids) == len(samples) == of.entries:
            fault = f"{len(ids)} ids and {len(samples)} samples, not {of.entries} entries"
        elif of.entries and int(ids.max()) >= len(keys):
            fault = f"number {ids.max()} of {len(keys)} ids"
        elif of.entries and (int(samples[-1]) >= of.until or (samples[1:] < samples[:-1]).any()):
            fault = f"samples that do not ascend below {of.until}"
        if fault:
            raise ValueError(f"{path}: table {of.name!r} has {fault}; {_AGAIN}")
        return keys, ids, samples


class _VersionError(ValueError):
    """Files of another het_tf."""


def _parse(document: Any, place: Path) -> Stats:
    if document["format"] != FORMAT:
        raise ValueError(f"its format is {document['format']!r}, not {FORMAT!r}")
    if document["version"] != VERSION:
        raise _VersionError(f"has version {document['version']}, and this het_tf reads {VERSION}")
    tables = [TableStats(**table) for table in document["tables"]]
    features = [FeatureStats(**feature) for feature in document["features"]]
    names = {table.name for table in tables}
    for feature in features:
        if feature.table not in names:
            raise ValueError(f"feature {feature.name!r} has a table {feature.table!r} that is not there")
    for table in tables:
        numbers = (table.uses, table.rows, table.ratio, table.until, table.entries)
        if any(type(number) is not int or number < 0 for number in numbers):
            raise ValueError(f"table {table.name!r} has counts that are no whole numbers")
    return Stats(document["samples"], document["source"], features, tables, place, document["keys"]["sha256"])


def write_keys(path: Path, arrays: Iterable[tuple[str, npt.NDArray[Any]]]) -> None:
    """Writes arrays as `numpy.savez` does, one at a time; equal arrays make equal files."""
    with zipfile.ZipFile(path, "w") as file:
        for name, array in arrays:
            with file.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as out:
                np.lib.format.write_array(out, array, allow_pickle=False)


def write_stats(stats: Stats) -> None:
    """Writes stats.json; keys.npz is there."""
    document = {
        "format": FORMAT, "version": VERSION, "samples": stats.samples, "source": stats.source,
        "features": [vars(feature) for feature in stats.features],
        "tables": [vars(table) for table in stats.tables],
        "keys": {"file": KEYS, "sha256": stats.sha256},
    }  # fmt: skip
    (stats.directory / STATS).write_text(json.dumps(document) + "\n")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    running = hashlib.sha256()
    with open_file(path) as file:
        while piece := file.read(1 << 20):
            running.update(piece)
    return running.hexdigest()
