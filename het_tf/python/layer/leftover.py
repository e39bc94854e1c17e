"""Frees graphs that TensorFlow would keep forever after a layer was trained in them.

Keras' optimizer sums dense gradients over replicas, even over a single one. TensorFlow does it inside a
`tf.custom_gradient`, for which it registers a gradient by a new name and never removes it: the
registered function holds the graph of the training step, and the graph all its inputs.
The sum of gradients is never differentiated. So when a layer ends, these entries of its graphs are removed.
(A model of `keras.layers.Embedding` has sparse gradients, for which TensorFlow takes another way.)
"""

import inspect
import weakref
from typing import Any

from tensorflow.python.framework import ops  # the registry is not public

from het_tf.python.session.native import tf

_MADE_BY = "all_reduce.<locals>.grad_wrapper"

_graphs: weakref.WeakKeyDictionary[Any, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()


def note(layer: Any) -> None:
    """Records that the layer is trained in the graph being traced, if any."""
    if tf.executing_eagerly():
        return
    if layer not in _graphs:
        _graphs[layer] = weakref.WeakSet()
        weakref.finalize(layer, _let_go, _graphs[layer]).atexit = False
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        _graphs[layer].add(graph)
        graph = getattr(graph, "outer_graph", None)


def _let_go(graphs: weakref.WeakSet[Any]) -> None:
    """Removes the entries of these graphs from the registry."""
    registered = ops.gradient_registry._registry
    for graph in list(graphs):
        for op in graph.get_operations():
            if op.type == "IdentityN" and "_gradient_op_type" in op.node_def.attr:
                name = tf.compat.as_str(op.get_attr("_gradient_op_type"))
                if name in registered and _MADE_BY in _made_by(ops.gradient_registry.lookup(name)):
                    del registered[name]


def _made_by(function: Any) -> str:
    """The qualified names of a registered function and of those in its closure, outer ones first."""
    inner = [cell.cell_contents for cell in function.__closure__ or ()]
    return " ".join([function.__qualname__, *(_made_by(each) for each in inner if inspect.isfunction(each))])
