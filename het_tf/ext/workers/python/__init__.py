"""Several workers under Horovod (public as `het_tf.horovod`)."""
