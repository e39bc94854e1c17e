"""All that a layer (layers.py) and a table's variable (variable.py) know of a backend of Keras, a file each.

    JIT                Keras' supports_jit
    not_converted      decorates a method that the backend's compiler must leave as it is
    check(layer)       refuses a layer where its rows would be trained wrongly
    prepare(...)       a feature's ids, weights and mask ─► ids for `lookup`, and rows ─► output
    anchor(variables)  their values, one after the other
    lookup(...)        reads rows; its gradient keeps their gradients and returns tickets
    apply(...)         updates rows by a ticket, alone or with all workers
    updates(...)       counts the updates of tables
    is_state(value)    whether Keras puts the variable's own value back, outside of an optimizer
    keep_average(...)  a moving average of a variable, where Keras needs one
    cast, mask_of_ragged

TensorFlow has ops of the plugin. PyTorch and JAX share engine.py, the C functions of capi/steps.h on arrays,
and dense.py; torch.py has an autograd function, jax.py primitives with a derivative of their own.
"""

import importlib
from typing import Any

from het_tf.python import backend

ops: Any = importlib.import_module(f"{__name__}.{backend.NAME}")
