"""Reads the events of a run: with TensorBoard's reader if it is installed, else record by record."""

from __future__ import annotations

import importlib.util

import tensorflow as tf

TENSORBOARD = importlib.util.find_spec("tensorboard") is not None


def scalars(run) -> dict[str, dict[int, float]]:
    """Tag -> step -> value."""
    return _by_tensorboard(run) if TENSORBOARD else _by_record(run)


def _by_tensorboard(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run), size_guidance={"tensors": 0}).Reload()
    assert set(events.PluginTagToContent("scalars")) == set(events.Tags()["tensors"]), "shown as scalars"
    return {
        tag: {one.step: float(tf.make_ndarray(one.tensor_proto)) for one in events.Tensors(tag)}
        for tag in events.Tags()["tensors"]
    }


def _by_record(run):
    found: dict[str, dict[int, float]] = {}
    for file in sorted(run.glob("events.out.tfevents.*")):
        for record in tf.data.TFRecordDataset(str(file)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    return found
