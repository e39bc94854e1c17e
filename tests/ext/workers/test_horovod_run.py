"""Two ranks, of Horovod and of het_tf: one that dies, one that is stopped, and the example."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import horovod_lib
import numpy as np
import pytest
import redis_lib

pytestmark = [pytest.mark.slow, horovod_lib.RANKS]
EXAMPLE = horovod_lib.ROOT / "examples" / "wide_deep.py"


@pytest.mark.parametrize(
    ("victim", "how", "code"),
    [
        (0, "kill", 137),
        pytest.param(1, "kill", 137, marks=pytest.mark.long),
        pytest.param(1, "error", 1, marks=pytest.mark.long),
    ],
)
def test_dead_rank_ends_job_and_server(victim, how, code, tmp_path):
    done = horovod_lib.launch(
        horovod_lib.WORKER, tmp_path, f"die:{victim}:{how}", TMPDIR=str(tmp_path), timeout=300
    )
    assert done.returncode != 0
    assert f"Process {victim} exit with status code {code}" in done.stdout, done.stdout[-3000:]
    assert f"rank {1 - victim} is done" not in done.stdout
    if how == "error":
        assert "ValueError: the data is bad here" in done.stdout
    for _ in range(100):  # the server's keeper looks every now and then
        if not horovod_lib.servers_below(tmp_path) and not list(tmp_path.glob("het_ps_*")):
            return
        time.sleep(0.1)
    raise AssertionError(f"left behind: {horovod_lib.servers_below(tmp_path)}, {list(tmp_path.iterdir())}")


@pytest.mark.long
def test_a_rank_that_is_stopped_ends_the_job(tmp_path):
    """Rank 0 kept the server for the stopped rank, which can send nothing, after its own step had failed."""
    seconds = {f"HOROVOD_{name}_SECONDS": "6" for name in ("STALL_SHUTDOWN_TIME", "STALL_CHECK_TIME")}
    done = horovod_lib.launch(
        horovod_lib.WORKER, tmp_path, "die:1:stop", TMPDIR=str(tmp_path), timeout=300,
        HOROVOD_GLOO_TIMEOUT_SECONDS="6", **seconds,
    )  # fmt: skip
    assert done.returncode != 0
    assert "rank 1 is stopped (SIGSTOP); the parameter server of this job stops" in done.stdout
    assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is" not in done.stdout
    assert not horovod_lib.servers_below(tmp_path)


def auc_of(text: str) -> float:
    found = re.findall(r"test AUC (\d\.\d{4})", text)
    assert len(found) == 1, text[-4000:]
    return float(found[0])


@pytest.mark.long
def test_the_example_prints_on_rank_0_alone():
    done = horovod_lib.launch(EXAMPLE, "--epochs", 1)
    assert done.returncode == 0, done.stdout[-4000:]
    assert auc_of(done.stdout) > 0.89
    assert "[0]<stdout>:" in done.stdout and "[1]<stdout>:" not in done.stdout
    epochs = re.findall(r"<stdout>:(\d+)/\d+ .*val_auc", done.stdout)
    assert epochs == ["91"], "each rank has half of the 183 batches, and one tells"


@pytest.mark.long
def test_census_on_two_ranks_reaches_single_process_auc(tmp_path):
    command = [sys.executable, str(EXAMPLE), "--staleness", "100"]
    environment = {**os.environ, "PYTHONPATH": str(horovod_lib.ROOT)}
    single = auc_of(
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    )
    with redis_lib.cluster(tmp_path, 2) as cluster:
        done = horovod_lib.launch(EXAMPLE, "--staleness", 100, HET_PS=cluster.address)
    assert done.returncode == 0, done.stdout[-4000:]
    double = auc_of(done.stdout)
    print(f"test AUC: one process {single:.4f}, two ranks on two shards {double:.4f}")
    assert double > single - 0.003


@pytest.mark.parametrize(
    ("victim", "how", "said"),
    [
        (1, "kill", "rank 1 is lost: its process has ended without a word"),
        (1, "stop", "rank 1 is lost: nothing has come from it for 2 s; its process is stopped"),
        pytest.param(0, "kill", "rank 0 is lost", marks=pytest.mark.long),
        pytest.param(1, "error", "ValueError: the data is bad here", marks=pytest.mark.long),
    ],
)
def test_a_lost_rank_of_het_tf_is_named_and_leaves_nothing(victim, how, said, tmp_path):
    """A rank that is stopped ended a job of Horovod after 48 s, with an error that named no rank."""
    done = horovod_lib.launch(
        "--timeout", 2, horovod_lib.WORKER, tmp_path, f"die:{victim}:{how}", backend="het_tf", timeout=300,
        TMPDIR=str(tmp_path),
    )  # fmt: skip
    assert done.returncode != 0
    assert said in done.stdout, done.stdout[-3000:]
    assert f"rank {1 - victim} is done" not in done.stdout
    assert not horovod_lib.servers_below(tmp_path) and not list(tmp_path.glob("het_ps_*"))
    assert "runs the parameter server of this job" in done.stdout


RESUMES = """
import os, signal
from pathlib import Path
import numpy as np, tensorflow as tf
import het_tf
from het_tf.python.session import settings

het_tf.init()
place = Path(os.environ["PLACE"])
rank, restart = settings.workers().rank, int(os.environ["HET_RESTART"])
tf.keras.utils.set_random_seed(3)
rng = np.random.default_rng(rank)
ids = rng.integers(0, 50, (640, 2))
y = (ids.sum(1, keepdims=True) % 3 == 0).astype(np.float32)
inputs = tf.keras.Input((2,), dtype="int64")
rows = het_tf.keras.Embedding(4, name="item", combiner="sum", cache=het_tf.Cache(staleness=0))(inputs)
model = het_tf.workers.distribute(tf.keras.Model(inputs, tf.keras.layers.Dense(1)(rows)))
model.compile(tf.keras.optimizers.SGD(0.1), "mse")
done = 0
if (place / "c").exists():
    done = het_tf.checkpoint.restore(place / "c", model).step // 20


class Die(tf.keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if os.environ.get("DIES") and not restart and rank == 1 and epoch == 2:
            os.kill(os.getpid(), signal.SIGKILL)


saves = het_tf.callbacks.Checkpoint(place / "c")
more = {"initial_epoch": done, "callbacks": [saves, Die()]}
model.fit(ids, y, batch_size=32, epochs=4, shuffle=False, verbose=0, **more)
if rank == 0:
    table = het_tf.Table("item").scan()
    columns = [table[name] for name in ("ids", "clocks", "rows")]
    np.savez(place / "end.npz", *columns, *model.layers[-1].get_weights())
"""


@pytest.mark.long
def test_a_job_that_is_started_again_ends_as_if_nothing_had_been(tmp_path):
    """Would catch rows that are ahead of the checkpoint after a restart, and a namespace that stays taken."""
    (tmp_path / "train.py").write_text(RESUMES)
    ends = []
    for dies in ("", "yes"):
        place = tmp_path / f"place{dies}"
        place.mkdir()
        done = horovod_lib.launch(
            "--max-restarts", 1, tmp_path / "train.py", backend="het_tf", timeout=300, DIES=dies,
            PLACE=str(place), TMPDIR=str(tmp_path),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:]
        assert ("rank 1" in done.stdout) == bool(dies)
        ends.append(np.load(place / "end.npz"))
    for name in ends[0]:
        # Which of two ranks a row adds first is a matter of time.
        np.testing.assert_allclose(ends[0][name], ends[1][name], rtol=0, atol=1e-6)
