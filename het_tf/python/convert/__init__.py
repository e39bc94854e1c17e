"""From models of Keras to models with tables."""
