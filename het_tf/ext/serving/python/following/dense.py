"""The dense weights of published versions, as files of a live directory that serving processes map.

het_live/dense/SHA256.safetensors
"""

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from het_tf.ext.ps.python.client import Client
from het_tf.ext.serving.python.following.target import Target
from het_tf.ext.serving.python.publishing import dense_store
from het_tf.ext.serving.python.publishing.versions import Version
from het_tf.python.files import replaced

FOLDER = "dense"


def name(version: Version) -> str:
    """Returns the file of a version, relative to the live directory."""
    return f"{FOLDER}/{version.sha256}.safetensors"


def store(live: Path, version: Version, content: bytes) -> str:
    """Writes the dense weights of a version, whole or not at all. Returns `name`."""
    path = live / name(version)
    path.parent.mkdir(exist_ok=True)
    with replaced(path) as beside:
        beside.write_bytes(content)
    return name(version)


def bring(client: Client, target: Target, version: Version) -> str:
    """Fetches the dense weights of a version, checks that they are the export's, and stores them.

    Returns:
      `name`.

    Raises:
      ValueError: They are of another model, or damaged.
      LookupError, OSError, Unreachable, Refused: As `dense_store.fetch`.
    """
    if not target.signature:
        raise ValueError(
            "the export keeps its own dense weights, and only its rows follow; export with Native(follow=...)"
        )
    if version.signature != target.signature:
        raise ValueError(
            "its dense weights have other names, shapes or types than those of the export, or its layers "
            "another vocabulary, other bins, or the like; export the model again"
        )
    return store(target.live, version, dense_store.fetch(client, version))


def clean(live: Path, keep: Collection[str]) -> None:
    """Removes all files except those of `keep`, which are relative to the live directory."""
    with contextlib.suppress(FileNotFoundError):
        for file in os.scandir(live / FOLDER):
            if f"{FOLDER}/{file.name}" not in keep:
                os.unlink(file.path)
