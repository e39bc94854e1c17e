"""Every optimizer against its formula in float64: lazy, per row, on the summed gradients of a step.

Tolerance: 1e-6 of the largest magnitude that this part of the table (the value, or one slot) has reached, and
of 1 where all are smaller. Measured, 100 steps of float32 rounding use at most 0.57 of it.
"""

from __future__ import annotations

import numpy as np
import pytest
from optimizer_lib import Optimizer, initial_values
from optimizer_oracles import Adagrad, Adam, Ftrl, Momentum, Rmsprop, RowWiseAdagrad, Sgd

IDS, BATCH, STEPS = 20, 30, 100


CASES = [
    ("sgd", Sgd, {}),
    ("momentum", Momentum, {}),
    ("momentum", Momentum, {"momentum": 0.75, "nesterov": 1}),
    ("rmsprop", Rmsprop, {}),
    ("rmsprop", Rmsprop, {"rho": 0.99, "epsilon": 1e-3}),
    ("adam", Adam, {}),
    ("adam", Adam, {"beta_1": 0.5, "beta_2": 0.99, "epsilon": 1e-3}),
    ("adam", Adam, {"beta_1": 0}),
    ("adagrad", Adagrad, {}),
    ("adagrad", Adagrad, {"initial_accumulator": 0.0, "epsilon": 1e-3}),
    ("row_wise_adagrad", RowWiseAdagrad, {}),
    ("row_wise_adagrad", RowWiseAdagrad, {"initial_accumulator": 0.0, "epsilon": 1e-3}),
    ("ftrl", Ftrl, {}),
    ("ftrl", Ftrl, {"l1": 0.5, "l2": 0.25, "beta": 1, "l2_shrinkage": 0.05, "initial_accumulator": 0.5}),
]


def case_name(case):
    return case if isinstance(case, str) else None


def oracle_of(cls, values, params):
    renamed = {("momentum_param" if name == "momentum" else name): value for name, value in params.items()}
    return cls(values, **renamed)


def steps(rng, dim):
    """Yields (lr, ids, G): the ids that occur, once each, and their summed gradients in float32."""
    for step in range(STEPS):
        ids, inverse = np.unique(rng.zipf(1.3, BATCH) % IDS, return_inverse=True)
        assert len(ids) < BATCH  # ids repeat
        summed = np.zeros((len(ids), dim))
        np.add.at(summed, inverse, rng.normal(size=(BATCH, dim)))
        yield np.float32(0.1 / (1 + 0.05 * step)), ids, (summed / 4).astype(np.float32)


def assert_table(optimizer, rows, oracle, peak):
    for name, part in {"value": slice(0, optimizer.dim), **optimizer.slots}.items():
        expected = getattr(oracle, name)
        peak[name] = max(peak.get(name, 1.0), np.abs(expected).max())
        np.testing.assert_allclose(rows[:, part], expected, rtol=0, atol=1e-6 * peak[name], err_msg=name)


@pytest.mark.parametrize("dim", [1, 3, 16, 33])
@pytest.mark.parametrize(("name", "oracle", "params"), CASES, ids=case_name)
def test_oracle(name, oracle, params, dim):
    rng = np.random.default_rng(7)
    optimizer = Optimizer(name, params, dim)
    values = initial_values("uniform", -0.5, 0.5, seed=1, table=name, dim=dim, keys=np.arange(IDS))
    rows = np.stack([optimizer.fresh_row(value) for value in values])
    reference = oracle_of(oracle, values, params)
    peak = {}
    for lr, ids, gradients in steps(rng, dim):
        for i, g in zip(ids, gradients, strict=True):
            optimizer.apply(lr, g, rows[i])
            reference.tick(i, g.astype(np.float64), np.float64(lr))
        assert_table(optimizer, rows, reference, peak)
    touched = np.abs(reference.value - values).max(axis=1) > 0
    assert touched.sum() > IDS // 2, "the test must move most rows"


@pytest.mark.parametrize(("name", "oracle", "params"), CASES, ids=case_name)
def test_one_worker_through_a_server_is_the_oracle(name, oracle, params):
    """Updates that travel, merged at random times and composed in between, end where the oracle ends."""
    dim, rng = 16, np.random.default_rng(8)
    optimizer = Optimizer(name, params, dim)
    values = initial_values("uniform", -0.5, 0.5, seed=1, table=name, dim=dim, keys=np.arange(IDS))
    cached = np.stack([optimizer.fresh_row(value) for value in values])
    server = cached.copy()
    pending = [(optimizer.identity(), 0) for _ in range(IDS)]
    queued = [(optimizer.identity(), 0) for _ in range(IDS)]
    reference = oracle_of(oracle, values, params)
    peak = {}
    for lr, ids, gradients in steps(rng, dim):
        for i, g in zip(ids, gradients, strict=True):
            update, p = pending[i]
            optimizer.apply(lr, g, cached[i], update)
            pending[i] = update, p + 1
            reference.tick(i, g.astype(np.float64), np.float64(lr))
            if rng.random() < 0.3:  # evicted: its update joins what waits for the frame
                waiting, q = queued[i]
                optimizer.compose(update, p + 1, waiting)
                queued[i], pending[i] = (waiting, q + p + 1), (optimizer.identity(), 0)
            if rng.random() < 0.2:  # the frame leaves
                optimizer.merge(*queued[i], server[i])
                queued[i] = optimizer.identity(), 0
    for i in range(IDS):
        optimizer.merge(*queued[i], server[i])
        optimizer.merge(*pending[i], server[i])
    assert_table(optimizer, cached, reference, peak)
    assert_table(optimizer, server, reference, peak)


def test_derived_value_does_not_travel():
    optimizer = Optimizer("ftrl", {}, 4)
    row, update = optimizer.fresh_row(np.full(4, 0.5)), optimizer.identity()
    optimizer.apply(0.1, np.ones(4, np.float32), row, update)
    assert optimizer.value_is_derived
    np.testing.assert_array_equal(update[:4], 0)


def test_refusal_reaches_python():
    with pytest.raises(ValueError, match=r"'beta_1' is 2; give a value from 0 to 0\.9999999"):
        Optimizer("adam", {"beta_1": 2.0}, 4)
    with pytest.raises(ValueError, match="no initializer 'glorot'"):
        initial_values("glorot", 0, 1, seed=1, table="t", dim=4, keys=np.arange(1))
