"""How the tables of a model are saved, restored and copied with it, by the means of TensorFlow and Keras.

* bundle.py: tf.train.Checkpoint. h5.py: .keras and .weights.h5.
* moment.py: the rows of a table in a directory, which both move; pack.py: such a directory as arrays.
* refusal.py: get_weights and set_weights, which carry no tables.
* workers.py: what is different with several workers. beside.py: files that are whole or not there.
"""

from het_tf.python.saving import bundle, h5, notes, refusal
from het_tf.python.saving.notes import TablesNotSavedWarning

__all__ = ["TablesNotSavedWarning", "bundle", "h5", "notes", "refusal"]

refusal.of_early_stopping()
