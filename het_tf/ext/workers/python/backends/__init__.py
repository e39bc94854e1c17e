"""What several workers need of a backend of Keras, a file each.

    BEGINS_IN_STEP     whether weights have values in a train_step: JAX traces it with none
    NO_JIT             why a model that is compiled with jit_compile=True is refused; "": it is not
    outside_graphs()   a scope in which values are computed at once
    have_values(...)   whether weights have values now
    value(variable)    its value, as Workers.broadcast takes it
    reduce(gradients)  averages gradients over the ranks
    fits(model, fit)   `fit` whose ranks take equally many steps, or all raise
    settle(), end_passes()   flush what a planned stream holds back

TensorFlow has ops of the plugin, in graphs; PyTorch and JAX share arrays.py.
"""

import importlib
from typing import Any

from het_tf.python import backend

ops: Any = importlib.import_module(f"{__name__}.{backend.NAME}")
