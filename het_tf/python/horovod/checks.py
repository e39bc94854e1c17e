"""What would train N different models in silence, or hang, is refused here with the remedy."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

from het_tf.python.horovod import collective
from het_tf.python.session import runtime
from het_tf.python.session.native import tf

KERAS_3 = hasattr(tf.keras, "ops")


def workers() -> int:
    """Ranks of the job; 1 without Horovod."""
    hvd = runtime.horovod()
    return 1 if hvd is None else int(hvd.size())


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
    if workers() == 1 or is_distributed(model):
        return
    optimizer = getattr(model, "optimizer", None)
    refuse_optimizer(optimizer)
    own_step = type(model).train_step is not tf.keras.Model.train_step
    if not own_step and not of_horovod(optimizer):
        raise RuntimeError(
            f"model {model.name!r} trains on {workers()} ranks, and nothing reduces its dense gradients: "
            "every rank would train a model of its own. Call het_tf.horovod.distribute(model) before fit"
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


def layers(model: Any) -> list[Any]:
    """The layers of het_tf in a model."""
    return [layer for layer in model._flatten_layers() if hasattr(layer, "_het_call")]


def _tables(model: Any) -> list[Any]:
    found = []
    for layer in layers(model):
        specs = json.loads(layer._het_call.specs)
        specs.pop("layer")  # a number of this process
        specs.pop("place", None)  # "auto" may come out differently at each
        found.append([specs, layer._het_cache.given.get_config()])
    return found


def compare_ranks(model: Any) -> None:
    """Before the first update: all ranks train the same model, tables and initial weights included.

    Costs one small exchange and, once, a pass over the dense weights. Every rank must call it.

    Raises:
      RuntimeError: They do not; every rank says what differs.
    """
    if workers() == 1 or runtime.elastic():
        return  # a worker that joins an elastic job would compare alone; ElasticState has synchronised it
    weights = model.trainable_weights
    values = hashlib.sha256()
    if KERAS_3:  # Keras 2 has not initialised them yet where it traces
        for weight in weights:
            # Not weight.numpy(), which warns for the anchors that no rows are in it.
            values.update(tf.convert_to_tensor(weight).numpy().tobytes())
    mine = {
        "trainable weights": [[list(weight.shape), str(weight.dtype)] for weight in weights],
        "tables": _tables(model),
        "optimizer": type(model.optimizer).__name__,
        "initial weights": values.hexdigest(),
    }
    compare(model, mine)


def compare(model: Any, mine: dict[str, Any]) -> None:
    """All ranks say the same of a model. Every rank must call it.

    Args:
      model: For its name.
      mine: What is compared -> what this rank says, as JSON has it.

    Raises:
      RuntimeError: On every rank, if one differs from rank 0.
    """
    of_ranks = collective.gather(mine, "model")
    for what, value in mine.items():
        others = [rank for rank, one in enumerate(of_ranks) if one[what] != of_ranks[0][what]]
        if not others:
            continue
        if what == "initial weights":
            raise RuntimeError(
                f"the initial weights of model {model.name!r} differ between rank 0 and {_names(others)}; "
                "give fit the callback het_tf.callbacks.Broadcast(), or call het_tf.horovod.broadcast(model)"
            )
        raise RuntimeError(
            f"model {model.name!r} differs between rank 0 and {_names(others)} in its {what}: here "
            f"{_short(value)}, on rank 0 {_short(of_ranks[0][what])}; build the same model on every rank"
        )


def compare_steps(steps: int | None) -> None:
    """Before training: all ranks will take equally many steps, where that is known. Every rank must call it.

    Raises:
      RuntimeError: They will not, and the ranks with more would wait for ever.
    """
    of_ranks = collective.gather(steps, "steps")
    if None not in of_ranks and len(set(of_ranks)) > 1:
        text = ", ".join(str(one) for one in of_ranks)
        raise RuntimeError(
            f"the ranks have {text} batches an epoch; all must have equally many, or those with more wait "
            "for ever: cut the data by het_tf.horovod.shard, or give fit steps_per_epoch"
        )


def _names(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 400 else text[:400] + "..."
