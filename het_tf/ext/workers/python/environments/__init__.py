"""Where a process runs: found by the variables that launchers set, a file each.

Imports neither TensorFlow nor Redis.

A launcher's module has `present(env)`, whether it has started this process; `process(env)`, which reads what
it says; and VARIABLES, those that it reads. Half of a launcher's variables, as in an interactive shell of
Slurm, are no launch: the process is alone.
"""

import importlib
import os
from types import ModuleType

from het_tf.ext.workers.python.environments.process import Environment, Process

_ORDER = ("het_run", "horovodrun", "torchrun", "tf_config", "slurm", "mpi", "kubernetes")
LAUNCHERS: list[ModuleType] = [importlib.import_module(f"{__name__}.{name}") for name in _ORDER]
"""In the order in which they are asked: the innermost launcher first."""


def find(env: Environment = os.environ) -> Process | None:
    """Returns what this process is; None: no launcher has started it.

    Args:
      env: The variables.

    Raises:
      ValueError: A launcher's variables contradict each other; the message names variable and remedy.
    """
    for launcher in LAUNCHERS:
        if launcher.present(env):
            found: Process = launcher.process(env)
            return found
    return None
