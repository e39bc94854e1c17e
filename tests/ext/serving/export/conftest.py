"""A trained model, without and with a cache, exported once in each format, for all tests that only read."""

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
    """By whether the model has a cache, of four rows."""
    import het_tf

    place, rng, found = tmp_path_factory.mktemp("exported"), np.random.default_rng(0), {}
    for name, cache in {"direct": None, "cached": het_tf.Cache(rows=4)}.items():
        het_tf.reset()
        model = export_lib.trained(rng, cache=cache)
        formats = {"portable": het_tf.serving.Portable(), "native": het_tf.serving.Native()}
        paths = {format: place / f"{name}-{format}" for format in formats}
        for format, path in paths.items():
            het_tf.export(model, path, formats[format], verbose=False)
        # Two thirds of the hashes are unknown to the model.
        batches = [export_lib.tensors(export_lib.toy_batch(rng, rows, ids=30)) for rows in (1, 7, 500)]
        answers = [model(batch, training=False).numpy() for batch in batches]
        found[name] = Exported(paths, batches, answers)
    het_tf.reset()
    return found


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
