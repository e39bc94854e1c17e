"""The Keras layers, and the ops under them."""
