"""What programs do between a gradient and an update equals what a dense layer does, or is refused by name."""

import keras
import numpy as np
import pytest
from backends_lib import BACKEND, DIM, IDS, Reference, apply, array, gradients, on_jax, on_torch, rows

import het_tf

torch = pytest.importorskip("torch") if BACKEND == "torch" else None
STEPS = 3
EQUAL, REFUSED = {}, {}


def equal(use):
    """Adds a use that trains rows as those of torch.nn.Embedding."""
    EQUAL[use.__name__] = use
    return use


def refused(said):
    """Adds a use that raises a RuntimeError, whose text has `said`; no row moves."""

    def add(use):
        REFUSED[use.__name__] = use, said
        return use

    return add


class Run:
    """A module of rows with a head; losses of batches that have ids in common."""

    factor = 1.0  # of all losses

    def __init__(self, module):
        torch.manual_seed(0)
        self.module, self.head = module, torch.nn.Linear(DIM, 1)
        self.parameters = [*module.parameters(), *self.head.parameters()]
        self.rows = self.parameters[0]
        self.seen = []  # what a use reads, which must be equal, too

    def sgd(self, **options):
        return torch.optim.SGD(self.parameters, 0.1, **options)

    def loss(self, factor=1.0):
        ids, labels = torch.randint(0, IDS, (8, 2)), torch.randn(8)
        return factor * self.factor * ((self.head(self.module(ids))[:, 0] - labels) ** 2).mean()

    def train(self, before_step=lambda: None, calls=1, optimizer=None, scaler=None, steps=STEPS):
        """Takes steps, each of some backward passes."""
        optimizer = optimizer or self.sgd()
        for _ in range(steps):
            optimizer.zero_grad()
            for _ in range(calls):
                loss = self.loss(1 / calls)
                (scaler.scale(loss) if scaler else loss).backward()
            before_step()
            if scaler:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()

    def clip(self, largest=0.05, *order, **options):
        parameters = [self.rows] if order else self.parameters
        clip = torch.nn.utils.clip_grad_norm_
        return lambda: self.seen.append(float(clip(parameters, largest, *order, **options)))


def scaler(scale=1024.0):
    return torch.amp.GradScaler("cpu", init_scale=scale, backoff_factor=0.01)


def overflow(run, options):
    run.factor = 8.0
    run.train(optimizer=run.sgd(**options), scaler=scaler(3e38))
    run.seen.append(1 if isinstance(run.module, torch.nn.EmbeddingBag) else STEPS - het_tf.Table("t").updates)


# --- options of optimizers, scalers -------------------------------------------------------------------------


for options in ({"foreach": True}, {"foreach": False}, {"fused": True}):
    name = " ".join(f"{key}={value}" for key, value in options.items())
    EQUAL[name] = lambda run, options=options: run.train(optimizer=run.sgd(**options))
    EQUAL[f"scaler, {name}"] = lambda run, options=options: run.train(
        optimizer=run.sgd(**options), scaler=scaler()
    )
    EQUAL[f"scaler that overflows, {name}"] = lambda run, options=options: overflow(run, options)
for order in (1.0, 2.0, 3.0, float("inf")):
    for calls in (1, 3):
        EQUAL[f"clip by norm {order}, {calls} calls"] = lambda run, order=order, calls=calls: run.train(
            run.clip(0.02, order), calls
        )
for option in ("maximize", "differentiable"):
    REFUSED[option] = (lambda run, option=option: run.train(optimizer=run.sgd(**{option: True}))), option


def skipped(run):
    """Two steps of three are taken, by gradients that are zeros before, and of two losses."""
    optimizer = run.sgd()
    for step in range(3 * STEPS):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        (run.loss() + run.loss(2.0)).backward()
        if step % 3:
            optimizer.step()


EQUAL["steps that are left out"] = skipped
EQUAL["clip by foreach"] = lambda run: run.train(run.clip(foreach=True), 2)


@equal
def unscale_and_clip(run):
    optimizer, of_run = run.sgd(fused=True), scaler()
    clip = run.clip()
    run.train(lambda: (of_run.unscale_(optimizer), clip()), 2, optimizer, of_run)


@equal
def a_hook_of_the_optimizer_that_clips(run):
    optimizer, clip = run.sgd(), run.clip()
    for _ in range(2):
        optimizer.register_step_pre_hook(lambda *_: clip())
        run.train(optimizer=optimizer)


@equal
def a_closure_with_accumulation(run):
    optimizer, clip = run.sgd(), run.clip()

    def closure():  # as Lightning's, with accumulate_grad_batches
        optimizer.zero_grad()
        for _ in range(3):
            run.loss(1 / 3).backward()
        clip()

    for _ in range(STEPS):  # the table learned of the step before
        optimizer.step(closure)
    optimizer.step(closure=closure)


@equal
def a_norm_of_total(run):
    def clip():
        grads = [one.grad for one in run.parameters]
        total = torch.nn.utils.get_total_norm(grads)
        torch.nn.utils.clip_grads_with_norm_(run.parameters, 0.05, total)
        run.seen += [float(total), float(grads[0].norm()), float(torch.norm(grads[0].detach(), 1))]
        run.seen.append(float(run.rows.grad.data.norm(2).item()))

    run.train(clip, 2)


# --- gradients ----------------------------------------------------------------------------------------------


EQUAL["a hundred backward passes"] = lambda run: run.train(run.clip(), 100, steps=2)


@equal
def gradients_that_are_scaled(run):
    def scale():
        run.rows.grad *= 0.5
        run.rows.grad.data.mul_(torch.tensor(3.0))
        run.rows.grad.div_(4)
        run.rows.grad = -(run.rows.grad + 0.5 * run.rows.grad.clone()) / 2

    run.train(scale, 2)


@equal
def autograd_grad(run):
    optimizer = run.sgd()
    for _ in range(STEPS):
        first = torch.autograd.grad(run.loss(), run.parameters)
        second = torch.autograd.grad(run.loss() + run.loss(), run.parameters)
        run.seen.append(float(torch.linalg.vector_norm(second[0], 1)))
        for one, a, b in zip(run.parameters, first, second, strict=True):
            one.grad = a + 0.25 * b
        optimizer.step()


@equal
def hooks_of_the_parameter(run):
    optimizer = run.sgd()
    run.rows.register_hook(lambda gradient: gradient * 0.5)
    run.rows.register_hook(lambda gradient: run.seen.append(float(gradient.norm())))

    def step(_):
        optimizer.step()
        optimizer.zero_grad()

    run.rows.register_post_accumulate_grad_hook(step)
    for _ in range(STEPS):
        run.loss().backward()


@equal
def activation_checkpoints(run):
    optimizer = run.sgd()
    for _ in range(STEPS):
        optimizer.zero_grad()
        ids = torch.randint(0, IDS, (8, 2))
        hidden = torch.utils.checkpoint.checkpoint(lambda x: run.module(x).tanh(), ids, use_reentrant=False)
        run.head(hidden).square().mean().backward()
        optimizer.step()


for said, change in (
    ("clamp", lambda run: torch.nn.utils.clip_grad_value_(run.parameters, 1e-3)),
    ("clamp", lambda run: torch.nn.utils.clip_grad_value_(run.parameters, 1e-3, foreach=True)),
    ("sign", lambda run: run.rows.grad.sign_()),
    ("add", lambda run: run.rows.grad.add_(torch.randn(64, 2))),
    ("pow", lambda run: run.rows.grad.pow(2).sum()),
    ("norm", lambda run: run.rows.grad.detach().norm(2, dim=1, keepdim=True)),  # of adaptive clipping
):
    REFUSED[f"change {len(REFUSED)}"] = (
        lambda run, change=change: run.train(lambda: change(run)),
        f"{said}.* of a gradient of table 't'",
    )


@refused("clamp of a gradient")
def a_hook_that_clips_by_value(run):
    run.rows.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
    run.train()


@refused("more than 64 calls")
def many_gradients_with_other_factors(run):
    total = sum(
        (1.0 if number < 64 else 0.5) * torch.autograd.grad(run.loss(), [run.rows])[0] for number in range(70)
    )
    run.rows.grad = total
    run.sgd().step()


# --- values of the parameter --------------------------------------------------------------------------------


def subtract(parameter):
    parameter -= 0.1 * parameter.grad


def subtract_data(parameter):
    parameter.data -= 0.1 * parameter.grad.data


def by_hand(run, use):
    run.loss().backward()
    with torch.no_grad():
        use(run.rows)


for use in (
    subtract,
    subtract_data,
    lambda parameter: parameter.data.add_(parameter.grad, alpha=-0.1),
    lambda parameter: parameter.copy_(parameter - 0.1 * parameter.grad),
    lambda parameter: torch._foreach_add_([parameter], [parameter.grad], alpha=-0.1),
    lambda parameter: torch.zeros(64, 2).add_(parameter.grad),  # a momentum
    lambda parameter: torch.zeros(64, 2).lerp_(parameter, 0.1),  # an average of weights
    lambda parameter: parameter.norm(),
    lambda parameter: torch.linalg.vector_norm(parameter.detach()),
    lambda parameter: torch.nn.utils.parameters_to_vector([parameter]),
    lambda parameter: torch.nn.init.xavier_uniform_(parameter),
):
    REFUSED[f"by hand {len(REFUSED)}"] = (
        lambda run, use=use: by_hand(run, use),
        r"of a parameter that stands for table 't'.*step\(\) of an optimizer",
    )


@refused("stands for table 't'")
def a_penalty(run):
    (run.loss() + 0.1 * sum(one.square().sum() for one in run.parameters)).backward()


@refused("flatten of a parameter that stands for table 't'")
def fully_sharded(run):
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        distributed.fsdp.FullyShardedDataParallel(run.module, device_id=torch.device("cpu"))
    finally:
        distributed.destroy_process_group()


@refused("torch.func")
def func_grad(run):
    def loss(parameters, ids):
        return torch.func.functional_call(run.module, parameters, (ids,)).sum()

    torch.func.grad(loss)(dict(run.module.named_parameters()), torch.tensor([[1, 2]]))


@on_torch
@pytest.mark.parametrize("use", EQUAL)
def test_equal_uses(use):
    found = []
    module = _bag()
    reference = torch.nn.EmbeddingBag.from_pretrained(torch.from_numpy(rows()), freeze=False, mode="mean")
    for one in (module, reference):
        run = Run(one)
        EQUAL[use](run)
        found.append([run.head.weight.detach().numpy(), np.array(run.seen)])
    found[0].append(rows())
    found[1].append(reference.weight.detach().numpy())
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    assert not het_tf.Table("t").stats()["unapplied_gradients"] or "overflow" in use


@on_torch
@pytest.mark.parametrize("use", REFUSED)
def test_refused_uses(use):
    run = Run(_bag())
    before = rows()
    function, said = REFUSED[use]
    with pytest.raises(RuntimeError, match=said):
        function(run)
    np.testing.assert_array_equal(rows(), before)
    assert not run.rows.detach().any()


def _bag():
    import het_tf.torch as ours

    return ours.EmbeddingBag(DIM, name="t", optimizer=het_tf.optimizers.SGD(0.1))


# --- on each backend of Keras -------------------------------------------------------------------------------


def in_a_loop(layer, ids):
    return sum(keras.ops.mean(keras.ops.square(layer(one))) for one in ids)


def in_a_scan(layer, ids):
    import jax

    return jax.lax.scan(lambda total, one: (total + in_a_loop(layer, [one]), None), 0.0, ids)[0]


def with_training(layer, ids):
    return sum(keras.ops.mean(keras.ops.square(layer(one, training=True))) for one in ids)


@pytest.mark.parametrize("program", [in_a_loop, pytest.param(in_a_scan, marks=on_jax), with_training])
def test_a_hundred_calls_of_a_step(program):
    """They were refused, as if their gradient had been clipped by value."""
    layer = het_tf.keras.Embedding(DIM, name="t", optimizer=het_tf.optimizers.SGD(0.1))
    reference = Reference(rows())
    ids = np.random.default_rng(0).integers(0, IDS, (100, 4)).astype("int32")
    for one in (layer, reference):
        calls = in_a_loop if one is reference else program
        _, found = gradients(lambda one=one, calls=calls: calls(one, ids), one.trainable_variables)
        apply(keras.optimizers.SGD(0.1), found, one.trainable_variables)
    np.testing.assert_allclose(rows(), array(reference.embeddings), rtol=0, atol=1e-6)
    assert het_tf.Table("t").updates == 1


CHANGES = {
    "sign": keras.ops.sign,
    "square": keras.ops.square,
    "clip": lambda x: keras.ops.clip(x, -1, 1),
    "minimum": lambda x: keras.ops.minimum(x, 0.5 * keras.ops.max(x)),
    "add": lambda x: x + 0.1,
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_that_are_not_linear(change):
    """They are refused, and the gradient is still there."""
    layer = het_tf.keras.Embedding(DIM, name="t", optimizer=het_tf.optimizers.SGD(0.1))
    before, optimizer = rows(), keras.optimizers.SGD(0.1)
    _, found = gradients(lambda: keras.ops.sum(layer(np.array([1, 2], "int32"))), layer.trainable_variables)
    with pytest.raises(Exception, match="'t'"):
        apply(optimizer, [CHANGES[change](found[0])], layer.trainable_variables)
    np.testing.assert_array_equal(rows(), before)
    apply(optimizer, found, layer.trainable_variables)
    assert het_tf.Table("t").updates == 1


@on_jax
def test_remat_is_refused():
    """JAX said that effects are not supported."""
    import jax

    layer = het_tf.keras.Embedding(DIM, name="t")
    ids = np.array([1, 2], "int32")
    with pytest.raises(RuntimeError, match=r"under jax\.checkpoint \(remat\).*give it the rows"):
        gradients(lambda: keras.ops.sum(jax.checkpoint(layer)(ids)), layer.trainable_variables)
