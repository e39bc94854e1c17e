"""One trained model of each kind, exported once in each format, for all tests that only read."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import export_lib
import numpy as np
import pytest


@dataclasses.dataclass
class Exported:
    """A model's exports, and what the model itself answered on some batches before it went."""

    paths: dict[str, Path]  # by format
    batches: list[dict[str, Any]]
    answers: list[np.ndarray]


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exported]:
    """By the name of the model's class; DeepFM has a cache of four rows."""
    import het_tf
    from het_tf.zoo.models import DCNv2, DeepFM, WideDeep

    place, rng, found = tmp_path_factory.mktemp("exported"), np.random.default_rng(0), {}
    for cls in (WideDeep, DeepFM, DCNv2):
        het_tf.reset()
        model = export_lib.trained(cls, rng, cache=het_tf.Cache(rows=4) if cls is DeepFM else None)
        formats = {"portable": het_tf.serving.Portable(), "native": het_tf.serving.Native()}
        paths = {format: place / f"{cls.__name__}-{format}" for format in formats}
        for format, path in paths.items():
            het_tf.export(model, path, formats[format], verbose=False)
        # Two thirds of the hashes are unknown to the model.
        batches = [export_lib.tensors(export_lib.toy_examples(rng, rows, ids=30)) for rows in (1, 7, 500)]
        answers = [model(batch, training=False).numpy() for batch in batches]
        found[cls.__name__] = Exported(paths, batches, answers)
    het_tf.reset()
    return found


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
