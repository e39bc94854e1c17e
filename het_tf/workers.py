"""Several workers: `het run --nproc 4 train.py`, or any other launcher (docs/where-it-runs.md).

    het_tf.init()                                         # finds the other ranks; before the first layer
    dataset = het_tf.workers.shard(dataset).batch(128)    # this rank's share
    model = het_tf.workers.distribute(model)              # gradients, first weights, metrics
    model.compile("adam", ...)                            # not hvd.DistributedOptimizer
    model.fit(dataset, callbacks=[het_tf.callbacks.Checkpoint("ckpts")])

Ranks average dense gradients; rows of tables go to the parameter server that all share. Started alone, the
same program is one worker. `shard_placed(samples, by="user", batch=128)` gives a rank the samples of its own
users, so that fewer rows travel. See docs/workers.md.
"""

from typing import TYPE_CHECKING, Any

from het_tf.ext.streams.python.shard import shard, shard_on_demand, shard_placed
from het_tf.ext.workers.python.callbacks import broadcast
from het_tf.ext.workers.python.distribute import distribute
from het_tf.ext.workers.python.gradients import reduce_gradients
from het_tf.ext.workers.python.metrics import global_metrics
from het_tf.python import backend
from het_tf.python.gone import refuse
from het_tf.python.session.collective import rank, size

if TYPE_CHECKING or backend.TENSORFLOW:
    from het_tf.ext.workers.python.shortest import until_shortest


def __getattr__(name: str) -> Any:
    """Refuses what needs streams of TensorFlow."""
    if name in __all__:
        raise backend.needs_tensorflow(f"het_tf.workers.{name}")
    return refuse(__name__)(name)


__all__ = [
    "broadcast",
    "distribute",
    "global_metrics",
    "rank",
    "reduce_gradients",
    "shard",
    "shard_on_demand",
    "shard_placed",
    "size",
    "until_shortest",
]
