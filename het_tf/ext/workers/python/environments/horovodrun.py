"""Under horovodrun, where it starts ranks itself (Gloo). With MPI it calls mpirun: `mpi`."""

from het_tf.ext.workers.python.environments.process import Environment, Process, read

_NAMES = ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE")
_WHERE = ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT")
VARIABLES = (*_NAMES, *_WHERE)


def present(env: Environment) -> bool:
    """Whether horovodrun has started this process."""
    return "HOROVOD_RANK" in env


def process(env: Environment) -> Process:
    """Returns it. The run is named by the address at which its ranks meet, if they do not meet by MPI."""
    word = ":".join(env[name] for name in _WHERE) if all(env.get(name) for name in _WHERE) else "horovodrun"
    return read(env, "horovodrun", _NAMES, word)
