"""Checkpoints of a Keras model: its tables, its dense weights and its optimizer, of one moment."""
