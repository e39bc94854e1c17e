"""Saves, restores and copies the tables of a model with TensorFlow's and Keras' own functions.

* bundle.py: tf.train.Checkpoint, on TensorFlow. h5.py: .keras and .weights.h5.
* moment.py: the rows of a table in a directory, which both use; pack.py: such a directory as arrays.
* refusal.py: get_weights and set_weights, which cannot carry tables.
* workers.py: several workers. beside.py: atomic files.
"""

from het_tf.ext.checkpoint.python.saving import beside, h5, refusal
from het_tf.python import backend
from het_tf.python.table import notes
from het_tf.python.table.notes import TablesNotSavedWarning

if backend.TENSORFLOW:
    from het_tf.ext.checkpoint.python.saving import bundle as bundle

__all__ = ["TablesNotSavedWarning", "beside", "h5", "notes", "refusal"]

beside.of_models()
refusal.of_early_stopping()
