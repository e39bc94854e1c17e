"""Several workers under Horovod: `horovodrun -np 4 python train.py`.

    het_tf.init()                                         # finds Horovod; before the first layer
    dataset = het_tf.horovod.shard(dataset).batch(128)    # this rank's share
    model = het_tf.horovod.distribute(model)              # gradients, first weights, metrics
    model.compile("adam", ...)                            # not hvd.DistributedOptimizer
    model.fit(dataset, callbacks=[het_tf.callbacks.Checkpoint("ckpts")])

Horovod averages dense gradients; rows of tables go to the parameter server that all ranks share. Without
Horovod the same program is one worker. `shard(samples, by="user", batch=128)` gives a rank the samples of its
own users, so that fewer rows travel. See docs/horovod.md. Only the names for elastic jobs import
Horovod, at their first use.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from het_tf.ext.workers.python.callbacks import broadcast, on_rank_zero
from het_tf.ext.workers.python.data import shard
from het_tf.ext.workers.python.distribute import distribute
from het_tf.ext.workers.python.gradients import reduce_gradients
from het_tf.ext.workers.python.metrics import global_metrics, global_states
from het_tf.ext.workers.python.shortest import until_shortest
from het_tf.python.session.collective import barrier, rank

if _TYPE_CHECKING:
    from het_tf.ext.workers.python.elastic import ElasticState, run_elastic


def __getattr__(name: str) -> _Any:
    if name in ("ElasticState", "run_elastic"):
        from het_tf.ext.workers.python import elastic

        return getattr(elastic, name)
    raise AttributeError(f"module 'het_tf.horovod' has no attribute {name!r}")


__all__ = [
    "ElasticState",
    "barrier",
    "broadcast",
    "distribute",
    "global_metrics",
    "global_states",
    "on_rank_zero",
    "rank",
    "reduce_gradients",
    "run_elastic",
    "shard",
    "until_shortest",
]
