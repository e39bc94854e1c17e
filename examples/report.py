"""What the examples write down: logs for TensorBoard, AUC and log loss, statistics of the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import rich.box
import rich.table


def scalar_logs(directory: Path) -> Any:
    """Returns a callback that writes the figures of every epoch, and of the tables, for TensorBoard.

    Keras' own callback needs the package tensorboard to write; this one leaves that to who reads.
    """
    import tensorflow as tf

    import het_tf

    directory.mkdir(parents=True, exist_ok=True)
    metadata = tf.compat.v1.SummaryMetadata(
        plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
    )
    writers: dict[str, Any] = {}

    def write(run: str, tag: str, value: float, step: int) -> None:
        if run not in writers:
            writers[run] = tf.summary.create_file_writer(str(directory / run))
        with writers[run].as_default():
            tf.summary.write(tag, tf.constant(value, tf.float32), step=step, metadata=metadata)

    class ScalarLogs(het_tf.callbacks.TableStats):
        """TableStats logs two figures of each table into the progress bar; here all go to TensorBoard."""

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            for name, value in (logs or {}).items():
                run = "validation" if name.startswith("val_") else "train"
                write(run, f"epoch/{name.removeprefix('val_')}", value, epoch)
            super().on_epoch_end(epoch)
            for table, figures in self.epochs[-1].items():
                for name, value in figures.items():
                    write("tables", f"{table}/{name}", value, epoch)
            for writer in writers.values():
                writer.flush()

    return ScalarLogs()


def evaluate(model: Any, part: Any, batch_size: int) -> tuple[list[tuple[float, float]], int]:
    """Returns exact AUC and log loss of each label, and the number of rows of a part of a data set."""
    import tensorflow as tf

    predict = tf.function(lambda inputs: model(inputs, training=False), reduce_retracing=True)
    labels, logits = [], []
    for inputs, label in part.to_tf(max(batch_size, 1024)):
        labels.append(label.numpy().reshape(len(label), -1))
        logits.append(predict(inputs).numpy())
    if not labels:
        raise ValueError("there are no rows to evaluate on; give more rows of data")
    label, logit = np.concatenate(labels), np.concatenate(logits).astype(np.float64)
    losses = (np.logaddexp(0.0, logit) - label * logit).mean(axis=0)
    return [(exact_auc(*one), float(loss)) for *one, loss in zip(label.T, logit.T, losses, strict=True)], len(
        label
    )


def exact_auc(label: np.ndarray, score: np.ndarray) -> float:
    """The area under the ROC curve: how often a row of label 1 scores above one of label 0; ties count half.

    Returns NaN where one of the labels does not occur.
    """
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2.0)[place]
    positive = int((label > 0.5).sum())
    negative = len(label) - positive
    if not positive or not negative:
        return float("nan")
    return float((rank[label > 0.5].sum() - positive * (positive + 1) / 2) / (positive * negative))


def table_statistics(model: Any) -> rich.table.Table:
    """Returns what the tables of a model hold and what their caches have moved, as a table to print."""
    import het_tf

    het_tf.flush()
    collection = model.rows.collection
    stats = [het_tf.Table(table.name, collection.namespace).stats() for table in collection.tables]
    figures: dict[str, list[str]] = {}
    for one in stats:
        column = {
            "floats of a row": f"{one['dim']:,}",
            "rows trained": f"{one['rows']:,}",
            "memory": f"{one['bytes'] / 2**20:,.2f} MiB",
            "updates": f"{one['updates']:,}",
        }
        if "cache" in one:
            cache = one["cache"]
            column |= {
                "rows read (unique a step)": f"{cache['reads']:,}",
                "found in the cache": f"{cache['hits'] / max(cache['reads'], 1):.2%}",
                "pulled: not cached": f"{cache['miss_pull']:,}",
                "pulled: too stale": f"{cache['update_pull']:,}",
                "pushed": f"{sum(cache[f'{why}_push'] for why in ('bound', 'age', 'evict')):,}",
                "staleness seen, 99th percentile": f"<= {cache['staleness']['p99_at_most']:g}",
            }
        for name, text in column.items():
            figures.setdefault(name, []).append(text)
    result = rich.table.Table("table", box=rich.box.SIMPLE_HEAD)
    for one in stats:
        result.add_column(one["table"], justify="right")
    for name, texts in figures.items():
        result.add_row(name, *texts)
    return result
