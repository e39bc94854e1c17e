"""Keras layers, the ops under them, and what tables are declared with."""
