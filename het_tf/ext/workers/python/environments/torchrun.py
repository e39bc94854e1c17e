"""Under torchrun, and what sets its variables, such as Kubeflow's PyTorchJob."""

from het_tf.ext.workers.python.environments.place import Environment, Place, count, number, run_id

VARIABLES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
)  # fmt: skip


def present(env: Environment) -> bool:
    """Whether all that it sets for one process is there: RANK alone may be anybody's."""
    return all(name in env for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def place(env: Environment) -> Place:
    """Its place. The run is named by torchrun's id, its restarts, and the address of rank 0."""
    start = [env.get("TORCHELASTIC_RUN_ID", ""), str(number(env, "TORCHELASTIC_RESTART_COUNT", 0))]
    return Place(
        "torchrun",
        number(env, "RANK"),
        count(env, "WORLD_SIZE"),
        number(env, "LOCAL_RANK", 0),
        count(env, "LOCAL_WORLD_SIZE", 1),
        run_id(env, ".".join([*start, f"{env['MASTER_ADDR']}:{number(env, 'MASTER_PORT')}"]), "torchrun"),
    )
