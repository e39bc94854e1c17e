"""Files of TFRecords of tf.train.Example for `het data` (needs TensorFlow)."""

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from het_tf.ext.placement.python.cli.samples import SEVERAL, Samples, Writer
from het_tf.ext.placement.python.placement import Int64Array

_LOOKED_AT = 100  # records that define the fields
_HEAD = 16  # bytes of a record beside its content


def _tensorflow() -> Any:
    try:
        import tensorflow
    except ImportError as error:
        raise ValueError(f"TFRecords need TensorFlow ({error}); run: pip install het_tf[cpu]") from None
    return tensorflow


class Records(Samples[Any]):
    """Records, each a tf.train.Example; gzip if a name ends in ".gz". A missing value counts as 0, or as "".

    Written files are not compressed.
    """

    suffix = ".tfrecord"

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths)
        self._tf = _tensorflow()
        self._kinds: dict[str, tuple[str, bool]] | None = None
        if not any(path.suffix == ".gz" for path in paths):
            self.total = sum(path.stat().st_size for path in paths)

    def _look(self) -> dict[str, tuple[str, bool]]:
        """Returns for each field the kind of its values, and whether a record has several."""
        if self._kinds is None:
            self._kinds = {}
            for record in next(self.blocks(_LOOKED_AT), ()):
                try:
                    example = self._tf.train.Example.FromString(record)
                except Exception as error:  # protobuf's, which may come from any of its modules
                    raise ValueError(
                        f"{self.paths[0]} has a record that is not a tf.train.Example: {error}"
                    ) from None
                for name, feature in example.features.feature.items():
                    kind = feature.WhichOneof("kind") or ""
                    several = len(getattr(feature, kind).value) > 1 if kind else False
                    before = self._kinds.get(name, ("", False))
                    self._kinds[name] = (kind or before[0], several or before[1])
        return dict(sorted(self._kinds.items()))

    def fields(self) -> dict[str, str]:
        """Features of int64 and of bytes fit, by the first records."""
        found = {}
        for name, (kind, several) in self._look().items():
            found[name] = SEVERAL if several else ""
            if kind not in ("int64_list", "bytes_list"):
                found[name] = "is a number, not an id" if kind == "float_list" else "has no values"
        return found

    def blocks(self, size: int) -> Iterator[Any]:
        """See Samples. ValueError: a file is damaged."""
        tf = self._tf
        for_paths = [
            tf.data.TFRecordDataset(str(path), "GZIP" if path.suffix == ".gz" else "") for path in self.paths
        ]
        records = for_paths[0]
        for more in for_paths[1:]:
            records = records.concatenate(more)
        try:
            yield from records.batch(size).as_numpy_iterator()
        except tf.errors.DataLossError as error:
            names = ", ".join(map(str, self.paths))
            raise ValueError(f"a file of {names} is damaged: {error.message}") from None

    def columns(self, rows: Any, names: Sequence[str]) -> dict[str, Any]:
        """See Samples. ValueError: a record has several values of a field, or another type than the first."""
        tf = self._tf
        found = self._parse(rows, names, lambda dtype, none: tf.io.FixedLenFeature([], dtype, none))
        return {name: np.asarray(column.numpy()) for name, column in found.items()}

    def lists(self, rows: Any, names: Sequence[str]) -> dict[str, tuple[Any, Any]]:
        """See Samples."""
        found = self._parse(rows, names, lambda dtype, none: self._tf.io.RaggedFeature(dtype))
        return {
            name: (column.flat_values.numpy(), column.row_lengths().numpy()) for name, column in found.items()
        }

    def _parse(self, rows: Any, names: Sequence[str], feature: Callable[[Any, Any], Any]) -> dict[str, Any]:
        tf, kinds = self._tf, self._look()
        spec = {
            name: feature(*(tf.string, "") if kinds[name][0] == "bytes_list" else (tf.int64, 0))
            for name in names
        }
        try:
            return dict(tf.io.parse_example(tf.constant(rows), spec)) if spec else {}
        except tf.errors.InvalidArgumentError as error:
            reason = error.message.partition("[Op:")[0].strip()
            raise ValueError(f"{self.paths[0]}: records differ in type: {reason}") from None

    def take(self, rows: Any, index: Int64Array) -> Any:
        """See Samples."""
        return rows[index]

    def units(self, rows: Any) -> int:
        """Bytes."""
        return sum(map(len, rows)) + _HEAD * len(rows)

    def writer(self, path: Path) -> Writer[Any]:
        """See Samples."""
        return _Records(path, self._tf)


class _Records(Writer[Any]):
    def __init__(self, path: Path, tf: Any) -> None:
        super().__init__(path)
        self._tf = tf
        with self._errors():
            self._writer: Any = tf.io.TFRecordWriter(str(path))

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns TensorFlow's errors into OSError."""
        try:
            yield
        except self._tf.errors.OpError as error:
            full = isinstance(error, self._tf.errors.ResourceExhaustedError)
            raise OSError(errno.ENOSPC if full else errno.EIO, error.message, str(self.path)) from None

    def append(self, rows: Any) -> None:
        with self._errors():
            for record in rows:
                self._writer.write(record)

    def finish(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._errors():
                writer.close()
