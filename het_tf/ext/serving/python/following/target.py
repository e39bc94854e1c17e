"""What a followed export says about itself: SavedModel/assets/follow.json."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from het_tf.python.files import parse_json

FILE = "follow.json"
"""The description of an export, in assets/."""
LIVE = "het_live"
"""The live directory, beside assets/."""
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Target:
    """An exported model that can be followed.

    Attributes:
      directory: The SavedModel's.
      address: The parameter server, without a password; "": it was in the process that exported.
      namespace: Of its tables.
      files: The serving files of its tables, in order.
      positions: Each partition's position before the export read its rows; (): unknown.
      signature: Of its dense weights (ext/checkpoint/python/tensors.py); "": they do not follow.
      max_age: Seconds that its rows may be old, for messages; None: no limit.
      max_skew: Seconds by which they may be newer than the dense weights; None: no limit.
    """

    directory: Path
    address: str
    namespace: str
    files: tuple[Path, ...]
    positions: tuple[str, ...]
    signature: str
    max_age: float | None
    max_skew: float | None

    @property
    def live(self) -> Path:
        """The live directory."""
        return self.directory / LIVE

    @property
    def server(self) -> str:
        """The address to use: HET_SERVE_PS of the environment replaces the model's and may have the login.

        Raises:
          ValueError: There is none.
        """
        address = os.environ.get("HET_SERVE_PS") or self.address
        if not address:
            raise ValueError(
                f"{self.directory} names no parameter server, since its tables were in the process that "
                "exported it; give the one that has them now by --ps or HET_SERVE_PS"
            )
        return address


def read(directory: Path) -> Target:
    """Reads the target of a SavedModel.

    Raises:
      ValueError: It cannot be followed.
    """
    assets = directory.absolute() / "assets"
    path = assets / FILE
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"{directory} is no SavedModel that can be followed: it has no assets/follow.json; export the "
            "model with het_tf.export(model, DIR, het_tf.serving.Native())"
        ) from None
    try:
        if len(content) > _MOST_BYTES:
            raise ValueError("it is too large")
        fields = parse_json(content)
        target, refused = _target(directory.absolute(), assets, fields), str(fields["refused"])
    except (KeyError, TypeError, ValueError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} is damaged ({why}); export the model again") from None
    if refused:
        raise ValueError(f"{directory} cannot be followed: {refused}")
    return target


def _target(directory: Path, assets: Path, fields: Any) -> Target:
    dense = fields["dense"]
    files = [assets / str(table["file"]) for table in fields["tables"]]
    for file in files:
        if file.parent != assets:
            raise ValueError(f"{file.name!r} is not in assets/")
    return Target(
        directory=directory,
        address=str(fields["address"]),
        namespace=str(fields["namespace"]),
        files=tuple(files),
        positions=tuple(map(str, fields.get("positions") or ())),
        signature=str(dense["signature"]) if dense else "",
        max_age=None if fields["max_age"] is None else float(fields["max_age"]),
        max_skew=None if fields["max_skew"] is None else float(fields["max_skew"]),
    )
