"""`het run`: starts ranks, watches them, and ends them together. Nothing here imports TensorFlow."""
