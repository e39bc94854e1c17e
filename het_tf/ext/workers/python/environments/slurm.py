"""In a step of Slurm: `srun python train.py`."""

import re

from het_tf.ext.workers.python.environments.place import Environment, Place, count, number, run_id

VARIABLES = (
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "SLURM_PROCID", "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NNODES", "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE",
)  # fmt: skip
_SPECIAL = 0xFFFFFFF0  # from here on steps are a batch script, an interactive shell, or Slurm's own
_OF_MPIRUN = ("OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")


def present(env: Environment) -> bool:
    """Whether srun has started this process.

    A batch script and an interactive shell are one process, also in an allocation for many. Below mpirun,
    which starts its daemons by srun, the variables are those of the daemons.
    """
    if any(name in env for name in _OF_MPIRUN):
        return False
    if not all(name in env for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID")):
        return False
    return bool({"SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"} & {*env}) and number(env, "SLURM_STEP_ID") < _SPECIAL


def place(env: Environment) -> Place:
    """Its place. The run is named by job, step and restart."""
    size = count(env, "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in env else "SLURM_NTASKS")
    local_rank = number(env, "SLURM_LOCALID", 0)
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    return Place(
        "Slurm",
        number(env, "SLURM_PROCID"),
        size,
        local_rank,
        _tasks_here(env) or (size if env.get("SLURM_NNODES") == "1" else local_rank + 1),
        run_id(env, ".".join(str(number(env, name, 0)) for name in names), "Slurm"),
    )


def _tasks_here(env: Environment) -> int:
    """How many tasks of the step this node has, from a list such as "2(x3),1"; 0 if it is not said."""
    text = env.get("SLURM_STEP_TASKS_PER_NODE", "")
    if not text:
        return 0
    tasks: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            raise ValueError(f"SLURM_STEP_TASKS_PER_NODE is '{text}'; Slurm writes it as 2(x3),1")
        tasks += [int(match[1])] * int(match[2] or 1)
    node = number(env, "SLURM_NODEID", 0)
    return tasks[node] if node < len(tasks) else 0
