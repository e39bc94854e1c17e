"""Files of named arrays: .npz, safetensors, Parquet, and checkpoints of TensorFlow.

.npz           numpy.load, without pickles
safetensors    https://github.com/huggingface/safetensors; mapped into memory
Parquet        a column is an array; a column of lists of one length has two dimensions. Needs pyarrow
checkpoint     tf.train.load_checkpoint: a variable's key, as tf.train.list_variables shows it
"""

import zipfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.ext.checkpoint.python import tensors
from het_tf.python import backend
from het_tf.python.files import open_file

Array = npt.NDArray[Any]


class Arrays(ABC):
    """The arrays of one file.

    Args:
      path: The file, or the prefix of a checkpoint's files.

    Raises:
      FileNotFoundError: It does not exist.
      ValueError: It is damaged, or another kind of file; the message names it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shapes = self._open()

    @abstractmethod
    def _open(self) -> dict[str, tuple[int | None, ...]]:
        """Opens the file. Returns the shapes of all arrays; None: unknown until it is read."""

    @abstractmethod
    def read(self, name: str) -> Array:
        """Returns an array, in memory or mapped. KeyError: the name does not exist."""

    def broken(self, why: object) -> ValueError:
        """Returns the error for a damaged file, or one of another format."""
        return ValueError(f"{self.path} cannot be read: {why}; copy it again, or give its format=")


class Npz(Arrays):
    """An .npz file."""

    def _open(self) -> dict[str, tuple[int | None, ...]]:
        open_file(self.path).close()
        try:
            self._file = np.load(self.path, allow_pickle=False)
            names = list(self._file.files)
        except (zipfile.BadZipFile, ValueError, EOFError, OSError, AttributeError) as error:
            raise self.broken(error) from None
        return {name: () for name in names}

    def read(self, name: str) -> Array:
        """See the base."""
        try:
            return np.asarray(self._file[name])
        except KeyError:
            raise
        except (zipfile.BadZipFile, ValueError, EOFError, OSError) as error:
            raise self.broken(f"array {name!r}: {error}") from None


class Safetensors(Arrays):
    """A safetensors file."""

    def _open(self) -> dict[str, tuple[int | None, ...]]:
        self._file = tensors.TensorFile(self.path)
        return {name: tuple(tensor.shape) for name, tensor in self._file.tensors.items()}

    def read(self, name: str) -> Array:
        """See the base."""
        return self._file.mapped(name)


class Parquet(Arrays):
    """A Parquet file, or a directory of Parquet files with equal columns."""

    def _open(self) -> dict[str, tuple[int | None, ...]]:
        try:
            import pyarrow
            import pyarrow.dataset
        except ImportError as error:
            raise ValueError(
                f"{self.path} is Parquet, which needs pyarrow ({error}); pip install het_tf[parquet]"
            ) from None
        if not self.path.is_dir():
            open_file(self.path).close()
        self._errors = (pyarrow.ArrowException, OSError)
        try:
            self._file = pyarrow.dataset.dataset(self.path, format="parquet")
            return {name: () for name in self._file.schema.names}
        except self._errors as error:
            raise self.broken(error) from None

    def read(self, name: str) -> Array:
        """See the base."""
        if name not in self.shapes:
            raise KeyError(name)
        try:
            column = self._file.to_table(columns=[name]).column(0).combine_chunks()
        except self._errors as error:
            raise self.broken(error) from None
        if column.null_count:
            raise ValueError(
                f"{self.path}: column {name!r} has {column.null_count} nulls; leave these rows out"
            )
        if not hasattr(column, "flatten") or not hasattr(column.type, "value_type"):
            return np.asarray(column.to_numpy(zero_copy_only=False))
        flat = column.flatten()
        if flat.null_count:
            raise ValueError(
                f"{self.path}: lists of column {name!r} hold nulls; give every row all its floats"
            )
        width = len(flat) // max(1, len(column))
        lengths = column.value_lengths() if hasattr(column, "value_lengths") else []  # fixed by the type
        if any(np.asarray(lengths) != width):
            raise ValueError(
                f"{self.path}: lists of column {name!r} have different lengths; a row has one width"
            )
        return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), width)


class Checkpoint(Arrays):
    """A checkpoint of TensorFlow."""

    def _open(self) -> dict[str, tuple[int | None, ...]]:
        if not backend.TENSORFLOW:
            raise backend.needs_tensorflow(f"{self.path}, a checkpoint of TensorFlow,")
        from het_tf.python.session.native import tf

        self._errors = (tf.errors.OpError, ValueError, RuntimeError, IndexError)
        try:
            self._reader = tf.train.load_checkpoint(str(self.path))
            shapes = self._reader.get_variable_to_shape_map()
        except self._errors as error:
            raise self.broken(str(error).splitlines()[0]) from None
        return {name: tuple(shape) for name, shape in shapes.items()}

    def read(self, name: str) -> Array:
        """See the base."""
        if name not in self.shapes:
            raise KeyError(name)
        try:
            return np.asarray(self._reader.get_tensor(name))
        except self._errors as error:
            raise self.broken(f"variable {name!r}: {str(error).splitlines()[0]}") from None
