"""Converts Keras models to models with tables."""
