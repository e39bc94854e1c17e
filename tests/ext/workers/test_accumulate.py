"""The mode `accumulate` with two ranks and a Redis: as one process with all batches."""

import json
from pathlib import Path

import accumulate_lib
import horovod_lib
import numpy as np
import pytest
import redis_lib
from floats_lib import MODEL, assert_close, of_columns

import het_tf

STEPS = 5

pytestmark = [pytest.mark.slow, horovod_lib.RANKS]


def launch(jobs: list[dict], out: Path, workers: int = 2) -> list[dict]:
    """Runs the jobs, one after the other in one launch; returns what each rank has seen."""
    jobs = [{"out": str(out), **job} for job in jobs]
    done = horovod_lib.launch(accumulate_lib.__file__, json.dumps(jobs), ranks=workers, backend="het_tf")
    assert done.returncode == 0, done.stdout
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(workers)]


def one_process(workers: int, steps: int, full: bool = False) -> tuple[dict, np.ndarray]:
    """Tables and dense weights of a process that sees the workers' batches as one."""
    het_tf.reset()
    model = accumulate_lib.Model()
    batches = [accumulate_lib.union(batch) for batch in accumulate_lib.batches(workers, steps, full)]
    accumulate_lib.train(model, batches, "eager", accumulate_lib.BATCH * workers)
    return model.tables(), model.dense.numpy()


@pytest.fixture(scope="module")
def union() -> tuple[dict, np.ndarray]:
    """Trains one process on the batches of both workers."""
    return one_process(2, STEPS)


def check(file: Path, expected: dict, dense: np.ndarray) -> None:
    found = np.load(file)
    assert_close(found["dense"], dense)
    for table, scan in expected.items():
        np.testing.assert_array_equal(found[f"{table}/ids"], scan["ids"], table)
        # One tick per key and step, by any worker.
        np.testing.assert_array_equal(found[f"{table}/clocks"], scan["clocks"], table)
        dim = accumulate_lib.DIMS[table]
        values, slots = found[f"{table}/rows"][:, :dim], found[f"{table}/rows"][:, dim:]
        assert_close(values, scan["rows"][:, :dim], message=table)
        slots_of_union = scan["rows"][:, dim:]
        assert_close(slots, slots_of_union, MODEL, magnitude=of_columns(slots_of_union), message=table)


def exact(name: str, how: str, at: redis_lib.Server | redis_lib.Cluster, **more: object) -> dict:
    job = {"what": "exact", "ps": at.address, "name": name, "namespace": name, "how": how}
    return {**job, "steps": STEPS, "cache_rows": 1000, **more}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """All that workers are needed for, in one launch: at one server, and at two with a cache of five rows."""
    out = tmp_path_factory.mktemp("accumulate")
    with redis_lib.running(out / "redis") as server, redis_lib.cluster(out / "cluster", 2) as cluster:
        jobs = [
            exact("sum", "eager", server, scale="sum"),
            {"what": "agreement", "ps": server.address},
            exact("shards", "loop", cluster, cache_rows=5),
            {"what": "beside", "ps": server.address},
        ]
        return out, launch(jobs, out)


@pytest.mark.parametrize("name", ["sum", "shards"])
def test_two_workers_are_one_process_on_the_union_batch(union, runs, name):
    out, ranks = runs
    check(out / f"{name}.npz", *union)
    for rank in ranks:  # a schedule counts steps at every worker, whichever updates the row
        assert rank[name]["applies"] == {table: STEPS for table in accumulate_lib.OPTIMIZERS}
        assert rank[name]["unsent"] == 0


@pytest.mark.long  # without TensorFlow: OnDemandExact.EveryOptimizerWhereGradientsAreSummed
def test_rows_on_demand_equal_one_process(tmp_path):
    """Would catch: the copy of the owner of a shared row counts as out of date, or those of others do not."""
    with redis_lib.cluster(tmp_path / "cluster", 2) as cluster:
        ranks = launch([exact("on_demand", "on_demand", cluster, cache_rows=5)], tmp_path)
    check(tmp_path / "on_demand.npz", *one_process(2, STEPS, full=True))
    assert [rank["on_demand"]["unsent"] for rank in ranks] == [0, 0]


def test_calls_beside_a_stream_on_demand(runs):
    """Each case compares all rows that it reads with a numpy twin (on_demand_lib.py)."""
    for rank in runs[1]:
        assert len(rank["beside"]) == 4


def test_an_error_of_one_worker_is_raised_by_all(runs):
    for rank in runs[1]:
        seen = rank["agreement"]
        assert "InvalidArgumentError" in seen["nan"] and "worker 1 of 2: gradient of table" in seen["nan"]
        assert "no worker has updated a row" in seen["nan"]
        assert seen["nan rows"] == [0.0, 0.0]
        assert "no derivative" in seen["second derivative"]


def test_overflow_at_one_worker_skips_all_steps(runs):
    for rank in runs[1]:
        seen = rank["agreement"]
        assert seen["overflow"] == "0.0" and seen["overflow rows"] == [0.0, 0.0]
        # The next step counts: both workers' gradients, each half.
        assert seen["after"] == "0.0" and seen["after rows"] == [-1.0, -1.0]


def test_workers_without_samples_take_part(runs):
    for rank in runs[1]:
        seen = rank["agreement"]
        # Only worker 0 has [2, 2]: half of two gradients.
        assert seen["empty"] == "0.0" and seen["empty rows"] == [-1.0, -2.0]
        assert seen["nobody"] == "0.0"
        assert seen["cached rows"] <= 3


def test_gradients_of_different_layers_are_not_mixed_up(runs):
    for rank in runs[1]:
        seen = rank["agreement"]
        assert "FailedPreconditionError" in seen["another order"] and "same order" in seen["another order"]
        assert seen["another order a"] == seen["another order b"] == [0.0, 0.0]


def test_one_worker_exchanges_nothing(fresh):
    het_tf.init(ps="", accumulate=True)
    expected, _ = one_process(1, 5)
    het_tf.init()
    again, _ = one_process(1, 5)
    for table, scan in expected.items():
        np.testing.assert_array_equal(scan["rows"], again[table]["rows"])
