"""Several workers (public as `het_tf.workers` and `het_tf.horovod`)."""
