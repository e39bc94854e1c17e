"""Under mpirun of Open MPI, and under that of MPICH and Intel (PMI)."""

from het_tf.ext.workers.python.environments.process import Environment, Process, number, read

_OPEN = tuple(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
_PMI = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
VARIABLES = (*_OPEN, "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", *_PMI)


def present(env: Environment) -> bool:
    """Whether an mpirun has started this process."""
    return _OPEN[0] in env or _PMI[0] in env


def process(env: Environment) -> Process:
    """Returns it. The run is named by Open MPI's job id; others give none."""
    names = _OPEN if _OPEN[0] in env else _PMI
    job = env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_ess_base_jobid", "")
    return read(env, "mpirun", names, job, number(env, names[2], 0) + 1)
