"""Wrote what lies beside it, with tensorflow-cpu 2.16.2, tf-keras 2.16.0 and TFRA 0.8.1 (tools/peers.sh).

    for kind in checkpoint files; do
      TF_USE_LEGACY_KERAS=1 .peers/tfra/bin/python tests/ext/convert/tfra/make.py $kind
    done

A table of two shards with a step of Adam, and ids 3 and 4 that no step has trained; prints what is in it.
"""

import sys
from pathlib import Path

import tensorflow as tf
import tensorflow_recommenders_addons as tfra

de = tfra.dynamic_embedding
kind = sys.argv[1]
creator = {"checkpoint": None, "files": de.CuckooHashTableCreator(saver=de.FileSystemSaver())}[kind]
table = de.get_variable(
    "item", tf.int64, tf.float32, dim=2, initializer=0.0, devices=["/CPU:0"] * 2, kv_creator=creator
)
ids = tf.constant([1, 2, 2**40, -7, 3, 4], tf.int64)
table.upsert(ids, tf.reshape(tf.range(12.0), (6, 2)))
optimizer = de.DynamicEmbeddingOptimizer(tf.keras.optimizers.legacy.Adam(0.125))
wrappers: list[tf.Variable] = []


def loss():
    rows, wrapper = de.embedding_lookup(table, ids[:4], return_trainable=True, name="look")
    wrappers[:] = [wrapper]
    return tf.reduce_sum(rows**2)


optimizer.minimize(loss, lambda: wrappers)
tf.train.Checkpoint(item=table, optimizer=optimizer).write(str(Path(__file__).parent / kind / "model"))
for which in (table, *(optimizer.get_slot(wrappers[0], slot).params for slot in ("m", "v"))):
    keys, values = which.export()
    print(which.name, dict(zip(keys.numpy().tolist(), values.numpy().tolist(), strict=True)))
