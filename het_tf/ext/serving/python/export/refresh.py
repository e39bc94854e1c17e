"""Portable exports with the present rows and dense weights of a followed model: `het publish portable`.

    portable export ─────────────┐
    live files of a follower ────┴─► OUT/SECONDS/, OUT/SECONDS/, ...     for unmodified TensorFlow Serving

The graph stays that of the portable export; its index, rows and dense weights get new values. It needs
neither the trainer nor the model's Python code.
"""

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from het_tf.ext.checkpoint.python.tensors import Array, TensorFile
from het_tf.ext.serving.python.export.front import RECORD
from het_tf.ext.serving.python.export.portable import arrays_of
from het_tf.ext.serving.python.export.publish import publish, staging_of
from het_tf.ext.serving.python.following import native
from het_tf.ext.serving.python.following.target import Target
from het_tf.python.files import parse_json
from het_tf.python.session.native import FloatArray, Int64Array, tf

_TRIES = 10  # a follower may remove dense weights while they are read


@dataclass
class _Read:
    keys: Int64Array
    values: FloatArray


class Refresher:
    """Writes portable exports with present rows.

    Args:
      base: A portable export.
      target: The followed export of the same model.

    Raises:
      ValueError: `base` is no such export, or of another model.
    """

    def __init__(self, base: Path, target: Target) -> None:
        try:
            self._record = dict(parse_json((base / RECORD).read_bytes()))
        except (FileNotFoundError, NotADirectoryError, TypeError, ValueError):
            self._record = {}
        if self._record.get("format") != "portable" or "groups" not in self._record:
            raise ValueError(f"{base} is no portable export; make one by het_tf.export(model, DIR)")
        document = json.loads((target.directory / "assets" / "follow.json").read_text())
        self._tables = {table["name"]: number for number, table in enumerate(document["tables"])}
        wanted = {name for group in self._record["groups"] for name in group["tables"]}
        if wanted != set(self._tables) or self._record["dense"]["signature"] != target.signature:
            raise ValueError(
                f"{base} is not of the model of {target.directory}: its tables, or its dense weights' names, "
                "shapes or types differ; export both from one model"
            )
        self._base, self._target = base, target
        self._model = tf.saved_model.load(str(base))

    def write(self, to: Path) -> dict[str, Any]:
        """Writes one export. Returns its "version" and the numbers of "rows".

        Raises:
          FileExistsError: The path exists.
          RuntimeError: The live files are damaged.
          OSError: The path cannot be written.
        """
        with staging_of(to) as (staging, work):
            state, arrays = self._copy(work)
            backend = self._model.backend
            for name, variable in zip(self._record["dense"]["names"], backend["dense"], strict=True):
                variable.assign(arrays[name])
            for group, variables in zip(self._record["groups"], backend["groups"], strict=True):
                self._fill(group, variables, work)
            tf.saved_model.save(self._model, str(staging), signatures=dict(self._model.signatures))
            (staging / RECORD).parent.mkdir(exist_ok=True)
            record = {**self._record, "version": state["version"]}
            (staging / RECORD).write_text(json.dumps(record, indent=1) + "\n")
            publish(staging, to, overwrite=False)
        return state

    def _copy(self, work: Path) -> tuple[dict[str, Any], dict[str, Array]]:
        for _ in range(_TRIES):
            state = native.copy(self._target, work)
            path = self._target.live / state["dense"]
            if not state["dense"]:
                path = self._target.directory / "assets" / "dense.safetensors"
            try:
                file = TensorFile(path)
                return state, {name: file.mapped(name) for name in file.tensors}
            except FileNotFoundError:
                continue
        raise RuntimeError(f"{path} is missing; is the follower of {self._target.directory} intact?")

    def _fill(self, group: dict[str, Any], variables: Any, work: Path) -> None:
        dim = group["dim"]
        read: list[Any] = []
        for name in group["tables"]:
            number = self._tables[name]
            keys = np.fromfile(work / f"{number}.keys", np.int64)
            read.append(_Read(keys, np.fromfile(work / f"{number}.rows", np.float32).reshape(len(keys), dim)))
        unknown = np.repeat(np.array(group["unknown"], np.float32)[:, None], dim, axis=1)
        index, rows = arrays_of(read, group["tables"], self._record["row_dtype"], dim, unknown)
        made = [*index.variables, *rows.variables]
        for variable, value in zip([*variables["index"], *variables["rows"]], made, strict=True):
            variable.assign(value)


def clean(out: Path, keep: int) -> None:
    """Removes the oldest exports of a folder until `keep` are left."""
    found = sorted((int(one.name), one) for one in out.iterdir() if one.name.isdigit())
    for _, one in found[: max(0, len(found) - keep)]:
        shutil.rmtree(one)


def number(out: Path) -> Path:
    """Returns the path of the next export: the time in seconds, or one more than the last."""
    found = [int(one.name) for one in out.iterdir() if one.name.isdigit()] if out.is_dir() else []
    return out / str(max(int(time.time()), *(one + 1 for one in found), 1))
