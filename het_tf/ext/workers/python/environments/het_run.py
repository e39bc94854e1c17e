"""Under `het run`."""

from het_tf.ext.workers.python.environments.process import Environment, Process, read

_NAMES = ("HET_RANK", "HET_WORLD_SIZE", "HET_LOCAL_RANK", "HET_LOCAL_WORLD_SIZE")
VARIABLES = (*_NAMES, "HET_RUN_ID", "HET_RESTART")


def present(env: Environment) -> bool:
    """Whether `het run` has started this process."""
    return "HET_RANK" in env


def process(env: Environment) -> Process:
    """Returns it."""
    if "HOROVOD_RANK" in env:
        raise ValueError(
            f"HET_RANK is '{env['HET_RANK']}' and HOROVOD_RANK is '{env['HOROVOD_RANK']}'; a process is "
            "started by `het run` or by horovodrun: leave one out"
        )
    return read(env, "het run", _NAMES, "")
