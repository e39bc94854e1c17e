"""Under torchrun, and what sets its variables, such as Kubeflow's PyTorchJob."""

from het_tf.ext.workers.python.environments.process import Environment, Process, number, read

_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
VARIABLES = (*_NAMES, "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")


def present(env: Environment) -> bool:
    """Whether all that it sets for one process is there: RANK alone may be anybody's."""
    return all(name in env for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def process(env: Environment) -> Process:
    """Returns it. The run is named by torchrun's id, its restarts, and the address of rank 0."""
    start = f"{env.get('TORCHELASTIC_RUN_ID', '')}.{number(env, 'TORCHELASTIC_RESTART_COUNT', 0)}"
    return read(env, "torchrun", _NAMES, f"{start}.{env['MASTER_ADDR']}:{number(env, 'MASTER_PORT')}")
