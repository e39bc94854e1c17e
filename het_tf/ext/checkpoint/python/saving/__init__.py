"""Saves, restores and copies the tables of a model with TensorFlow's and Keras' own functions.

* bundle.py: tf.train.Checkpoint, on TensorFlow. h5.py: .keras and .weights.h5.
* moment.py: the rows of a table in a directory, which both use; pack.py: such a directory as arrays.
* workers.py: several workers.
"""

from het_tf.ext.checkpoint.python.saving import h5, moment, pack
from het_tf.python import backend

if backend.TENSORFLOW:
    from het_tf.ext.checkpoint.python.saving import bundle as bundle

__all__ = ["h5", "moment", "pack"]
