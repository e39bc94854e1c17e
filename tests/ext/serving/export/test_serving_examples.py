"""The files of examples/serving: they parse, fit one another, and ask for what an export has."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from tools_lib import script

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[4]
SERVING = ROOT / "examples/serving"

# The fields of TensorFlow Serving's messages that the files use, and a few beside them: its package would
# bring another TensorFlow along. Types: s string, y bytes, i int64, b bool, * repeated, or the name of a
# message; and the number, where the files have it.
MESSAGES = {
    "ModelServerConfig": "model_config_list:ModelConfigList",
    "ModelConfigList": "config:*ModelConfig",
    "ModelConfig": "name:s base_path:s model_platform:s model_version_policy:Policy version_labels:*Label",
    "Policy": "latest:Latest specific:Specific",
    "Latest": "num_versions:i",
    "Specific": "versions:*i",
    "Label": "key:s value:i",
    "BatchingParameters": "max_batch_size:Int batch_timeout_micros:Int max_enqueued_batches:Int"
                          " num_batch_threads:Int allowed_batch_sizes:*i",
    "Int": "value:i",
    "MonitoringConfig": "prometheus_config:PrometheusConfig",
    "PrometheusConfig": "enable:b path:s",
    "PredictionLog": "predict_log:PredictLog:6",
    "PredictLog": "request:PredictRequest:1",
    "PredictRequest": "model_spec:ModelSpec:1 inputs:*Input:2",
    "ModelSpec": "name:s:1 signature_name:s:3",
    "Input": "key:s:1 value:y:2",
}  # fmt: skip


def empty(name: str) -> Any:
    """An empty message."""
    proto = descriptor_pb2.FileDescriptorProto(name="serving.proto", package="serving")
    kinds = {"s": 9, "y": 12, "i": 3, "b": 8}
    for one, fields in MESSAGES.items():
        made = proto.message_type.add(name=one)
        for place, field in enumerate(fields.split(), 1):
            name_of, kind, *number = field.split(":")
            label, kind = 3 if "*" in kind else 1, kind.lstrip("*")
            added = made.field.add(name=name_of, number=int(*number or [place]), label=label)
            added.type = kinds.get(kind, 11)
            if added.type == 11:
                added.type_name = f".serving.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(proto)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"serving.{name}"))()


def parse(name: str, text: str) -> Any:
    """Parses a message of text format; raises if it is invalid."""
    return text_format.Parse(text, empty(name))


def models() -> Any:
    return parse("ModelServerConfig", (SERVING / "models.config").read_text()).model_config_list.config


def test_configurations_parse_and_make_sense():
    (clicks,) = models()
    assert clicks.base_path == f"/models/{clicks.name}" and clicks.model_platform == "tensorflow"
    assert clicks.model_version_policy.latest.num_versions == 2
    batching = parse("BatchingParameters", (SERVING / "batching.config").read_text())
    sizes = list(batching.allowed_batch_sizes)
    assert sizes == sorted({*sizes}) and sizes[-1] == batching.max_batch_size.value  # what the server demands
    monitoring = parse("MonitoringConfig", (SERVING / "monitoring.config").read_text())
    assert monitoring.prometheus_config.enable and monitoring.prometheus_config.path.startswith("/")
    with pytest.raises(text_format.ParseError):
        parse("ModelServerConfig", "model_config_list { config { nam: 'x' } }")


def test_the_document_speaks_of_fields_that_exist():
    page = (ROOT / "docs/serving.md").read_text()
    for text in re.findall(r"`((?:latest|specific) \{[^`]*\})`", page):
        parse("Policy", text)
    labels = re.findall(r"`(version_labels \{[^`]*\})`", page)
    assert labels
    for text in labels:
        parse("ModelConfig", text)


def test_compose_mounts_what_its_flags_name():
    yaml = pytest.importorskip("yaml", reason="there is no YAML parser")
    (server,) = yaml.safe_load((SERVING / "compose.yaml").read_text())["services"].values()
    assert re.fullmatch(r"tensorflow/serving:\d+\.\d+\.\d+", server["image"])
    flags = dict(word.removeprefix("--").split("=") for word in server["command"])
    volumes = [one[: -len(":ro")].rsplit(":", 1) for one in server["volumes"]]
    mounts = {target: source for source, target in volumes}
    for flag in ("model_config_file", "batching_parameters_file", "monitoring_config_file"):
        source = mounts[flags[flag]]
        assert source.startswith("./") and (SERVING / source).is_file()
    assert "/models" in mounts and all(one.base_path.startswith("/models/") for one in models())
    assert flags["enable_batching"] == "true"
    assert any(one.endswith(":8501") for one in server["ports"])  # what client.py asks


SAMPLE = {"a": 2**62, "h": 5, "a_x_h": 7, "s": [1, 2, 3], "numeric": [0.5, 1.0]}
SAMPLES = [SAMPLE, {**SAMPLE, "a": -5, "s": [4, 4, 4]}]


@pytest.fixture
def path(exported, tmp_path):
    """An export where the files of the example have it."""
    return Path(shutil.copytree(exported["direct"].paths["portable"], tmp_path / "models/clicks/1"))


def test_a_request_of_the_client_fits_a_real_signature(path):
    client = script("examples/serving/client")
    request = json.loads(json.dumps(client.body(SAMPLES)))  # what goes over the wire
    served = tf.saved_model.load(str(path)).signatures[request["signature_name"]]
    specs = served.structured_input_signature[1]
    assert specs.keys() == request["inputs"].keys()
    tensors = {name: tf.constant(values, specs[name].dtype) for name, values in request["inputs"].items()}
    for name, values in tensors.items():
        assert values.numpy().tolist() == [one[name] for one in SAMPLES]
    assert served(**tensors)["output_0"].shape[0] == len(SAMPLES)
    assert client.url("h:1", "clicks") == "http://h:1/v1/models/clicks:predict"
    assert client.url("h:1", "clicks", version=2) == "http://h:1/v1/models/clicks/versions/2:predict"
    assert client.url("h:1", "clicks", label="canary") == "http://h:1/v1/models/clicks/labels/canary:predict"
    for bad in ([], [{"item": 1}, {"other": 1}], [3]):
        with pytest.raises(ValueError, match="samples must be"):
            client.body(bad)


def test_warm_up_requests_are_prediction_logs(path, monkeypatch, capsys):
    warmup = script("examples/serving/warmup")

    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["warmup.py", str(path), *words])
        return warmup.main()

    assert run(json.dumps(SAMPLES), "--batch", "1", "--batch", "300") == 0
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    sizes = []
    for record in tf.data.TFRecordDataset(str(path / warmup.FILE)):
        log = empty("PredictionLog")
        log.ParseFromString(record.numpy())
        log.DiscardUnknownFields()
        assert log.ByteSize() == len(record.numpy())
        request = log.predict_log.request
        assert (request.model_spec.name, request.model_spec.signature_name) == ("clicks", "serving_default")
        tensors = {one.key: tf.make_tensor_proto(0).FromString(one.value) for one in request.inputs}
        tensors = {name: tf.constant(tf.make_ndarray(proto)) for name, proto in tensors.items()}
        sizes.append(len(served(**tensors)["output_0"]))
        assert tensors["a"][0] == 2**62
    assert sizes == [1, 300]
    before = (path / warmup.FILE).read_bytes()
    for samples, message in (
        (json.dumps([{"a": 1}]), f"a sample has ['a'], and the signature takes {sorted(SAMPLE)}"),
        (json.dumps([{**SAMPLE, "a": 1.5}]), "a: "),
        (json.dumps([{**SAMPLE, "numeric": [1, 2, 3]}]), "numeric has the shape (1, 3)"),
        ("[]", "at least one sample"),
        ("x", "Expecting value"),
    ):
        assert run(samples) == 1
        assert message in capsys.readouterr().err
    assert (path / warmup.FILE).read_bytes() == before
