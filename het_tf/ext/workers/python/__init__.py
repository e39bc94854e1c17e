"""Several workers (public as `het_tf.workers`)."""
