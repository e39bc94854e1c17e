"""Reads the events of a run, record by record."""

from __future__ import annotations

import tensorflow as tf


def scalars(run) -> dict[str, dict[int, float]]:
    """Tag -> step -> value, of what TensorBoard shows as scalars."""
    found: dict[str, dict[int, float]] = {}
    for file in sorted(run.glob("events.out.tfevents.*")):
        for record in tf.data.TFRecordDataset(str(file)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                assert value.tag in found or value.metadata.plugin_data.plugin_name == "scalars"
                found.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    return found
