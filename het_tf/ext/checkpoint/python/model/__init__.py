"""Checkpoints of a Keras model: its tables, dense weights and optimizer at one moment."""
