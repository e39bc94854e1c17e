"""What to use for a name that went. Only errors about a missing name read this table."""

from collections.abc import Callable
from typing import Any

_EXAMPLES = "the files of examples/, one a model"
_SYSTEMD = "redis-cli and systemd (docs/servers.md)"

# A name of a module, or a command: what takes its place.
GONE = {
    "het_tf.ConversionWarning": "het_tf.HetWarning",
    "het_tf.OldRowsWarning": "het_tf.HetWarning",
    "het_tf.TablesNotSavedWarning": "het_tf.HetWarning",
    "het_tf.convert": "het_tf.keras.convert(model)",
    "het_tf.data": _EXAMPLES,
    "het_tf.hash_ids": "het_tf.Table.hash_ids(strings)",
    "het_tf.horovod": "`het run --nnodes MIN:MAX --max-restarts N`, and het_tf.workers",
    "het_tf.metrics": "keras_rs.metrics, and het_tf.workers.distribute to merge the states of ranks",
    "het_tf.models": _EXAMPLES,
    "het_tf.callbacks.LearningRateScaling": "learning_rate=rate * het_tf.workers.size(), or a schedule of it",
    "het_tf.callbacks.PlanCheck": "het_tf.callbacks.TableStats, and `het plan show`",
    "het_tf.callbacks.StepTrace": "TensorFlow's profiler, and the times of Table.stats()",
    "het_tf.checkpoint.Manifest": "the file manifest.json of a checkpoint",
    "het_tf.checkpoint.load_rows": "het_tf.Table(name).assign(ids, values)",
    "het_tf.checkpoint.read_manifest": "the file manifest.json of a checkpoint",
    "het_tf.initializers.Initializer": "a class of het_tf.initializers",
    "het_tf.initializers.ScaledNormal": "RandomNormal(0, scale / sqrt(dim))",
    "het_tf.initializers.ScaledUniform": "RandomUniform(-scale / sqrt(dim), scale / sqrt(dim))",
    "het_tf.initializers.TruncatedNormal": "RandomNormal(mean, stddev)",
    "het_tf.initializers.get": "a class of het_tf.initializers",
    "het_tf.keras.MaskedEmbedding": "het_tf.keras.Embedding(padding_id=)",
    "het_tf.keras.TableVariable": "het_tf.Table",
    "het_tf.optimizers.Optimizer": "a class of het_tf.optimizers",
    "het_tf.optimizers.get": "a class of het_tf.optimizers",
    "het_tf.planner.Feature": "het_tf.FeatureConfig in a layer given to planner.profile",
    "het_tf.planner.Stats": "the directory of planner.profile, which `het plan show` reads",
    "het_tf.serving.Online": "het_tf.serving.Native(follow=het_tf.serving.Follow(address))",
    "het_tf.serving.stats": "`het serve status`",
    "het_tf.workers.barrier": "het_tf.workers.broadcast(model), for which every rank waits",
    "het_tf.workers.global_states": "het_tf.workers.global_metrics(model)",
    "het_tf.workers.on_rank_zero": "the callback where het_tf.workers.rank() == 0",
    "het ckpt inspect": "`het ckpt verify`, and the file manifest.json of a checkpoint",
    "het ckpt merge": "het_tf.callbacks.Checkpoint(full_every=), which bounds chains",
    "het data": "het_tf.workers.shard_placed(samples, by=) in the pipeline",
    "het ps conf": _SYSTEMD,
    "het ps form": "`redis-cli --cluster create`",
    "het ps promote": "`redis-cli CLUSTER FAILOVER` on the replica",
    "het ps save": "`redis-cli BGSAVE` on each shard",
    "het ps watch": _SYSTEMD,
    "het publish portable": "het_tf.export in a program that cron starts",
}


def told(name: str) -> str:
    """Returns the end of a message about a missing name: what to use now, or nothing."""
    return f"; use {GONE[name]}" if name in GONE else ""


def refuse(module: str) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a module: an AttributeError that says what to use now."""

    def getattr_of(name: str) -> Any:
        raise AttributeError(f"module {module!r} has no attribute {name!r}{told(f'{module}.{name}')}")

    return getattr_of
