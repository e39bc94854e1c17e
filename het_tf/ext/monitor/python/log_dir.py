"""TensorBoard's directory, and figures in it. Nothing here needs the package tensorboard."""

from typing import Any

from het_tf.python import backend
from het_tf.python.files import local_path


def made(log_dir: Any, who: str) -> str:
    """Makes the directory if needed, and checks that it is writable. Returns its path.

    Raises:
      ValueError: It cannot be made or written.
      NeedsTensorFlow: Keras' backend is another one.
    """
    if not backend.TENSORFLOW:
        raise backend.needs_tensorflow(f"log_dir of {who}")
    from het_tf.python.session.native import tf

    # TensorFlow writes to other storage too, but a pathlib.Path of "gs://..." is not such an address.
    path = log_dir if "://" in str(log_dir) else str(local_path("log_dir", log_dir))
    try:
        tf.io.gfile.makedirs(path)
        probe = tf.io.gfile.join(path, ".het_tf_probe")
        with tf.io.gfile.GFile(probe, "w") as file:
            file.write("")
        tf.io.gfile.remove(probe)
    except tf.errors.OpError as error:
        raise ValueError(
            f"log_dir {path!r} of {who} cannot be written: {error.message}; give a directory that exists "
            "or can be made"
        ) from error
    return path


class Scalars:
    """Writes numbers over steps like `tf.summary.scalar`, which needs the package tensorboard.

    Args:
      path: The run's directory.
    """

    def __init__(self, path: str) -> None:
        from het_tf.python.session.native import tf

        self._tf = tf
        self._writer = tf.summary.create_file_writer(path)
        metadata = tf.compat.v1.SummaryMetadata()
        metadata.plugin_data.plugin_name = "scalars"
        metadata.data_class = 1  # DATA_CLASS_SCALAR of summary.proto
        self._metadata = metadata

    def write(self, step: int, figures: dict[str, float]) -> None:
        """Adds a point to the line of each tag, and flushes."""
        with self._writer.as_default():
            for tag, value in figures.items():
                value = self._tf.constant(value, self._tf.float32)
                self._tf.summary.write(tag, value, step, metadata=self._metadata)
        self._writer.flush()

    def close(self) -> None:
        """Closes the file; later points would go to a new one."""
        self._writer.close()
