"""The function `het_tf.lookahead`, on each backend of Keras."""

import importlib
from collections.abc import Callable
from typing import Any

from het_tf.ext.streams.python import matching
from het_tf.python import backend
from het_tf.python.checks import whole


def lookahead(
    dataset: Any,
    layer: Any,
    window: int = 32,
    inputs: Callable[..., Any] | None = None,
) -> Any:
    """Announces the lookups of the next batches to het_tf.

        dataset = het_tf.lookahead(dataset.batch(1024), embed)
        model.fit(dataset)

    On PyTorch and JAX a `torch.utils.data.DataLoader`, or an iterator of batches such as a generator, takes
    the place of the dataset:

        loader = het_tf.lookahead(torch.utils.data.DataLoader(clicks, 1024, shuffle=True), model)

    Make it the last step of the pipeline. The pipeline's threads sort the ids of each ready batch, so the
    lookup need not do it. If tables are at a server, the rows of the next
    batch are checked and fetched while the current one is computed, and the lookup waits only for rows that
    have not arrived yet. They may lack updates that other workers send in that time: one more of each worker
    if workers are in step. At a pull bound of 0 (`staleness=0`) lookups do not begin early.

    A batch is recognised by its ids. A batch that the model does not look up, because the loop was left or
    the layer changes its ids, only costs memory until newer ones come; a lookup whose batch was not
    planned is an ordinary one. If tables are at a server, 32 such lookups in a row print a line on stderr.
    `Table.stats()["planned"]` counts planned lookups. The lookup reports errors of tables and of the
    server.

    Args:
      dataset: A tf.data.Dataset of batches: inputs, or tuples (inputs, ...) as for `model.fit`. Its
        iterators can be saved and restored; batches that were ready then are looked up without a plan. On
        PyTorch and JAX a DataLoader, whose batches may be lists [inputs, ...], or an iterator.
      layer: What looks the ids up: any Keras model, called on the inputs as in `fit` (on PyTorch and JAX a
        functional or Sequential one, whose ids depend on its inputs alone); a module of `het_tf.torch`; an
        `Embedding` or an `EmbeddingCollection`; a list of them; or a dict {key of the inputs: layer}. Without
        `inputs`, a collection of named features takes its inputs by name from a dict; a layer of one feature
        takes the input of the layer's name from a dict, or else all inputs; a list of layers takes a list of
        as many inputs in order, and each takes its part of anything else.
      window: Number of batches that the pipeline is ahead, 1 or more. They are in memory, with about 40 bytes
        for each id.
      inputs: Selects or computes the ids if they are elsewhere: called with the components
        of an element (like the function of `Dataset.map`), returns the inputs of `layer`; for a list or
        dict of layers the same structure. It must compute the ids that the model will look up.

    Returns:
      A tf.data.Dataset with the same elements in the same order; a DataLoader of a DataLoader; a generator of
      an iterator.

    Raises:
      ValueError: window is not an integer of 1 or more; `layer` has no rows of het_tf, or has its cache on a
        GPU; the ids are not found in an element, or are invalid; only the step of a model knows its ids (they
        depend on chance, rows or weights, or are looked up in a `tf.function` of the model).
      TypeError: `dataset` is of another kind.
    """
    window = whole("window", window, what="the batches to plan ahead")
    matching.check(layer)
    how: Any = importlib.import_module(
        f"het_tf.ext.streams.python.{'pipeline' if backend.TENSORFLOW else 'iterator'}"
    )
    return how.planned(dataset, layer, window, inputs)
