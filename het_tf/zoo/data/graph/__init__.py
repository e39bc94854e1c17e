"""Graphs: the file, the sampler, and data sets (public in `het_tf.data`)."""
