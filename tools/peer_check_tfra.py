"""Forward and backward through a TFRA cuckoo-hash table; run by tools/peers.sh --check."""

import tensorflow as tf
import tensorflow_recommenders_addons as tfra

table = tfra.dynamic_embedding.get_variable("check", tf.int64, tf.float32, dim=4, initializer=1.0)
optimizer = tfra.dynamic_embedding.DynamicEmbeddingOptimizer(tf.keras.optimizers.legacy.Adagrad(0.1))
ids = tf.constant([1, 2, 2, 1 << 40], tf.int64)

trainable: list[tf.Variable] = []


def loss() -> tf.Tensor:
    rows, wrapper = tfra.dynamic_embedding.embedding_lookup(table, ids, return_trainable=True, name="check")
    trainable[:] = [wrapper]
    return tf.reduce_sum(rows**2)


losses = []
for _ in range(3):
    losses.append(float(loss()))
    optimizer.minimize(loss, lambda: trainable)
print("TFRA", tfra.__version__, "TensorFlow", tf.__version__, "loss", losses, "rows", int(table.size()))
assert losses[-1] < losses[0] and int(table.size()) == 3
