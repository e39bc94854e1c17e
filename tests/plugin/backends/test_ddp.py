"""Plain PyTorch under DistributedDataParallel, on two ranks of torchrun, equals one process."""

from functools import partial

import numpy as np
import pytest
import ranks
from backends_lib import on_torch

import het_tf

torch = pytest.importorskip("torch")
DistributedDataParallel = torch.nn.parallel.DistributedDataParallel
pytestmark = [pytest.mark.slow, ranks.SERVER, on_torch]

CASES = ("plain", "accumulated", "scaled", "skipped")
IDS, STEPS, BATCH = 20, 12, 16


def bag(name):
    cache = het_tf.Cache(rows=64, staleness=0) if het_tf.workers.size() > 1 else None
    return het_tf.torch.EmbeddingBag(4, name=name, optimizer=het_tf.optimizers.SGD(0.2), cache=cache)


class Model(torch.nn.Module):
    """A bag of a table, and a dense head that is rank 0's on all ranks."""

    def __init__(self, name):
        super().__init__()
        self.bag = bag(name)
        self.head = torch.nn.Linear(4, 1)
        self.other = None
        if name == "skipped":
            self.other = bag("other")
            self.steps = 0
        with torch.no_grad():
            self.head.weight.fill_(0.5 + het_tf.workers.rank())
            self.head.bias.zero_()

    def forward(self, ids):
        return self.head(self.bag(ids) if self.other is None else self.of_first_half(ids))[:, 0]

    def of_first_half(self, ids):
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


def batches(seed):
    """This rank's part of each batch."""
    rank, size = het_tf.workers.rank(), het_tf.workers.size()
    part = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    generator = torch.Generator().manual_seed(seed)
    while True:
        ids = torch.randint(0, IDS, (BATCH, 3), generator=generator)
        yield ids[part], torch.randn(BATCH, generator=generator)[part]


def train(name):
    model = Model(name)
    if het_tf.workers.size() > 1:
        model = DistributedDataParallel(het_tf.workers.distribute(model))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if name == "scaled" else None
    micro_steps = 2 if name == "accumulated" else 1
    data = batches(len(name))
    for step in range(STEPS):
        optimizer.zero_grad()
        for _ in range(micro_steps):
            ids, labels = next(data)
            loss = ((model(ids) - labels) ** 2).mean() / micro_steps
            if scaler and step == 5 and het_tf.workers.rank() == 0:
                # Rows' gradients of one rank alone overflow, and no dense one: all must skip the step.
                loss = loss + getattr(model, "module", model).bag(ids).sum() * torch.inf
            (scaler.scale(loss) if scaler else loss).backward()
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
    het_tf.flush(all_ranks=True)
    left_out = {"scaled": 1, "skipped": STEPS // 3 * het_tf.workers.rank()}.get(name, 0)
    assert het_tf.Table(name).updates == STEPS - left_out
    tables = [name, "other"] if name == "skipped" else [name]
    found = {f"rows of {table}": het_tf.Table(table).lookup(np.arange(IDS)) for table in tables}
    return found | {
        name.removeprefix("module."): one.detach().numpy().copy()
        for name, one in model.named_parameters()
        if "head" in name
    }


def refusals():
    # By DDP, which was not told of the table, and alone: a step is refused, and changes no row.
    for name, wrap in (("averaged", DistributedDataParallel), ("alone", lambda model: model)):
        model = wrap(Model(name))
        ids, labels = next(batches(0))
        before = het_tf.Table(name).lookup(np.arange(IDS))
        ((model(ids) - labels) ** 2).mean().backward()
        with ranks.refused((ValueError, RuntimeError), "het_tf.workers.distribute"):
            torch.optim.SGD(model.parameters(), 0.1).step()
        np.testing.assert_array_equal(het_tf.Table(name).lookup(np.arange(IDS)), before)
    differs = Model("differs")
    differs.head = torch.nn.Linear(4, 1 + het_tf.workers.rank())
    for module, error, words in (
        (DistributedDataParallel(Model("x")), ValueError, "DistributedDataParallel already"),
        (3, TypeError, "give a Keras model, or a module of PyTorch"),
        (differs, RuntimeError, "'Model' differs between rank 0 and rank 1 in its parameters"),
    ):
        with ranks.refused(error, words):
            het_tf.workers.distribute(module)


def test_modules_under_ddp_equal_one_process(server, tmp_path):
    functions = [partial(train, name=case) for case in CASES]
    job = ranks.Job(tmp_path, *functions, refusals, launcher="torchrun", HET_PS=server)
    for case in CASES:
        mine, other = job.values(case)
        expected = train(case)
        for name, one in mine.items():
            np.testing.assert_array_equal(one, other[name], err_msg=name)
            np.testing.assert_allclose(one, expected[name], rtol=0, atol=2e-6, err_msg=f"{case} {name}")
    job.values("refusals")
    assert job.end() == 0
