"""Writes requests that TensorFlow Serving makes itself before a version takes traffic.

    python warmup.py models/clicks/1 '[{"item": 1}, {"item": 4000}]' --batch 1 --batch 32

The first request of a SavedModel is slow: TensorFlow optimises its graph, and rows come from memory for the
first time. One request for each size of a batch that occurs is enough; the samples are repeated to fill it.
The file is assets.extra/tf_serving_warmup_requests, a TFRecord of PredictionLog. Its few messages are written
by hand here, so that tensorflow-serving-api need not be installed. Samples that do not fit the signature are
refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

FILE = "assets.extra/tf_serving_warmup_requests"


def field(number: int, content: bytes | str) -> bytes:
    """A length-delimited field of a protobuf message."""
    raw = content.encode() if isinstance(content, str) else content
    length, prefix = len(raw), bytearray([number << 3 | 2])
    while length > 127:
        prefix.append(length & 127 | 128)
        length >>= 7
    prefix.append(length)
    return bytes(prefix) + raw


def prediction_log(model: str, signature: str, inputs: dict[str, Any]) -> bytes:
    """PredictionLog{predict_log: PredictLog{request: PredictRequest{model_spec, inputs}}}."""
    request = field(1, field(1, model) + field(3, signature))
    for name, tensor in inputs.items():
        request += field(2, field(1, name) + field(2, tensor.SerializeToString()))
    return field(6, field(1, request))


def signature_inputs(path: Path, signature: str) -> dict[str, Any]:
    """The inputs of a signature: name -> dtype and shape.

    Raises:
      ValueError: There is no such signature.
    """
    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    signatures = saved.meta_graphs[0].signature_def
    if signature not in signatures:
        raise ValueError(f"{path} has no signature {signature!r}; it has {', '.join(sorted(signatures))}")
    return dict(signatures[signature].inputs)


def tensors(inputs: dict[str, Any], samples: list[dict[str, Any]], batch: int) -> dict[str, Any]:
    """TensorProtos of one batch: the samples, as often as they are needed.

    Raises:
      ValueError: The samples do not have these inputs, or values of another type or shape.
    """
    out = {}
    for one in samples:
        if one.keys() != inputs.keys():
            raise ValueError(f"a sample has {sorted(one)}, and the signature takes {sorted(inputs)}")
    for name, info in inputs.items():
        values = [samples[i % len(samples)][name] for i in range(batch)]
        try:
            tensor = tf.constant(values, tf.as_dtype(info.dtype))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: {error}") from None
        shape = tf.TensorShape(info.tensor_shape)
        if not shape.is_compatible_with(tensor.shape):
            raise ValueError(f"{name} has the shape {tensor.shape}, and the signature takes {shape}")
        out[name] = tf.make_tensor_proto(tensor)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, help="a SavedModel, such as models/clicks/1")
    parser.add_argument("samples", help='JSON: [{"item": 1}, ...]')
    parser.add_argument("--signature", default="serving_default")
    parser.add_argument("--batch", type=int, action="append", help="a size of batches, repeatable (1)")
    options = parser.parse_args()
    try:
        samples, batches = json.loads(options.samples), options.batch or [1]
        if not samples or min(batches) < 1:
            raise ValueError("give at least one sample, and batches of at least one")
        inputs = signature_inputs(options.path, options.signature)
        model = options.path.absolute().parent.name
        records = [
            prediction_log(model, options.signature, tensors(inputs, samples, batch)) for batch in batches
        ]
        (options.path / FILE).parent.mkdir(exist_ok=True)
        with tf.io.TFRecordWriter(str(options.path / FILE)) as out:
            for record in records:
                out.write(record)
    except (OSError, ValueError) as error:
        print(f"warmup.py: {error}", file=sys.stderr)
        return 1
    print(f"{options.path / FILE}: {len(records)} requests, of {', '.join(map(str, batches))} samples")
    return 0


if __name__ == "__main__":
    sys.exit(main())
