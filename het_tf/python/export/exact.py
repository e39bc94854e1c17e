"""Makes a traced model compute what an eager call computes, to the last bit.

An eager call runs one kernel after the other. Of a graph Grappler and oneDNN make other kernels: one of a
product, its bias and its sigmoid, whose sigmoid is another approximation; one of `x * sigmoid(x)`; one of
`(x @ w + b) + y` that adds y before b. `a + (b + c)` becomes a sum in another order, `x / 3` a product with a
third, two sigmoids that are joined one sigmoid; what exactly, changes with every TensorFlow. The predictions
would differ in the last bit from those of `model(x)`.

To do so they must see two ops beside each other, or a constant. So a barrier stands between any two ops that
compute with floats: a placeholder with a default, which they leave alone. It passes its tensor on and copies
nothing. There is none where what they do is known to keep all bits: a product, its bias and its relu become
one kernel, so a perceptron with relu has no barrier at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tensorflow.python.framework import op_callbacks  # TensorFlow 2.1 on; has no public name

from het_tf.python.session.native import tf

BARRIER = "PlaceholderWithDefault"

_PRODUCTS = {
    *("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"),
    *("Conv2D", "Conv3D", "DepthwiseConv2dNative"),
}
_ADDS = {"Add", "AddV2", "BiasAdd"}
_RELUS = {"Relu", "Relu6"}
_DIVISIONS = {"RealDiv", "Div", "Xdivy", "Pow"}
_JOINS = {"ConcatV2", "Pack"}

# What no optimizer knows the value of.
_UNKNOWN = {BARRIER, "Placeholder", "ReadVariableOp", "ResourceGather"}
# What only moves values. Optimizers see through some of these, so they count as computing for what follows.
_MOVES = {
    *("Identity", "IdentityN", "StopGradient", "PreventGradient", "CheckNumerics", BARRIER),
    *("Reshape", "Squeeze", "ExpandDims", "Transpose", "Tile", "BroadcastTo"),
    *("Unpack", "Split", "SplitV", "Slice", "StridedSlice", "GatherV2", "GatherNd", "Select", "SelectV2"),
    *("Shape", "Size", "Rank", "ZerosLike", "OnesLike"),
}


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """What is traced inside, also in the bodies of cond and while, gives the bits of an eager call.

    Not so the model's own `tf.function`s: in an eager call they are graphs too, which are optimized.
    """
    root = tf.compat.v1.get_default_graph()
    barriers: dict[tuple[Any, str], Any] = {}  # one behind a tensor, whoever reads it

    def keep(
        kind: Any, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None
    ) -> None:
        """Called by TensorFlow with every op, as soon as it is in its graph."""
        del inputs, attrs, op_name
        if graph is None or kind in _MOVES or not outputs or _in_function(graph, root):
            return
        op = outputs[0].op  # for its inputs: those given may be tensors of the graph around the body
        for number, x in enumerate(op.inputs):
            if not x.dtype.is_floating or not _may_change(op, number, x):
                continue
            key = (graph, x.name)
            if key not in barriers:
                with tf.control_dependencies(None):
                    barriers[key] = tf.raw_ops.PlaceholderWithDefault(input=x, shape=x.shape)
            op._update_input(number, barriers[key])

    op_callbacks.add_op_callback(keep)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(keep)


def _in_function(graph: Any, root: Any) -> bool:
    while graph is not None and graph is not root:
        if type(graph).__name__ == "FuncGraph":  # the bodies of cond and while have types of their own
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def _may_change(op: Any, number: int, x: Any) -> bool:
    """Whether an optimizer that sees beside op what makes its input x may compute something else."""
    made_by = x.op.type
    if made_by in _UNKNOWN:
        return False
    if op.type in _DIVISIONS and number == 1:
        return True  # by a constant, or what becomes one: a product with its reciprocal, a square, a root
    if made_by in ("Const", *_JOINS, "GatherV2"):
        return False
    if op.type in _JOINS:
        return made_by not in _MOVES
    if op.type in _PRODUCTS:
        return made_by in ("Transpose", "Mul", "Pad", "PadV2")
    if op.type in _RELUS:
        return made_by not in _ADDS
    if op.type in _ADDS and made_by in _PRODUCTS and len(op.inputs) == 2:
        return op.inputs[1 - number].shape.rank != 1
    return True
