"""Tables in plain PyTorch, without a model of Keras: modules beside those of torch.nn.

    bag = het_tf.torch.EmbeddingBag(16, name="item", optimizer=het_tf.optimizers.Adam(1e-3))
    head = torch.nn.Linear(16, 1)
    optimizer = torch.optim.Adam([*bag.parameters(), *head.parameters()], lr=1e-3)

    optimizer.zero_grad()
    loss_of(head(bag(ids)), labels).backward()
    torch.nn.utils.clip_grad_norm_(bag.parameters(), 1.0)      # rows' gradients, too
    optimizer.step()                                           # updates the table

A table trains when `step()` of the torch.optim optimizer runs that has the module's parameter, with the
table's own optimizer. Importing this module chooses PyTorch as Keras' backend, unless KERAS_BACKEND or an
imported Keras says otherwise. See docs/backends.md.
"""

import os as _os
import sys as _sys

if "keras" not in _sys.modules:
    _os.environ.setdefault("KERAS_BACKEND", "torch")

from het_tf.python import backend as _backend

if _backend.NAME != "torch":
    raise ImportError(
        f"het_tf.torch needs PyTorch as Keras' backend, and it is {_backend.NAME!r}; set KERAS_BACKEND=torch "
        "before Keras is imported"
    )

from het_tf.python.layer.modules import EmbeddingBag, EmbeddingCollection

__all__ = ["EmbeddingBag", "EmbeddingCollection"]
