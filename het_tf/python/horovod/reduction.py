"""Checks that a model's dense gradients are reduced over the workers."""

from typing import Any

from het_tf.python.session import settings
from het_tf.python.session.native import tf


def refuse_optimizer(optimizer: Any) -> None:
    """Raises RuntimeError for `hvd.DistributedOptimizer`, whose methods Keras 3 never calls."""
    both = (optimizer, getattr(optimizer, "inner_optimizer", None))
    if any(hasattr(one, "_allreduce_grads") for one in both):
        raise RuntimeError(
            "the model is compiled with hvd.DistributedOptimizer, which reduces nothing under Keras 3: "
            "every rank would train a different model without a message. Compile with the Keras optimizer "
            "itself, and call het_tf.horovod.distribute(model)"
        )


def is_distributed(model: Any) -> bool:
    """Whether `distribute` was called for the model."""
    return getattr(model, "_het_distributed", None) is not None


def require_reduction(model: Any) -> None:
    """Checks that the gradients of Keras' own train_step will be reduced.

    Raises:
      RuntimeError: They will not, on several ranks.
    """
    if settings.workers() == 1 or is_distributed(model):
        return
    refuse_optimizer(getattr(model, "optimizer", None))
    if type(model).train_step is tf.keras.Model.train_step:
        raise RuntimeError(
            f"model {model.name!r} trains on {settings.workers()} ranks, but nothing reduces its dense "
            "gradients: every rank would train a different model. Call het_tf.horovod.distribute(model) "
            "before fit"
        )
