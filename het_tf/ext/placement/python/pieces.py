"""A directory of `het data shard`: one file a worker, and placement.json, which describes them.

    {"format": "het_tf pieces", "rule": 1, "by": "C24", "workers": 8, "batch": 128,
     "id": HEX, "samples": N, "left_out": N, "sources": [NAME, ...], "files": [{"name": NAME, "bytes": N}]}

The k-th `batch` samples of all files together are the k-th global batch. Nothing here imports TensorFlow.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from het_tf.ext.placement.python.placement import RULE, Placement
from het_tf.python.files import local_path, parse_json, read_bytes

MANIFEST = "placement.json"
FORMAT = "het_tf pieces"
_MOST_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True)
class Pieces:
    """The content of placement.json.

    Attributes:
      path: The directory.
      placement: The rule.
      id: Hexadecimal hash of the samples in their order.
      samples: Number of samples in all files together.
      left_out: Samples of the last, incomplete global batch.
      sources: Names of the files that were read.
      files: Name and bytes of each worker's file.
    """

    path: Path
    placement: Placement
    id: str
    samples: int
    left_out: int
    sources: list[str]
    files: list[tuple[str, int]]

    def write(self, directory: Path) -> Path:
        """Writes placement.json into `directory`, the temporary name of `path`. Returns its path."""
        document = {
            "format": FORMAT,
            **self.placement.describe(),
            **{name: getattr(self, name) for name in ("id", "samples", "left_out", "sources")},
            "files": [{"name": name, "bytes": size} for name, size in self.files],
        }
        file = directory / MANIFEST
        file.write_text(json.dumps(document, indent=1) + "\n")
        return file

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Pieces:
        """Reads placement.json of a directory.

        Raises:
          FileNotFoundError: It does not exist.
          ValueError: It is damaged, or made by another rule than this het_tf's.
        """
        place = local_path("path", path)
        file = place / MANIFEST
        if not file.is_file():
            raise FileNotFoundError(f"{place} has no {MANIFEST}; give a directory of het data shard")
        try:
            document: dict[str, Any] = parse_json(read_bytes(file, _MOST_BYTES))
            if document["format"] != FORMAT:
                raise ValueError(f"its format is {document['format']!r}, not {FORMAT!r}")
            rule = document["rule"]
            found = Pieces(
                place,
                Placement(*(document[name] for name in ("by", "workers", "batch"))),
                **{name: document[name] for name in ("id", "samples", "left_out", "sources")},
                files=[(one["name"], one["bytes"]) for one in document["files"]],
            )
        except (ValueError, KeyError, TypeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{file} is damaged: {what}; place the data anew by het data shard") from None
        if rule != RULE:
            raise ValueError(
                f"{place} was placed by rule {rule}, but this het_tf has rule {RULE}; place it anew by "
                "het data shard"
            )
        return found

    def file(self, worker: int) -> Path:
        """Returns the file of a worker.

        Raises:
          FileNotFoundError: It is missing.
          ValueError: Its size has changed.
        """
        name, size = self.files[worker]
        path = self.path / name
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing; copy the directory again, or place the data anew")
        if (there := path.stat().st_size) != size:
            raise ValueError(
                f"{path} has {there} bytes, but {MANIFEST} says {size}; copy it again, or place the data anew"
            )
        return path
