"""Whether something reduces a model's dense gradients over the workers; what would not is refused."""

import sys
from typing import Any

from het_tf.python.session import settings
from het_tf.python.session.native import KERAS_3, tf


def of_horovod(optimizer: Any) -> bool:
    """Whether an optimizer came out of `hvd.DistributedOptimizer`."""
    return any(
        hasattr(one, "_allreduce_grads") for one in (optimizer, getattr(optimizer, "inner_optimizer", None))
    )


def refuse_optimizer(optimizer: Any) -> None:
    """RuntimeError: `hvd.DistributedOptimizer` under Keras 3, whose methods Keras 3 never calls."""
    if KERAS_3 and of_horovod(optimizer):
        raise RuntimeError(
            "the model is compiled with hvd.DistributedOptimizer, which reduces nothing under Keras 3: "
            "every rank would train a model of its own, without a message. Compile with the Keras optimizer "
            "itself, and call het_tf.horovod.distribute(model)"
        )


def is_distributed(model: Any) -> bool:
    """Whether `distribute` has seen the model."""
    return getattr(model, "_het_distributed", None) is not None


def require_reduction(model: Any) -> None:
    """Whether something will reduce the gradients that Keras' own train_step computes.

    Raises:
      RuntimeError: Several ranks, and nothing will.
    """
    if settings.workers() == 1 or is_distributed(model):
        return
    optimizer = getattr(model, "optimizer", None)
    refuse_optimizer(optimizer)
    own_step = type(model).train_step is not tf.keras.Model.train_step
    if not own_step and not of_horovod(optimizer):
        raise RuntimeError(
            f"model {model.name!r} trains on {settings.workers()} ranks, and nothing reduces its dense "
            "gradients: every rank would train a model of its own. Call het_tf.horovod.distribute(model) "
            "before fit"
        )


def in_train_step(model: Any) -> bool:
    """Whether Keras' own train_step of the model is on the Python stack."""
    code = tf.keras.Model.train_step.__code__
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is code and frame.f_locals.get("self") is model:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
