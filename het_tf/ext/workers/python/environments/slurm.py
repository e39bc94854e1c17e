"""In a step of Slurm: `srun python train.py`."""

import re

from het_tf.ext.workers.python.environments.process import Environment, Process, number, read

VARIABLES = (
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "SLURM_PROCID", "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE",
)  # fmt: skip
_SPECIAL = 0xFFFFFFF0  # from here on steps are a batch script, an interactive shell, or Slurm's own
_OF_MPIRUN = ("OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")


def present(env: Environment) -> bool:
    """Whether srun has started this process.

    A batch script and an interactive shell are one process, also in an allocation for many. Below mpirun,
    which starts its daemons by srun, the variables are those of the daemons.
    """
    named = all(name in env for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID"))
    if not named or any(name in env for name in _OF_MPIRUN):
        return False
    return bool({"SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"} & {*env}) and number(env, "SLURM_STEP_ID") < _SPECIAL


def process(env: Environment) -> Process:
    """Returns it. The run is named by job, step and restart."""
    size = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in env else "SLURM_NTASKS"
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    word = ".".join(str(number(env, name, 0)) for name in names)
    here = _tasks_here(env) or number(env, "SLURM_LOCALID", 0) + 1
    return read(env, "Slurm", ("SLURM_PROCID", size, "SLURM_LOCALID", ""), word, here)


def _tasks_here(env: Environment) -> int:
    """How many tasks of the step this node has, from a list such as "2(x3),1"; 0 if it is not said."""
    text = env.get("SLURM_STEP_TASKS_PER_NODE", "")
    parts = [re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part) for part in text.split(",")]
    if text and not all(parts):
        raise ValueError(f"SLURM_STEP_TASKS_PER_NODE is '{text}'; Slurm writes it as 2(x3),1")
    tasks = [int(part[1]) for part in parts if part for _ in range(int(part[2] or 1))]
    return dict(enumerate(tasks)).get(number(env, "SLURM_NODEID", 0), 0)
