"""The function `het_tf.serving.check`: compares the answers of an export with the live model's."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from het_tf.ext.serving.python.export import redirect, signatures
from het_tf.ext.serving.python.export.formats import Portable
from het_tf.ext.serving.python.export.front import RECORD
from het_tf.python import files
from het_tf.python.session import native
from het_tf.python.session.native import tf
from het_tf.python.table.table import Table

TOLERANCE = 1e-6
"""Relative difference allowed for rows of float32: the kernels of a graph add up and round in a different
order."""

_RECORD_BYTES = 1 << 20  # limit of an export's record

TIMEOUT = 600.0
"""Seconds that a process may take to load an export and answer."""

# Serves in a process that has only TensorFlow and, unless the export is portable, the library of ops.
_PROGRAM = """
import json, pathlib, sys
sys.modules["het_tf"] = None  # importing it is an ImportError
import tensorflow as tf
here = pathlib.Path(sys.argv[1])
sys.excepthook = lambda kind, error, _: (here / "error").write_text(f"{kind.__name__}: {error}")
request = json.loads((here / "request.json").read_text())
if request["library"]:
    tf.load_op_library(request["library"])
serve = tf.saved_model.load(request["path"]).signatures[request["signature"]]
feed = {name: tf.io.parse_tensor((here / file).read_bytes(), dtype)
        for name, (file, dtype) in request["feed"].items()}
answer = {}
for number, (name, output) in enumerate(sorted(serve(**feed).items())):
    (here / f"output-{number}").write_bytes(tf.io.serialize_tensor(output).numpy())
    answer[name] = [f"output-{number}", output.dtype.name]
(here / "answer.json").write_text(json.dumps(answer))
"""


@dataclass(frozen=True)
class Check:
    """The comparison of one export.

    Attributes:
      path: The SavedModel.
      format, row_dtype: As recorded; "?" if unknown.
      difference: The largest difference of any output, as a fraction of the output's largest number; inf
        if shapes or NaNs differ.
      tolerance: The allowed difference; None: any finite one.
    """

    path: Path
    format: str
    row_dtype: str
    difference: float
    tolerance: float | None

    @property
    def ok(self) -> bool:
        """Whether the difference is within the tolerance."""
        return (
            self.difference <= self.tolerance if self.tolerance is not None else np.isfinite(self.difference)
        )


def check(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    sample: Any,
    model: Any = None,
    *,
    tolerance: float | None = None,
    signature: str = signatures.DEFAULT,
    verbose: bool = True,
) -> list[Check]:
    """Runs each export in a separate process that cannot import het_tf, and compares the answers.

        het_tf.export(model, "models/1")
        het_tf.serving.check("models/1", next(iter(dataset))[0], model)

    Call it before further training of the tables: the live model reads the store's present rows, like an
    export. A cache may have older or rounded rows (`Cache(wire=...)`).

    Args:
      path: An export; several; or a directory of exports (for example in several formats).
      sample: A batch of the model's inputs.
      model: The live model. None: compare the others with the first export.
      tolerance: The largest allowed difference, as a fraction of the largest number of its output. None:
        1e-6 for rows of float32; any finite difference for smaller rows, which is printed.
      signature: The signature to run; it must take the model's inputs, like the default one.
      verbose: Whether to print the table.

    Returns:
      One check per export.

    Raises:
      RuntimeError: A difference is above the tolerance, or an export does not load or answer; the
        message has the table, or the error of the process.
      FileNotFoundError: No export is there.
      ValueError: The sample does not fit.
    """
    exports = _exports(path)
    if model is None and len(exports) < 2:
        raise ValueError(
            f"there is one export, {exports[0]}, and no model to compare it with; give model=..."
        )
    names, values = _feed(sample, model, exports[0], signature)
    feed = signatures.feed(names, values)
    wanted: dict[str, Any] | None = None
    if model is not None:
        inputs = tf.nest.pack_sequence_as(sample, values)
        with redirect.to(_Stored((), Portable(), Path()), model):
            outputs = signatures.outputs_of(model, model(inputs, training=False))
        wanted = {name: np.asarray(one) for name, one in outputs.items()}
    checks = []
    for one in exports:
        record = _record(one)
        got = _ask(one, record, feed, signature)
        wanted = got if wanted is None else wanted
        row_dtype = record.get("row_dtype", "?")
        allowed = TOLERANCE if tolerance is None and row_dtype in ("float32", "?") else tolerance
        checks.append(Check(one, record.get("format", "?"), row_dtype, _difference(got, wanted), allowed))
    table = text(checks, "the live model" if model is not None else str(exports[0]))
    if verbose:
        print(table)
    if not all(check.ok for check in checks):
        raise RuntimeError(
            f"an export does not answer as it should:\n{table}\n"
            "If the model has trained since, export again; if its layers round much, give tolerance="
        )
    return checks


class _Stored(redirect.Backend):
    """Answers the lookups of the live model with the rows of the store."""

    def lookup(self, requests: Sequence[redirect.Request]) -> list[Any]:
        """See `redirect.Backend`."""
        return [
            tf.numpy_function(Table(one.table.name, one.namespace).lookup, [one.ids, True], tf.float32)
            for one in requests
        ]


def text(checks: Sequence[Check], reference: str) -> str:
    """Formats checks as a table."""
    lines = [f"{'format':<10}{'rows':<10}{'max difference':>17}  allowed    against {reference}"]
    for check in checks:
        allowed = "any" if check.tolerance is None else f"{check.tolerance:g}"
        verdict = "" if check.ok else "  NOT RIGHT"
        numbers = f"{check.difference:>17.9g}  {allowed:<9}"
        lines.append(f"{check.format:<10}{check.row_dtype:<10}{numbers}  {check.path}{verdict}")
    if all(check.ok for check in checks):
        lines.append(f"Right: every answer is that of {reference}, within the tolerance.")
    return "\n".join(lines)


def _exports(path: Any) -> list[Path]:
    given = [path] if isinstance(path, (str, os.PathLike)) else path
    paths = [files.local_path("path", one) for one in given]
    found: list[Path] = []
    for one in paths:
        inside = sorted(file.parent for file in one.glob("*/saved_model.pb"))
        if (one / "saved_model.pb").is_file():
            found.append(one.absolute())
        elif inside:
            found += [each.absolute() for each in inside]
        else:
            raise FileNotFoundError(
                f"{one} is not a SavedModel, and contains none; give a path of het_tf.export"
            )
    if not found:
        raise ValueError("path is empty; give at least one export")
    return found


def _record(path: Path) -> dict[str, Any]:
    file = path / RECORD
    if not file.exists():
        return {}
    content = files.read_bytes(file, _RECORD_BYTES)
    try:
        return dict(files.parse_json(content))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file} is damaged: {error}; export the model again") from None


def _feed(sample: Any, model: Any, path: Path, signature: str) -> tuple[list[str], list[Any]]:
    """Returns names and tensors of the flattened inputs."""
    if isinstance(sample, tf.data.Dataset):
        raise ValueError("sample is a tf.data.Dataset; give one batch of inputs: next(iter(dataset))[0]")
    specs = signatures.batch_specs(sample)
    values = [one if _composite(one) else tf.convert_to_tensor(one) for one in tf.nest.flatten(sample)]
    if isinstance(specs, Mapping):
        return signatures.names_of(model, specs), values
    if model is None:
        raise ValueError(
            f"sample is {type(sample).__name__}; without a model the names of the inputs are not known, give "
            "a dict of them"
        )
    names = signatures.names_of(model, signatures.input_specs(model))
    if len(names) != len(values):
        raise ValueError(f"sample has {len(values)} inputs; model {model.name!r} takes {names}")
    return names, values


def _composite(x: Any) -> bool:
    return isinstance(x, (tf.RaggedTensor, tf.SparseTensor))


def _ask(path: Path, record: Mapping[str, Any], feed: Mapping[str, Any], signature: str) -> dict[str, Any]:
    """Returns the outputs of an export by name, from a separate process."""
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        files = {}
        for number, (name, x) in enumerate(feed.items()):
            (here / f"input-{number}").write_bytes(tf.io.serialize_tensor(x).numpy())
            files[name] = [f"input-{number}", x.dtype.name]
        library = "" if record.get("format") == "portable" else str(native.LIBRARY)
        request = {"path": str(path), "signature": signature, "library": library, "feed": files}
        (here / "request.json").write_text(json.dumps(request))
        environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2", TF_FORCE_GPU_ALLOW_GROWTH="true")
        try:
            done = subprocess.run(
                [sys.executable, "-c", _PROGRAM, directory],
                cwd=directory,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{path} has not answered within {TIMEOUT:g} seconds") from None
        if done.returncode != 0:
            error = here / "error"
            said = error.read_text() if error.exists() else done.stdout
            said = "\n".join(said.strip().splitlines()[-5:])
            raise RuntimeError(f"{path} does not load or does not answer in a separate process:\n{said}")
        answer = json.loads((here / "answer.json").read_text())
        return {
            name: tf.io.parse_tensor((here / file).read_bytes(), dtype).numpy()
            for name, (file, dtype) in answer.items()
        }


def _difference(got: Mapping[str, Any], wanted: Mapping[str, Any]) -> float:
    """See `Check.difference`."""
    if set(got) != set(wanted):
        return float("inf")
    largest = 0.0
    for name, a in got.items():
        b = wanted[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if a.dtype.kind in "OSU" or a.dtype.kind == "b":
            largest = max(largest, 0.0 if np.array_equal(a, b) else float("inf"))
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        if not np.array_equal(np.isfinite(x), np.isfinite(y)) or not np.array_equal(np.isnan(x), np.isnan(y)):
            return float("inf")
        same = x == y
        if x.size and not same.all():
            away = np.nanmax(np.where(same, 0.0, np.abs(x - y)))
            scale = np.max(np.abs(y), initial=0.0, where=np.isfinite(y))
            largest = max(largest, float(away / scale) if scale > 0 else float("inf"))
    return largest
