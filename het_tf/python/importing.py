"""Imports TensorFlow, and checks its version and that of Keras; a failure is one line with the remedy."""

import os
import re
from typing import Any

from het_tf.python import versions


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def import_tensorflow() -> Any:
    """Returns the module tensorflow. ImportError: it or Keras is missing, or its version is not supported."""
    pip = f"pip install tensorflow-cpu=={versions.TESTED}"
    try:
        import tensorflow
    except ImportError as error:
        raise ImportError(
            "het_tf needs TensorFlow (or KERAS_BACKEND=torch or jax), which does not import "
            f"({error}); run: {pip}"
        ) from None
    first, after = map(_release, versions.TENSORFLOW)
    if not first <= _release(tensorflow.__version__) < after:
        raise ImportError(f"{versions.WORKS_WITH}, not TensorFlow {tensorflow.__version__}; run: {pip}")
    legacy = os.environ.get("TF_USE_LEGACY_KERAS")
    if legacy in ("1", "true", "True"):  # as TensorFlow reads it
        raise ImportError(
            f"{versions.WORKS_WITH}, not Keras 2 (tf-keras), which TF_USE_LEGACY_KERAS={legacy} chooses; "
            f"run: unset TF_USE_LEGACY_KERAS; {versions.PIP_KERAS}"
        )
    try:
        import keras
    except Exception as error:  # Keras 2 of another TensorFlow ends with an AttributeError
        raise ImportError(
            f"{versions.WORKS_WITH}, but Keras does not import ({error}); run: {versions.PIP_KERAS}"
        ) from None
    if _release(keras.__version__) < _release(versions.KERAS):
        raise ImportError(f"{versions.WORKS_WITH}, not Keras {keras.__version__}; run: {versions.PIP_KERAS}")
    return tensorflow
