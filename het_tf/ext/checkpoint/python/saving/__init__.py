"""Saves, restores and copies the tables of a model with TensorFlow's and Keras' own functions.

* bundle.py: tf.train.Checkpoint, on TensorFlow. h5.py: .keras and .weights.h5.
* pack.py: the rows of a table as arrays, which both use; moment.py: as a directory.
* workers.py: several workers.
"""

from het_tf.ext.checkpoint.python.saving import h5, pack
from het_tf.python import backend

if backend.TENSORFLOW:
    from het_tf.ext.checkpoint.python.saving import bundle as bundle

__all__ = ["h5", "pack"]
