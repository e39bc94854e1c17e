"""Whether a layer is being made from a configuration, and whether it is called only to learn shapes."""

import sys

from het_tf.python.session.native import tf

SCRATCH = "scratch_graph"  # begins or ends the name of a temporary graph of Keras


def is_from_config() -> bool:
    """Whether a layer is being made from a configuration, its own or an outer model's."""
    frame = sys._getframe(1)
    while frame is not None:
        made = frame.f_locals.get("cls") if frame.f_code.co_name == "from_config" else None
        if isinstance(made, type) and issubclass(made, tf.keras.layers.Layer):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def infers_shapes() -> bool:
    """Whether Keras calls the layer in a temporary graph, to learn its output shapes or to build it."""
    return SCRATCH in str(getattr(tf.compat.v1.get_default_graph(), "name", ""))
