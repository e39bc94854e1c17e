"""Where a process runs, by the variables of each launcher, copied from real ones."""

import json
from collections import UserDict

import pytest

from het_tf.ext.workers.python import environments
from het_tf.ext.workers.python.environments import Process

HET_RUN = {
    "HET_RANK": "3", "HET_WORLD_SIZE": "4", "HET_LOCAL_RANK": "1", "HET_LOCAL_WORLD_SIZE": "2",
    "HET_RUN_ID": "a1", "HET_RESTART": "0",
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
}  # fmt: skip
HOROVODRUN = {
    "HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2",
    "HOROVOD_CROSS_RANK": "0", "HOROVOD_CROSS_SIZE": "1",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": "4711",
}  # fmt: skip
TORCHRUN = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1",
    "MASTER_ADDR": "node0", "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_MAX_RESTARTS": "3",
}  # fmt: skip
SLURM = {
    "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "1", "SLURM_PROCID": "4", "SLURM_NTASKS": "7",
    "SLURM_STEP_NUM_TASKS": "7", "SLURM_LOCALID": "0", "SLURM_NODEID": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_TASKS_PER_NODE": "2(x3),1",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "1234567", "PMIX_RANK": "2",
}  # fmt: skip
INTEL_MPI = {
    "PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "HET_RUN_ID": "mine",
}  # fmt: skip
KUBERNETES = {"JOB_COMPLETION_INDEX": "3", "HET_WORLD_SIZE": "4", "HOSTNAME": "train-3"}


def tf_config(kind: str, index: object, **cluster: list[str]) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


WORKERS = ["a:1", "b:1", "b:2"]
CHIEF = tf_config("worker", 2, chief=["c:1"], worker=WORKERS)


PROCESSES = [
    (HET_RUN, Process("het run", 3, 4, 1, 2, "a1")),
    (HOROVODRUN, Process("horovodrun", 1, 2, 1, 2, "10.0.0.1:4711")),
    (TORCHRUN, Process("torchrun", 5, 8, 1, 4, "job.2.node0:29500")),
    (SLURM, Process("Slurm", 4, 7, 0, 2, "77.1.0")),
    (SLURM | {"SLURM_RESTART_COUNT": "3"}, Process("Slurm", 4, 7, 0, 2, "77.1.3")),
    (OPEN_MPI, Process("mpirun", 2, 4, 0, 2, "1234567")),
    (INTEL_MPI, Process("mpirun", 1, 2, 1, 2, "mine")),
    (KUBERNETES, Process("Kubernetes", 3, 4, 0, 1, "train")),
    (CHIEF, Process("TF_CONFIG", 3, 4, 1, 2, "")),
    ({**HET_RUN, **SLURM}, Process("het run", 3, 4, 1, 2, "a1")),
    # mpirun starts its daemons by srun: these variables of Slurm are the daemon's.
    ({**SLURM, **OPEN_MPI}, Process("mpirun", 2, 4, 0, 2, "1234567")),
]  # fmt: skip


@pytest.mark.parametrize(("env", "process"), PROCESSES)
def test_process(env: dict[str, str], process: Process) -> None:
    found = environments.find(env)
    if process.launcher == "TF_CONFIG":
        assert found is not None and len(found.run_id) == 16
        process = Process(*[*vars(process).values()][:-1], found.run_id)
    assert found == process


def test_all_tasks_of_a_cluster_name_the_run_alike() -> None:
    """The task must not enter the hash: ranks would wait for each other in different runs."""
    processes = [
        environments.find(tf_config(kind, index, worker=WORKERS, chief=["c:1"]))
        for kind, index in (("chief", 0), ("worker", 0), ("worker", 1), ("worker", "2"))
    ]
    assert [one and one.rank for one in processes] == [0, 1, 2, 3]
    assert len({one and one.run_id for one in processes}) == 1
    other = environments.find(tf_config("worker", 0, worker=["a:1"], chief=["c:2"]))
    assert other is not None and processes[0] is not None and other.run_id != processes[0].run_id


BATCH = {name: SLURM[name] for name in ("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")}


HALVES = [
    {},
    BATCH,  # an sbatch script, which srun has not started
    {"SLURM_JOB_ID": "7", "SLURM_NNODES": "2"},
    {**BATCH, "SLURM_STEP_ID": "4294967290"},  # the shell of salloc
    {"RANK": "1"},
    {"RANK": "1", "WORLD_SIZE": "2"},
    {"TF_CONFIG": ""},
    {"TF_CONFIG": '{"task": {"type": "worker", "index": 0}}'},
    {"HET_WORLD_SIZE": "2"},
]


@pytest.mark.parametrize("env", HALVES)
def test_half_of_a_launch_is_one_process(env: dict[str, str]) -> None:
    assert environments.find(env) is None


BAD_VARIABLES = [
    (HET_RUN | {"HET_RANK": "x"}, "HET_RANK is 'x'; it must be a whole number"),
    (HET_RUN | {"HET_RANK": "-1"}, "HET_RANK is '-1'"),
    (HET_RUN | {"HET_RANK": "4"}, "rank 4 of 4; ranks go from 0 to 3"),
    (HET_RUN | {"HET_WORLD_SIZE": "0"}, "HET_WORLD_SIZE is '0'; it must be a whole number of 1 or more"),
    ({"HET_RANK": "0"}, "HET_WORLD_SIZE is not set"),
    ({"HET_RANK": "0", "HET_WORLD_SIZE": "1"}, "HET_RUN_ID is not set"),
    ({**HET_RUN, **HOROVODRUN}, "HET_RANK is '3' and HOROVOD_RANK is '1'"),
    (HOROVODRUN | {"HOROVOD_SIZE": "two"}, "HOROVOD_SIZE is 'two'"),
    (TORCHRUN | {"MASTER_PORT": "http"}, "MASTER_PORT is 'http'"),
    (SLURM | {"SLURM_PROCID": "7"}, "Slurm's variables say rank 7 of 7"),
    (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "two"}, "SLURM_STEP_TASKS_PER_NODE is 'two'"),
    (OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "²"}, "OMPI_COMM_WORLD_SIZE is '²'"),
    ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "HET_RUN_ID is not set, and mpirun gives a job no name"),
    ({"JOB_COMPLETION_INDEX": "0"}, '{name: HET_WORLD_SIZE, value: "4"}'),
    (KUBERNETES | {"HOSTNAME": "pod"}, "HET_RUN_ID is not set, and Kubernetes gives"),
    ({"TF_CONFIG": "worker"}, "TF_CONFIG is no JSON"),
    ({"TF_CONFIG": "[1]"}, "TF_CONFIG has [1]"),
    ({"TF_CONFIG": '{"cluster": {"worker": "a:1"}}'}, 'TF_CONFIG has {"worker": "a:1"}'),
    ({"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}, "TF_CONFIG has null; write"),
    (tf_config("worker", 0, worker=["a:1", "a:1"]), "names the task a:1 twice"),
    (tf_config("worker", 0, worker=["a:1"], chief=["a:1"]), "names the task a:1 twice"),
    (tf_config("evaluator", 0, worker=["a:1"]), "has the task evaluator"),
    (tf_config("ps", 0, worker=["a:1"], ps=["b:1"]), "has the task ps"),
    (tf_config("worker", 1, worker=["a:1"]), "the task worker 1, and its cluster has 1 of type worker"),
    (tf_config("worker", [0], worker=["a:1"]), "the task worker [0]"),
]  # fmt: skip


@pytest.mark.parametrize(("env", "said"), BAD_VARIABLES)
def test_bad_variables(env: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError) as error:
        environments.find(env)
    assert said in str(error.value)


def test_variables_are_those_that_are_read() -> None:
    """Catches a variable that `het run --check` would not show."""

    asked: set[str] = set()

    class Recorded(UserDict[str, str]):
        def __getitem__(self, name: str) -> str:
            asked.add(name)
            return super().__getitem__(name)

    all_of = (HET_RUN, HOROVODRUN, TORCHRUN, CHIEF, SLURM, OPEN_MPI, KUBERNETES)
    for launcher, env in zip(environments.LAUNCHERS, all_of, strict=True):
        asked.clear()
        assert launcher.present(Recorded(env)) and launcher.process(Recorded(env))
        assert asked and asked - {"", "HET_RUN_ID", "HOSTNAME"} <= {*launcher.VARIABLES}
