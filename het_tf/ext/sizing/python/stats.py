"""The files of a profile: DIR/stats.json, and the hash-sampled stream, DIR/keys.npz."""

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

from het_tf.ext.sizing.python.counts import Int64Array
from het_tf.python.files import local_path, open_file, parse_json, read_bytes

FORMAT, VERSION = "het_tf stats", 3
STATS, KEYS = "stats.json", "keys.npz"
ARRAYS = ("keys", "ids", "samples")  # named t{t}_keys, ... for table number t

_MOST = 256 << 20  # bytes of stats.json
_AGAIN = "make it again with het plan profile"


@dataclasses.dataclass(frozen=True)
class TableStats:
    """A table."""

    name: str
    dim: int  # floats of a row
    uses: int  # ids in the pass, of all its features
    rows: int  # distinct ids; if not exact, those of the hash sample times ratio
    rows_exact: bool
    ratio: int  # entries are of ids with a hash below 2^64 / ratio, a power of two
    until: int  # and of samples below it: not all if the table has few ids, half of which would mean nothing
    quantiles: list[list[float]]  # [share of rows, share of uses], 64 points, the most used rows first
    unique: list[list[float]]  # [batch, unique ids in it], mean over the first 2^17 samples, or the held ones
    entries: int  # in keys.npz


@dataclasses.dataclass(frozen=True)
class Stats:
    """A profile: number of samples, source, features, tables, directory, and the SHA-256 of its keys.npz.

    Each feature has "name", "table" and "ids_per_sample", the mean number of its ids without padding.
    """

    samples: int
    source: str
    features: list[dict[str, Any]]
    tables: list[TableStats]
    directory: Path
    sha256: str

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Stats:
        """Reads the output of `het plan profile`.

        Raises:
          ValueError: It does not exist, is damaged, of another version, or keys.npz belongs to another.
          OSError: It cannot be read.
        """
        place = local_path("directory", directory)
        for name in (STATS, KEYS):
            if not (place / name).is_file():
                raise ValueError(f"{place} has no {name}; make it with het plan profile --out {place}")
        version: Any = VERSION
        try:
            found = parse_json(read_bytes(place / STATS, _MOST))
            if found["format"] == FORMAT and (version := found["version"]) == VERSION:
                tables = [TableStats(**table) for table in found["tables"]]
                features, sha256 = found["features"], found["keys"]["sha256"]
                stats = cls(int(found["samples"]), found["source"], features, tables, place, sha256)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{place / STATS} is damaged ({error!r}); {_AGAIN}") from None
        if found["format"] != FORMAT or version != VERSION:
            what = f"{found['format']!r}, version {version!r}"
            raise ValueError(f"{place / STATS} is {what}, not {FORMAT!r}, version {VERSION}; {_AGAIN}")
        if sha256_of(place / KEYS) != stats.sha256:
            raise ValueError(f"{place / KEYS} is damaged, or does not belong to {STATS}; {_AGAIN}")
        return stats

    def keys(self, table: int) -> tuple[Int64Array, npt.NDArray[np.uint32], npt.NDArray[Any]]:
        """Reads the stream of a table, by its number in `tables`.

        Returns:
          The kept ids, int64 [distinct] ascending; for each entry, in the order of the stream, the number of
          its id among them, uint32 [entries], and of its sample, uint32 [entries] ascending (int64 for more
          than 2^32 samples).

        Raises:
          ValueError: The file lacks these arrays, or they do not match.
        """
        of, path, fault = self.tables[table], self.directory / KEYS, ""
        try:
            with np.load(path) as file:
                keys, ids, samples = (file[f"t{table}_{name}"] for name in ARRAYS)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} has no stream of table {of.name!r} ({error}); {_AGAIN}") from None
        if not len(ids) == len(samples) == of.entries:
            fault = f"{len(ids)} ids and {len(samples)} samples, not {of.entries} entries"
        elif of.entries and int(ids.max()) >= len(keys):
            fault = f"number {ids.max()} of {len(keys)} ids"
        elif of.entries and (int(samples[-1]) >= of.until or (samples[1:] < samples[:-1]).any()):
            fault = f"samples that do not ascend below {of.until}"
        if fault:
            raise ValueError(f"{path}: table {of.name!r} has {fault}; {_AGAIN}")
        return keys, ids, samples

    def write(self) -> None:
        """Writes stats.json; keys.npz must exist. OSError: it cannot."""
        document = {
            "format": FORMAT, "version": VERSION, "samples": self.samples, "source": self.source,
            "features": self.features,
            "tables": [vars(table) for table in self.tables],
            "keys": {"file": KEYS, "sha256": self.sha256},
        }  # fmt: skip
        (self.directory / STATS).write_text(json.dumps(document) + "\n")


def write_keys(path: Path, arrays: Iterable[tuple[str, npt.NDArray[Any]]]) -> None:
    """Writes arrays like `numpy.savez`, one at a time; equal arrays give equal files."""
    with zipfile.ZipFile(path, "w") as file:
        for name, array in arrays:
            with file.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as out:
                np.lib.format.write_array(out, array, allow_pickle=False)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    running = hashlib.sha256()
    with open_file(path) as file:
        while piece := file.read(1 << 20):
            running.update(piece)
    return running.hexdigest()
