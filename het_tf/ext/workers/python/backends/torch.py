"""Several workers on PyTorch: steps run as they are called, so collectives do."""

import secrets
from typing import Any

import numpy as np
import torch

from het_tf.ext.workers.python import checks, find
from het_tf.ext.workers.python.backends.arrays import *  # noqa: F403
from het_tf.ext.workers.python.environments.process import Process
from het_tf.python.backend import keras
from het_tf.python.layer.backends import torch_tickets
from het_tf.python.layer.modules import Tables
from het_tf.python.layer.variable import marked
from het_tf.python.quoting import quoted
from het_tf.python.session import collective, settings

_HOOKED = "_het_hooked"  # of a parameter that stands for tables
BEGINS_IN_STEP = True
NO_JIT = "torch.compile does not look into an all-reduce nor into het_tf's lookup"


def reduce(gradients: list[Any]) -> list[Any]:
    """Averages gradients over all ranks; smaller floats travel as float32.

    Raises:
      NotImplementedError: A gradient is sparse.
    """
    means = settings.workers().mean([_array(one) for one in gradients], "het_tf.gradient")
    return [
        torch.from_numpy(mean).to(one.device, one.dtype) for mean, one in zip(means, gradients, strict=True)
    ]


def _array(gradient: Any) -> Any:
    if gradient.layout is not torch.strided:
        raise NotImplementedError(
            "a gradient is sparse, which several workers do not average: make its layer with sparse=False, "
            "or use a table of het_tf"
        )
    wide = gradient if gradient.dtype == torch.float64 else gradient.float()
    return wide.detach().cpu().numpy()


# --- modules without Keras ---------------------------------------------------------------------------------


def distribute(module: Any) -> Any:
    """Makes a module ready for DistributedDataParallel, which averages the gradients of all but its tables.

    The tables' tickets stay this rank's; the ranks meet behind each backward pass (_Meeting).

    Raises:
      TypeError: It is no module.
      ValueError: It is a DistributedDataParallel already, or the process group has another rank or size than
        the workers of het_tf.
      RuntimeError: The ranks have other parameters or tables.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"model is {module!r}; give a Keras model, or a module of PyTorch")
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        raise ValueError(
            "model is a DistributedDataParallel already, which would average the tickets of tables; give its "
            "module: DistributedDataParallel(het_tf.workers.distribute(module))"
        )
    rank, size = collective.ranks()
    if size == 1:
        return module
    find.compare_group(group(), f"het_tf says rank {rank} of {size}", rank, size)
    of_tables = [one for one in module.modules() if isinstance(one, Tables)]
    checks.compare(
        module,
        {
            "parameters": [
                [name, list(one.shape), str(one.dtype)] for name, one in module.named_parameters()
            ],
            "tables": checks.tables_of([one.layer for one in of_tables]),
        },
    )
    apart = {id(anchor): anchor for one in of_tables for anchor in one.anchors}
    names = [name for name, one in module.named_parameters(remove_duplicate=False) if id(one) in apart]
    names += getattr(module, "_ddp_params_and_buffers_to_ignore", [])
    torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)
    new = [one for one in apart.values() if not hasattr(one, _HOOKED)]  # no ticket is marked twice
    meeting = _Meeting(new, ", ".join(sorted({table.name for one in of_tables for table in one.tables})))
    module.register_forward_hook(meeting.of_outputs)
    for anchor in new:
        setattr(anchor, _HOOKED, anchor.register_hook(meeting.of_ticket))
    return module


class _Meeting:
    """Lets the ranks meet once behind each backward pass of a module, whichever tables a rank has used.

    So no row is written before all have read, and a NaN of one rank is one of all, as GradScaler expects. A
    table that one rank has used gets a ticket on all, which take part in its update.

    Args:
      anchors: The parameters that stand for the tables.
      names: Of the tables, for messages.
    """

    def __init__(self, anchors: list[Any], names: str) -> None:
        self._anchors = anchors
        self._label = f"the gradient of tables {quoted(names)}"
        self._begun = False

    def of_outputs(self, module: Any, inputs: Any, outputs: Any) -> None:
        """Finds where backward passes begin: a hook of the module's forward pass."""
        del module, inputs
        self._begun = False  # the pass before may have failed
        for one in keras.tree.flatten(outputs):
            if torch.is_tensor(one) and one.requires_grad:
                one.register_hook(self._begin)

    def of_ticket(self, ticket: Any) -> Any:
        """Marks a ticket: a hook of an anchor."""
        self._begin(ticket)
        return marked(ticket)

    def _begin(self, gradient: Any) -> None:
        del gradient
        if not self._begun:
            self._begun = True
            torch.autograd.Variable._execution_engine.queue_callback(self._meet)

    def _meet(self) -> None:
        self._begun = False
        with torch.no_grad(), torch_tickets.plain():
            tickets = [one.grad for one in self._anchors]
            mine = [[one is not None, 0.0 if one is None else float(0.0 * one.sum())] for one in tickets]
            (found,) = settings.workers().mean([np.array(mine, np.float32)], self._label)
            for anchor, (used, zero_or_nan) in zip(self._anchors, found.tolist(), strict=True):
                if used and anchor.grad is None:
                    anchor.grad = torch.zeros_like(anchor)
                if zero_or_nan != 0:
                    anchor.grad += zero_or_nan


# --- torch.distributed --------------------------------------------------------------------------------------


def group() -> tuple[str, int, int] | None:
    """Returns name, rank and size of what connects processes of a program by itself; None: nothing does."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    return "torch.distributed", distributed.get_rank(), distributed.get_world_size()


def process() -> Process:
    """Returns what this process is in the process group. Every rank must call it."""
    found = group()
    assert found is not None
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    word = torch.tensor([*secrets.token_bytes(8)], dtype=torch.uint8, device=device)
    torch.distributed.broadcast(word, 0)
    return Process(*found, 0, 1, bytes(word.tolist()).hex())
