"""Refuses setups that would silently train N different models, or hang, with the remedy."""

import json
from collections.abc import Iterable
from typing import Any

from het_tf.python.session import collective, settings
from het_tf.python.table import layer_state


def tables_of(layers: Iterable[Any]) -> list[Any]:
    """Returns what ranks compare of the tables of layers, for JSON."""
    found = []
    for layer in layers:
        state = layer_state.of(layer)
        specs = json.loads(state.call.specs)
        specs.pop("place", None)  # "auto" may differ between ranks
        specs.pop("variables", None)  # numbers of this process
        found.append([specs, state.cache.given.get_config()])
    return found


def compare_ranks(model: Any) -> None:
    """Before the first update: checks that all ranks train the same model and tables.

    Costs one small exchange. Every rank must call it.

    Raises:
      RuntimeError: They differ; every rank names the difference.
    """
    if settings.workers().size == 1:
        return
    weights = model.trainable_weights
    mine = {
        "trainable weights": [[list(weight.shape), str(weight.dtype)] for weight in weights],
        "tables": tables_of(layer_state.layers_of(model)),
        "optimizer": type(model.optimizer).__name__,
    }
    compare(model, mine)


def compare(model: Any, mine: dict[str, Any]) -> None:
    """Checks that values of a model are equal on all ranks. Every rank must call it.

    Args:
      model: Of Keras or PyTorch, for its name.
      mine: Name of each value -> this rank's value, for JSON.

    Raises:
      RuntimeError: On every rank, if one differs from rank 0.
    """
    of_ranks = collective.gather(mine, "model")
    for what, value in mine.items():
        others = [rank for rank, one in enumerate(of_ranks) if one[what] != of_ranks[0][what]]
        if not others:
            continue
        name = getattr(model, "name", type(model).__name__)
        raise RuntimeError(
            f"model {name!r} differs between rank 0 and {_names(others)} in its {what}: here "
            f"{_short(value)}, on rank 0 {_short(of_ranks[0][what])}; build the same model on every rank"
        )


def compare_steps(steps: int | None) -> None:
    """Checks that all ranks will take the same number of steps, if known. Every rank must call it.

    Raises:
      RuntimeError: They will not: ranks with more steps would wait forever.
    """
    of_ranks = collective.gather(steps, "steps")
    if None not in of_ranks and len(set(of_ranks)) > 1:
        text = ", ".join(str(one) for one in of_ranks)
        raise RuntimeError(
            f"the ranks have {text} batches an epoch; all must have equally many, or those with more wait "
            "forever: cut the data by het_tf.workers.shard, or give fit steps_per_epoch"
        )


def _names(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 400 else text[:400] + "..."
