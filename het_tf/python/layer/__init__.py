"""The Keras layers, and their ops."""
