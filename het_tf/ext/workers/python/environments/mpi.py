"""Under mpirun of Open MPI, and under that of MPICH and Intel (PMI)."""

from het_tf.ext.workers.python.environments.place import Environment, Place, count, number, run_id

VARIABLES = (
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
)  # fmt: skip
_KINDS = (
    tuple(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)  # fmt: skip


def present(env: Environment) -> bool:
    """Whether an mpirun has started this process."""
    return any(names[0] in env for names in _KINDS)


def place(env: Environment) -> Place:
    """Its place. The run is named by Open MPI's job id; others give none."""
    rank, size, local_rank, local_size = next(names for names in _KINDS if names[0] in env)
    job = env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_ess_base_jobid", "")
    return Place(
        "mpirun",
        number(env, rank),
        count(env, size),
        number(env, local_rank, 0),
        count(env, local_size, number(env, local_rank, 0) + 1),
        run_id(env, job, "this mpirun"),
    )
