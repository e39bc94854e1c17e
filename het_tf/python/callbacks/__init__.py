"""Keras callbacks that need layers and workers."""
