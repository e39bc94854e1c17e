"""Metrics for Keras (public as `het_tf.metrics`): their states, which ranks exchange."""
