"""In a pod of an Indexed Job of Kubernetes."""

import socket

from het_tf.ext.workers.python.environments.process import Environment, Process, number, read

VARIABLES = ("JOB_COMPLETION_INDEX", "HET_WORLD_SIZE", "HET_RUN_ID")


def present(env: Environment) -> bool:
    """Whether this is such a pod."""
    return "JOB_COMPLETION_INDEX" in env


def process(env: Environment) -> Process:
    """Returns it. The run is named by the job; a pod's host name is JOB-INDEX.

    Raises:
      ValueError: Kubernetes tells no pod how many there are, and HET_WORLD_SIZE is not set.
    """
    rank = number(env, "JOB_COMPLETION_INDEX")
    if "HET_WORLD_SIZE" not in env:
        raise ValueError(
            f"JOB_COMPLETION_INDEX is '{rank}', and HET_WORLD_SIZE is not set; add to the container of the "
            'Job:\n  env:\n    - {name: HET_WORLD_SIZE, value: "4"}  # spec.parallelism; 1: pods train alone'
        )
    host = env.get("HOSTNAME") or socket.gethostname()
    job = host.removesuffix(f"-{rank}")
    return read(
        env, "Kubernetes", ("JOB_COMPLETION_INDEX", "HET_WORLD_SIZE", "", ""), job if job != host else ""
    )
