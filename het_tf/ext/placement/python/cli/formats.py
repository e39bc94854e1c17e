"""The formats of files of samples, which `het data` and `het plan` read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from het_tf.ext.placement.python.cli.criteo import CriteoLines
from het_tf.ext.placement.python.cli.samples import Samples
from het_tf.ext.placement.python.cli.tables import TableRows
from het_tf.ext.placement.python.cli.tfrecord import Records

FORMATS = ("criteo", "csv", "parquet", "tfrecord")
_SUFFIXES = {
    ".csv": "csv", ".parquet": "parquet", ".pq": "parquet", ".tfrecord": "tfrecord", ".tfrecords": "tfrecord"
}  # fmt: skip


def format_of(paths: Sequence[Path]) -> str:
    """Returns the format of files by their names. ValueError: they have several."""
    found = {
        _SUFFIXES.get(path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix, "criteo")
        for path in paths
    }
    if len(found) > 1:
        raise ValueError(f"the files have several formats ({', '.join(sorted(found))}); split them up")
    return found.pop()


def open_samples(kind: str, paths: Sequence[Path], part: Any = "all") -> Samples[Any]:
    """Opens files of one of FORMATS. ValueError, OSError: as `Samples`; also a part that the format lacks."""
    if kind == "criteo":
        return CriteoLines(paths, part)
    if part != "all":
        raise ValueError(f"--part is {part}, but only Criteo's lines have parts; leave it out")
    return Records(paths) if kind == "tfrecord" else TableRows(paths, kind)
