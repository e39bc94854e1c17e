"""Where a process runs: found by the variables that launchers set, a file each.

Imports neither TensorFlow nor Redis.

A launcher's module has `present(env)`, whether it has started this process; `place(env)`, which reads what it
says; and VARIABLES, those that it reads. Half of a launcher's variables, as in an interactive shell of Slurm,
are no launch: the process is alone.
"""

import importlib
import os
from types import ModuleType

from het_tf.ext.workers.python.environments.place import Environment, Place

_ORDER = ("het_run", "horovodrun", "torchrun", "tf_config", "slurm", "mpi", "kubernetes")
LAUNCHERS: list[ModuleType] = [importlib.import_module(f"{__name__}.{name}") for name in _ORDER]
"""In the order in which they are asked: the innermost launcher first."""


def find(env: Environment = os.environ) -> Place | None:
    """Returns the place of this process; None: no launcher has started it.

    Args:
      env: The variables.

    Raises:
      ValueError: A launcher's variables contradict each other; the message names variable and remedy.
    """
    for launcher in LAUNCHERS:
        if launcher.present(env):
            found: Place = launcher.place(env)
            return found
    return None
