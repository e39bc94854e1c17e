"""Two ranks of TensorFlow train, save, restore and export; many cases in one launch of each launcher.

What ranks do on every backend is tests/plugin/backends/test_several_workers.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from functools import partial

import accumulate_lib
import exact_worker
import numpy as np
import on_demand_lib
import pytest
import ranks
import ranks_cases
import ranks_worker
import redis_lib
import saving_lib
import tensorflow as tf
from checkpoint_lib import fit, model, tables, weights
from floats_lib import MODEL, assert_close

import het_tf
from het_tf import checkpoint

pytestmark = [pytest.mark.slow, ranks.SERVER]
EXAMPLE = ranks.ROOT / "examples" / "wide_deep.py"
STEPS = 5  # of accumulate
ALONE = ("ways", "end_together", "in_step", "export", "publish", "fail", "orders")
OF_HOROVOD = ("bits", "ways", "end_together", "in_step")  # what passes through its means


def launched(place, launcher, *functions):
    job = ranks.Job(place, *functions, launcher=launcher, TMPDIR=str(place))
    yield job
    assert job.end() == 0, job.out[-6000:]
    assert all(f"rank {rank} is done" in job.out for rank in (0, 1))
    assert job.out.count("runs the parameter server of this job at unix://") == 1
    assert "keeps the parameter server" not in job.out, "rank 0 should not wait"
    assert job.out.count("the data of rank 0 ended first, after 7 batches") == 1  # of end_together
    assert not ranks.servers_below(place) and not list(place.glob("het_ps_*"))


@pytest.fixture(scope="module")
def horovod(tmp_path_factory):
    functions = [getattr(ranks_worker, name) for name in OF_HOROVOD]
    yield from launched(tmp_path_factory.mktemp("horovod"), "horovod", *functions, exact_worker.exact)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    functions = [getattr(ranks_worker, name) for name in (*ALONE, "keras_files", "save")]
    summed = partial(accumulate_lib.exact, steps=STEPS)
    with redis_lib.cluster(tmp_path_factory.mktemp("cluster"), 2) as cluster:
        functions += [
            exact_worker.exact, accumulate_lib.agreement, on_demand_lib.beside_a_stream,
            partial(summed, name="sum", how="eager", scale="sum"),
            partial(summed, name="shards", how="loop", ps=cluster.address, cache_rows=5),
        ]  # fmt: skip
        yield from launched(tmp_path_factory.mktemp("ranks"), "het_tf", *functions)


@pytest.mark.parametrize("case", [*ALONE, "agreement", "beside_a_stream"])
def test_both_ranks_are_through(job, case):
    """The assertions of a case are in tests/lib: ranks_worker.py, accumulate_lib.py, on_demand_lib.py."""
    job.values(case)


@ranks.HOROVOD
@pytest.mark.parametrize("case", OF_HOROVOD)
def test_both_ranks_of_horovod_are_through(horovod, case):
    horovod.values(case)


@pytest.fixture(scope="module")
def union():
    het_tf.reset()
    yield exact_worker.union(2)
    het_tf.reset()


def equals_the_union(of_ranks, union):
    mine, other = of_ranks
    assert set(mine) <= set(union)
    for name, found in mine.items():
        np.testing.assert_array_equal(found, other[name], err_msg=name)
        if name.startswith("float/") and not name.endswith("/ids"):
            assert_close(found, union[name], message=name)
        else:
            np.testing.assert_array_equal(found, union[name], err_msg=name)
    assert len(set(union["placed/rows"].ravel())) > 10, "the rows have moved"


@pytest.mark.parametrize("launcher", ["job", pytest.param("horovod", marks=ranks.HOROVOD)])
def test_two_ranks_equal_one_process_on_the_union_batch(request, launcher, union):
    equals_the_union(request.getfixturevalue(launcher).values("exact"), union)


@pytest.mark.long
@ranks.HOROVOD
def test_two_ranks_on_two_shards_equal_one_process(union, tmp_path):
    functions = [partial(exact_worker.exact, more=True), partial(ranks_worker.ways, more=True)]
    with redis_lib.cluster(tmp_path / "cluster", 2) as cluster:
        job = ranks.Job(tmp_path, *functions, launcher="horovod", HET_PS=cluster.address)
        equals_the_union(job.values("exact"), union)
        job.values("ways")
        assert job.end() == 0


def test_one_process_restores_checkpoint_of_two_ranks(job, fresh):
    job.values("save")
    made = model(whole=True)
    fit(made, 0, 1)
    found = checkpoint.restore(job.place / "c", made)
    assert found.step == 7 and found.base is not None and found.partitions == 64
    later = np.load(job.place / "later0.npz")
    table = tables()["item"]
    for name in ("ids", "clocks", "counts", "rows"):
        np.testing.assert_array_equal(table[name], later[name])
    for number, one in enumerate(weights(made)):
        np.testing.assert_array_equal(one, later[f"w{number}"])


@pytest.mark.long
@ranks.HOROVOD
def test_three_ranks_restore_checkpoint_of_one_process(job, fresh, tmp_path):
    job.values("save")
    made = model(whole=True)
    for step in (4, 7):
        checkpoint.restore(job.place / "c" / f"ckpt-{step:08d}", made)
        checkpoint.save(tmp_path / "c", made, step=step)
    for name in ("later0.npz", "saved0.npz"):
        (tmp_path / name).write_bytes((job.place / name).read_bytes())
    ranks.run(tmp_path, ranks_worker.load, ranks=3, launcher="horovod")


def test_files_of_keras_have_what_both_ranks_have_trained(job, fresh):
    found, _ = job.values("keras_files")
    made = saving_lib.make_model("sgd")
    for name in ("x.weights.h5", "x.keras"):
        tf.keras.Model(made.input, made.output).load_weights(str(job.place / name))
        restored = saving_lib.everything()
        for column in ("ids", "clocks", "counts", "last_used", "rows"):
            np.testing.assert_array_equal(restored[column], found[column])
        assert_close(saving_lib.predictions(made), found["predictions"], MODEL)


# --- the mode `accumulate` ---------------------------------------------------------------------------------


def test_accumulated_gradients_of_two_ranks_are_those_of_the_union_batch(job, fresh):
    """At one server, and at two with a cache of five rows."""
    expected = accumulate_lib.one_process(2, STEPS)
    for name in ("sum", "shards"):
        of_ranks = job.values(name)
        accumulate_lib.equals(expected, of_ranks[0])
        for found in of_ranks:  # a schedule counts steps at every worker, whichever updates the row
            assert found["applies"] == dict.fromkeys(accumulate_lib.OPTIMIZERS, STEPS)
            assert found["unsent"] == 0


@pytest.mark.long  # without TensorFlow: OnDemandExact.EveryOptimizerWhereGradientsAreSummed
def test_rows_on_demand_equal_one_process(tmp_path, fresh):
    """Would catch: the copy of the owner of a shared row counts as out of date, or those of others do not."""
    function = partial(accumulate_lib.exact, name="exact", how="on_demand", steps=STEPS, cache_rows=5)
    with redis_lib.cluster(tmp_path / "cluster", 2) as cluster:
        found = ranks.run(tmp_path, function, HET_PS=cluster.address)
    accumulate_lib.equals(accumulate_lib.one_process(2, STEPS, full=True), found[0])
    assert [one["unsent"] for one in found] == [0, 0]


def test_one_worker_exchanges_nothing(fresh):
    het_tf.init(ps="", accumulate=True)
    expected = accumulate_lib.one_process(1, 5).tables()
    het_tf.init()
    again = accumulate_lib.one_process(1, 5).tables()
    for table, scan in expected.items():
        np.testing.assert_array_equal(scan["rows"], again[table]["rows"])


# --- ranks of Horovod that die; those of het_tf are in test_several_workers.py -----------------------------


@ranks.HOROVOD
@pytest.mark.parametrize(
    ("victim", "how", "said"),
    [
        (0, "kill", "Process 0 exit with status code 137"),
        pytest.param(1, "kill", "Process 1 exit with status code 137", marks=pytest.mark.long),
        pytest.param(1, "error", "OSError: the disk of rank 1 is full", marks=pytest.mark.long),
        # Rank 0 kept the server for the stopped rank, which can send nothing, after its own step had failed.
        pytest.param(1, "stop", "rank 1 is stopped (SIGSTOP); the parameter server of this job stops",
                     marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_dead_rank_ends_job_and_server(victim, how, said, tmp_path):
    names = ("STALL_SHUTDOWN_TIME", "STALL_CHECK_TIME", "GLOO_TIMEOUT") if how == "stop" else ()
    seconds = {f"HOROVOD_{name}_SECONDS": "6" for name in names}
    die = partial(ranks_cases.die, victim=victim, how=how)
    job = ranks.Job(tmp_path, die, launcher="horovod", TMPDIR=str(tmp_path), **seconds)
    assert job.end() != 0 and said in job.out, job.out[-3000:]
    assert f"rank {1 - victim} is done" not in job.out
    assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is" not in job.out
    for _ in range(100):  # the server's keeper looks every now and then
        if not ranks.servers_below(tmp_path) and not list(tmp_path.glob("het_ps_*")):
            return
        time.sleep(0.1)
    raise AssertionError(f"left behind: {ranks.servers_below(tmp_path)}, {list(tmp_path.iterdir())}")


# --- whole programs ----------------------------------------------------------------------------------------


def auc_of(text: str) -> float:
    found = re.findall(r"test AUC (\d\.\d{4})", text)
    assert len(found) == 1, text[-4000:]
    return float(found[0])


@pytest.mark.long
@ranks.HOROVOD
def test_the_example_prints_on_rank_0_alone():
    done = ranks.launch(EXAMPLE, "--epochs", 1)
    assert done.returncode == 0, done.stdout[-4000:]
    assert auc_of(done.stdout) > 0.89
    assert "[0]<stdout>:" in done.stdout and "[1]<stdout>:" not in done.stdout
    epochs = re.findall(r"<stdout>:(\d+)/\d+ .*val_auc", done.stdout)
    assert epochs == ["91"], "each rank has half of the 183 batches, and one tells"


@pytest.mark.long
@ranks.HOROVOD
def test_census_on_two_ranks_reaches_single_process_auc(tmp_path):
    command = [sys.executable, str(EXAMPLE), "--staleness", "100"]
    variables = {**os.environ, "PYTHONPATH": str(ranks.ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    single = auc_of(done.stdout)
    with redis_lib.cluster(tmp_path, 2) as cluster:
        done = ranks.launch(EXAMPLE, "--staleness", 100, HET_PS=cluster.address)
    assert done.returncode == 0, done.stdout[-4000:]
    double = auc_of(done.stdout)
    print(f"test AUC: one process {single:.4f}, two ranks on two shards {double:.4f}")
    assert double > single - 0.003


@pytest.mark.long
def test_a_job_that_is_started_again_ends_as_if_nothing_had_been(tmp_path):
    """Would catch rows that are ahead of the checkpoint after a restart, and a namespace that stays taken."""
    ends = []
    for dies in (False, True):
        place = tmp_path / f"dies{dies}"
        place.mkdir()
        resumed = partial(ranks_worker.resumed, dies=dies)
        options = {"options": ("--max-restarts", 1), "TMPDIR": str(tmp_path)}
        ends.append(ranks.run(place, resumed, **options)[0])
    for one, other in zip(*ends, strict=True):
        # Which of two ranks a row adds first is a matter of time.
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
