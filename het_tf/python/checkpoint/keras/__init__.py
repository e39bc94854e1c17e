"""How the tables of a model are saved, restored and copied with it, by the means of TensorFlow and Keras.

* bundle.py: tf.train.Checkpoint. h5.py: .keras and .weights.h5. arrays.py: get_weights and set_weights.
* moment.py: the rows of a table in a directory, which all three move; pack.py: such a directory as arrays.
* workers.py: what is different with several workers. beside.py: files that are whole or not there.
"""

from het_tf.python.checkpoint.keras import arrays, bundle, h5, notes
from het_tf.python.checkpoint.keras.notes import TablesNotSavedWarning

__all__ = ["TablesNotSavedWarning", "arrays", "bundle", "h5", "notes"]
