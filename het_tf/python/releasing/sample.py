"""A labelled sample, and what an exported model predicts for it."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Sample:
    """A labelled sample.

    Attributes:
      path: Its file, for messages.
      columns: By name: arrays with one entry for each example, without the labels.
      labels: float64 [examples].
    """

    path: Path
    columns: dict[str, Array]
    labels: Array


def read(path: Path, label: str, metrics: Iterable[str]) -> Sample:
    """Reads a sample of a .npz file, or of Parquet.

    Args:
      path: The file.
      label: The name of its labels.
      metrics: The metrics that they are for.

    Raises:
      ValueError: It has no labels, or they do not suit a metric.
      ImportError: It is Parquet, and pyarrow is missing.
      OSError: It cannot be read.
    """
    columns = _npz(path) if path.suffix == ".npz" else _parquet(path)
    if label not in columns:
        raise ValueError(
            f"{path} has no labels {label!r}, only {', '.join(columns) or 'nothing'}; name them by --label"
        )
    found = columns.pop(label)
    try:
        labels = np.asarray(found, np.float64).reshape(len(found))
    except (TypeError, ValueError):
        raise ValueError(f"the labels {label!r} of {path} are not one number for each example") from None
    if not len(labels) or not np.isfinite(labels).all():
        raise ValueError(f"{path} has no examples, or a label that is not finite")
    for name, column in columns.items():
        if column.ndim == 0 or len(column) != len(labels):
            raise ValueError(f"{name!r} of {path} does not have {len(labels)} entries, as the labels have")
    if {"auc", "logloss"}.intersection(metrics) and not np.isin(labels, (0, 1)).all():
        raise ValueError(f"the labels {label!r} of {path} are not 0 and 1, which auc and logloss need")
    if "auc" in metrics and len(np.unique(labels)) < 2:
        raise ValueError(f"all labels {label!r} of {path} are {labels[0]:g}; auc needs both 0 and 1")
    return Sample(path, columns, labels)


def _npz(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path} is no .npz file of arrays: {error}") from None


def _parquet(path: Path) -> dict[str, Array]:
    if path.suffix != ".parquet":
        raise ValueError(f"{path} is no sample; give a .npz or .parquet file")
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError("Parquet needs pyarrow: pip install 'het_tf[parquet]'") from None
    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path} is no Parquet file: {error}") from None
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        if column.null_count:
            raise ValueError(f"column {name!r} of {path} has nulls")
        with contextlib.suppress(ValueError):  # lists of several lengths: no input of a model
            is_list = pyarrow.types.is_list(column.type) or pyarrow.types.is_large_list(column.type)
            columns[name] = np.array(column.to_pylist()) if is_list else column.to_numpy()
    return columns


class Predictor:
    """Predictions of an exported model for a sample.

    Args:
      directory: The SavedModel.
      sample: The sample.
      output: The name of the output; None: the only one.
      batch: The number of examples of one call.

    Raises:
      ValueError: The sample lacks an input, or has one of another shape; the output is not named.
    """

    def __init__(self, directory: Path, sample: Sample, output: str | None, batch: int) -> None:
        from het_tf.python.session.native import tf  # which registers the ops

        self._tf, self._batch, self._sample = tf, batch, sample
        self._model = tf.saved_model.load(str(directory))
        self._call = self._model.signatures["serving_default"]
        outputs = self._call.structured_outputs
        if output is None and len(outputs) > 1:
            raise ValueError(f"the model has the outputs {', '.join(sorted(outputs))}; name one by --output")
        if output is not None and output not in outputs:
            raise ValueError(f"the model has no output {output!r}, only {', '.join(sorted(outputs))}")
        self._output = output if output is not None else next(iter(outputs))
        self._inputs = {
            name: self._input(name, spec) for name, spec in self._call.structured_input_signature[1].items()
        }

    def _input(self, name: str, spec: Any) -> Array:
        sample = self._sample
        if name not in sample.columns:
            raise ValueError(f"{sample.path} lacks the model's input {name!r}")
        column, sizes = sample.columns[name], spec.shape[1:].as_list()
        try:
            known = [-1 if size is None else size for size in sizes]
            array = column.reshape(len(column), *known) if known.count(-1) < 2 else column
            return array if spec.dtype == self._tf.string else array.astype(spec.dtype.as_numpy_dtype)
        except (TypeError, ValueError):
            raise ValueError(
                f"{name!r} of {sample.path} is {column.dtype} {list(column.shape)}, and the model's input "
                f"{spec.dtype.name} {spec.shape}"
            ) from None

    def predictions(self) -> Array:
        """Returns float64 [examples], with the present rows and dense weights. ValueError: another shape."""
        count = len(self._sample.labels)
        parts = []
        for begin in range(0, count, self._batch):
            inputs = {
                name: self._tf.constant(array[begin : begin + self._batch])
                for name, array in self._inputs.items()
            }
            parts.append(np.asarray(self._call(**inputs)[self._output], np.float64))
        found = np.concatenate(parts)
        if found.size != count:
            raise ValueError(
                f"output {self._output!r} has the shape {list(found.shape)} for {count} examples; name "
                "another one by --output"
            )
        return found.reshape(count)
