"""Metrics for Keras (public as `het_tf.metrics`): their states, and what of them ranks exchange."""
