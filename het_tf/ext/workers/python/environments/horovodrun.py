"""Under horovodrun, where it starts ranks itself (Gloo). With MPI it calls mpirun: `mpi`."""

from het_tf.ext.workers.python.environments.place import Environment, Place, count, number, run_id

VARIABLES = (
    "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT",
)  # fmt: skip


def present(env: Environment) -> bool:
    """Whether horovodrun has started this process."""
    return "HOROVOD_RANK" in env


def place(env: Environment) -> Place:
    """Its place. The run is named by the address at which its ranks meet."""
    where = [env.get(f"HOROVOD_GLOO_RENDEZVOUS_{part}", "") for part in ("ADDR", "PORT")]
    return Place(
        "horovodrun",
        number(env, "HOROVOD_RANK"),
        count(env, "HOROVOD_SIZE"),
        number(env, "HOROVOD_LOCAL_RANK", 0),
        count(env, "HOROVOD_LOCAL_SIZE", 1),
        run_id(env, ":".join(where) if all(where) else "", "horovodrun"),
    )
