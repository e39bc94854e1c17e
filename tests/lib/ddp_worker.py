"""Plain PyTorch under DistributedDataParallel: `torchrun ddp_worker.py FOLDER`, two ranks; or one process."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

import het_tf
import het_tf.torch

CASES = ("plain", "accumulated", "scaled", "skipped")
IDS, STEPS, BATCH = 20, 12, 16


class Model(torch.nn.Module):
    """A bag of a table, and a dense head that is rank 0's on all ranks."""

    def __init__(self, name: str) -> None:
        super().__init__()
        cache = het_tf.Cache(rows=64, staleness=0) if het_tf.workers.size() > 1 else None
        self.bag = het_tf.torch.EmbeddingBag(4, name=name, optimizer=het_tf.optimizers.SGD(0.2), cache=cache)
        self.head = torch.nn.Linear(4, 1)
        self.other = None
        if name == "skipped":
            self.other = het_tf.torch.EmbeddingBag(
                4, name="other", optimizer=het_tf.optimizers.SGD(0.2), cache=cache
            )
            self.steps = 0
        with torch.no_grad():
            self.head.weight.fill_(0.5 + het_tf.workers.rank())
            self.head.bias.zero_()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.bag(ids) if self.other is None else self.of_first_half(ids))[:, 0]

    def of_first_half(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows of two tables, of which samples of the batch's second half use one, or in some steps none."""
        rank, size = het_tf.workers.rank(), het_tf.workers.size()
        half = max(0, BATCH // 2 - rank * BATCH // size)
        self.steps += 1
        users = half if self.steps % 3 == 0 else len(ids)
        rows = torch.zeros(len(ids), 4)
        for bag, count in ((self.bag, users), (self.other, half)):
            if count:
                rows = rows + torch.nn.functional.pad(bag(ids[:count]), (0, 0, 0, len(ids) - count))
        return rows


def batches(seed: int):
    """This rank's part of each batch."""
    rank, size = het_tf.workers.rank(), het_tf.workers.size()
    part = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    generator = torch.Generator().manual_seed(seed)
    while True:
        ids = torch.randint(0, IDS, (BATCH, 3), generator=generator)
        yield ids[part], torch.randn(BATCH, generator=generator)[part]


def train(case: str, optimizer=torch.optim.SGD):
    model = Model(case)
    if het_tf.workers.size() > 1:
        model = DistributedDataParallel(het_tf.workers.distribute(model))
    steps = optimizer(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if case == "scaled" else None
    micro_steps = 2 if case == "accumulated" else 1
    data = batches(len(case))
    for step in range(STEPS):
        steps.zero_grad()
        for _ in range(micro_steps):
            ids, labels = next(data)
            loss = ((model(ids) - labels) ** 2).mean() / micro_steps
            if scaler and step == 5 and het_tf.workers.rank() == 0:
                # Rows' gradients of one rank alone overflow, and no dense one: all must skip the step.
                loss = loss + getattr(model, "module", model).bag(ids).sum() * torch.inf
            (scaler.scale(loss) if scaler else loss).backward()
        if scaler:
            scaler.step(steps)
            scaler.update()
        else:
            steps.step()
    het_tf.flush(all_ranks=True)
    left_out = {"scaled": 1, "skipped": STEPS // 3 * het_tf.workers.rank()}.get(case, 0)
    assert het_tf.Table(case).updates == STEPS - left_out
    tables = [case, "other"] if case == "skipped" else [case]
    found = {f"rows of {name}": het_tf.Table(name).lookup(np.arange(IDS)) for name in tables}
    return found | {
        name.removeprefix("module."): one.detach().numpy().copy()
        for name, one in model.named_parameters()
        if "head" in name
    }


def refused(kind: type[Exception], text: str, action) -> None:
    try:
        action()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"not refused: {text}")


def bad(name: str, wrap) -> None:
    """A step of a model that nobody has made ready is refused, and changes no row."""
    model = wrap(Model(name))
    ids, labels = next(batches(0))
    before = het_tf.Table(name).lookup(np.arange(IDS))
    ((model(ids) - labels) ** 2).mean().backward()
    text = "het_tf.workers.distribute"
    refused((ValueError, RuntimeError), text, torch.optim.SGD(model.parameters(), 0.1).step)
    np.testing.assert_array_equal(het_tf.Table(name).lookup(np.arange(IDS)), before)


def main(folder: Path) -> None:
    # A rank that nobody meets ends the test.
    torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    het_tf.init()
    distribute = het_tf.workers.distribute
    for case in CASES:
        np.savez(folder / f"{case}{het_tf.workers.rank()}.npz", **train(case))
    bad("averaged", DistributedDataParallel)  # by DDP, which was not told of the table
    bad("alone", lambda model: model)
    refused(
        ValueError, "DistributedDataParallel already", lambda: distribute(DistributedDataParallel(Model("x")))
    )
    refused(TypeError, "give a Keras model, or a module of PyTorch", lambda: distribute(3))
    model = Model("differs")
    model.head = torch.nn.Linear(4, 1 + het_tf.workers.rank())
    refused(
        RuntimeError,
        "model 'Model' differs between rank 0 and rank 1 in its parameters",
        lambda: distribute(model),
    )
    print("through: ok", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
