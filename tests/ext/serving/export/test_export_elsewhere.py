"""Another TensorFlow loads exports than the one that wrote them; `make test-all-tf220` names its Python."""

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from floats_lib import MODEL, assert_close

from het_tf.python import versions

PYTHON = os.environ.get("HET_TEST_OTHER_PYTHON", "")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PYTHON, reason="HET_TEST_OTHER_PYTHON names no other Python: make test-all-tf220"),
]

ANSWER = """
import sys
import numpy as np
import tensorflow as tf
library, model, inputs, outputs = sys.argv[1:]
if library:
    tf.load_op_library(library)
loaded = tf.saved_model.load(model)
with np.load(inputs) as file:
    given = {name: tf.constant(file[name]) for name in file.files}
answers = loaded.signatures["serving_default"](**given)
np.savez(outputs, release=tf.__version__, **{name: answer.numpy() for name, answer in answers.items()})
"""


@pytest.mark.parametrize("format", ["portable", "native"])
def test_another_tensorflow_answers_alike(format: str, exported: Any, tmp_path: Path) -> None:
    one = exported["direct"]
    np.savez(tmp_path / "inputs.npz", **{name: tensor.numpy() for name, tensor in one.batches[1].items()})
    library = str(versions.PLUGIN) if format == "native" else ""
    files = [one.paths[format], tmp_path / "inputs.npz", tmp_path / "outputs.npz"]
    subprocess.run([PYTHON, "-c", ANSWER, library, *map(str, files)], check=True, timeout=600, cwd=tmp_path)
    with np.load(tmp_path / "outputs.npz") as file:
        there = dict(file)
    assert not str(there.pop("release")).startswith("2.21."), "this is the TensorFlow that wrote it"
    assert_close(there["output_0"], one.answers[1], MODEL)
