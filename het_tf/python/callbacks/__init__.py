"""Callbacks of Keras that need layers and workers."""
