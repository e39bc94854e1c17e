"""Workers that Horovod has started: they meet through it, and it averages dense gradients."""

import collections
import logging
import os
import weakref
from typing import Any

from het_tf.ext.ps.python import address as addresses
from het_tf.ext.ps.python import job_server
from het_tf.ext.workers.python.environments.process import Process
from het_tf.ext.workers.python.joining import Listener
from het_tf.ext.workers.python.mesh_tensors import TensorMesh
from het_tf.python.session.native import tf
from het_tf.python.session.workers import objects, packed

log = logging.getLogger("het_tf")

# Number of means of a graph so far. Horovod matches tensors by name: TensorFlow derives names from layers'
# names, whose numbers differ if one rank has made one layer more.
_counts: weakref.WeakKeyDictionary[Any, collections.Counter[str]] = weakref.WeakKeyDictionary()


class Horovod(TensorMesh):
    """The ranks of Horovod.

    Args:
      hvd: The module horovod.tensorflow, initialised.
      process: Where this process runs.
      address: The parameter server; None: the ranks are on one machine, and rank 0 will start one.

    Raises:
      RuntimeError: There is no address, and the ranks run on several machines.
      TimeoutError, ValueError: As TensorMesh.
    """

    def __init__(self, hvd: Any, process: Process, address: addresses.Address | None) -> None:
        self.hvd = hvd
        with Listener(address) as mine:
            said = packed((mine.text, address is None, job_server.machine()), "het_tf.meet")
            lines = hvd.allgather(tf.constant([*said], tf.uint8), name="het_tf.meet")
            of_ranks = objects(bytes(lines.numpy()), process.size)
            if any(alone for _, alone, _ in of_ranks):
                job_server.refuse_other_machines([machine for *_, machine in of_ranks])
            sockets = mine.join(process, lambda: [text for text, *_ in of_ranks])
        super().__init__(process, sockets)
        if process.rank == 0:
            _warn_of_stalls()

    def mean(self, gradients: list[Any], label: str) -> list[Any]:
        """As Workers.mean."""
        if not tf.executing_eagerly():
            counter = _counts.setdefault(tf.compat.v1.get_default_graph(), collections.Counter())
            counter[label] += 1
            label = f"{label}.{counter[label]}"
        reduced = [
            self.hvd.allreduce(one, op=self.hvd.Average, name=f"{label}.{number}", ignore_name_scope=True)
            for number, one in enumerate(gradients)
        ]
        if tf.executing_eagerly() or not reduced:
            return reduced
        # Grappler removes an op without side effects if no op with side effects uses its data. An assertion
        # has side effects: it takes the first number of each. A table's update comes after all ranks'
        # lookups, which are before their gradients.
        values = [one.values if isinstance(one, tf.IndexedSlices) else one for one in reduced]
        all_of_them = tf.raw_ops.Assert(
            condition=True, data=[tf.reshape(value, [-1])[:1] for value in values]
        )
        with tf.control_dependencies([all_of_them]):
            return [tf.identity(one) for one in reduced]

    def leave(self) -> None:
        """As Workers.leave."""
        super().leave()
        # As at every exit under Horovod. A rank that still waits for this one learns of its exit now, not
        # after rank 0 has waited for all others.
        self.hvd.shutdown()


def _warn_of_stalls() -> None:
    """Warns if Horovod will not end the job after the requested time.

    Its stall check ends a job only after a warning, and does not notice processes that are stopped or on an
    unreachable machine: all ranks then wait in Gloo.
    """
    asked, warning, gloo = (
        float(os.environ.get(f"HOROVOD_{name}_SECONDS", default))
        for name, default in (("STALL_SHUTDOWN_TIME", 0), ("STALL_CHECK_TIME", 60), ("GLOO_TIMEOUT", 30))
    )
    if 0 < asked < max(warning, gloo):
        log.warning(
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is %g, but Horovod ends a job only after "
            "HOROVOD_STALL_CHECK_TIME_SECONDS (%g) for a rank that hangs, or after "
            "HOROVOD_GLOO_TIMEOUT_SECONDS (%g) for one that is stopped; set both to at most %g",
            asked, warning, gloo, asked,
        )  # fmt: skip
