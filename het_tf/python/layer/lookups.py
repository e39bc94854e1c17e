"""Finds the lookups of a layer or model in a batch: the layers that it calls, and the ids of each call.

    types of the inputs ──► a graph of its own: model(inputs, training=True)
                              EmbeddingCollection.call ──► source.py ──► notes the ids; rows are placeholders
    inputs of a batch ────► the part of that graph that computes the ids

So the ids are those that the model's step will look up, however it computes them, and a pipeline runs
nothing else of the model.
"""

from typing import Any

from tensorflow.python.framework import op_def_registry  # not public

from het_tf.python import ids as ids_lib
from het_tf.python.layer import source
from het_tf.python.session.native import tf
from het_tf.python.table import layer_state

Lookups = list[tuple[Any, list[Any]]]  # layers, each with the ids of its features

# Stateful ops that give equal ids whenever they run.
_REPEATABLE = ("Assert", "Case", "If", "LookupTableFindV2", "LookupTableSizeV2", "ReadVariableOp",
               "StatefulPartitionedCall", "While")  # fmt: skip

_WITHIN = "in a branch, a loop or a tf.function of its own"


def find(layer: Any, inputs: Any, by_sample: bool = False) -> Lookups:
    """Returns the lookups of a training step in which a layer is called on a batch, in order.

    Args:
      layer: A Keras layer or model. It is built if it was not.
      inputs: Its inputs: tensors.
      by_sample: False: int64 ids of any shape, as the op gets them. True: sample by sample, int64 `[B, n]` or
        ragged `[B, None]`, without masked ones.

    Raises:
      ValueError: It cannot be called on them, looks nothing up, or looks up ids that only its step knows.
    """
    inputs = tf.nest.map_structure(lambda one: ids_lib.to_tensor(one, "inputs"), inputs)
    with tf.init_scope():
        if not all(one.built for one in layer._flatten_layers()):
            with tf.__internal__.FuncGraph("het_build").as_default():
                _call(layer, _placeholders(inputs))
        trace = _Trace(layer, inputs, by_sample)
    found = tf.function(trace.ids_of, autograph=False)(*tf.nest.flatten(inputs, expand_composites=True))
    of_layers = tf.nest.pack_sequence_as([ids for _, ids in trace.found], found, expand_composites=True)
    return [(layer, ids) for (layer, _), ids in zip(trace.found, of_layers, strict=True)]


class _Trace:
    """A call of a layer in a graph of its own.

    Attributes:
      found: The lookups.

    Raises:
      ValueError: See `find`.
    """

    def __init__(self, layer: Any, inputs: Any, by_sample: bool) -> None:
        self.found: Lookups = []
        self._refused: ValueError | None = None
        self._layer, self._by_sample = layer, by_sample
        self._graph = tf.__internal__.FuncGraph("het_lookups")
        with self._graph.as_default():
            inputs = _placeholders(inputs)
            self._first = tf.nest.flatten(inputs)[0]
            self._given = tf.nest.flatten(inputs, expand_composites=True)
            try:
                with source.reading_from(self._note):
                    _call(layer, inputs)
            except ValueError as error:
                raise self._refused or error from None
            if by_sample:
                self.found = [(one, [self._sampled(one, each) for each in ids]) for one, ids in self.found]
        self._graph_def = self._graph.as_graph_def()
        self._check()

    def _note(self, read: source.Read) -> list[Any]:
        """Notes a lookup; returns placeholders for its rows."""
        features = layer_state.of(read.layer).features.flat
        if tf.compat.v1.get_default_graph() is self._graph:
            given = zip(features, read.inputs, read.masks, strict=True)
            of_features = [_of_samples(*one) for one in given] if self._by_sample else list(read.ids)
            self.found.append((read.layer, of_features))
        else:
            self._refuse(read.layer, _WITHIN)
        shapes = [None if ids.shape.rank is None else [*ids.shape] for ids in read.ids]
        return [
            tf.compat.v1.placeholder(tf.float32, None if shape is None else [*shape, feature.table.dim])
            for feature, shape in zip(features, shapes, strict=True)
        ]

    # --- the part that computes the ids ---------------------------------------------------------------------

    def _check(self) -> None:
        """Raises ValueError if there are no lookups, or ids that a pipeline cannot know."""
        library = self._graph_def.library.function
        kept = {name for one in library for node in one.node_def for name in _tables(node)}
        for layer in layer_state.layers_of(self._layer):  # called in a tf.function that is not traced again
            if not kept.isdisjoint(table.name for table in layer.tables):
                self._refuse(layer, _WITHIN)
        if not self.found:
            raise ValueError(
                f"layer is {source.shown(self._layer)}, without lookups of het_tf; {source.GIVE}"
            )
        for layer, ids in self.found:
            reason = self._reason(tf.nest.flatten(ids, expand_composites=True))
            if reason:
                self._refuse(layer, f"on ids that depend on {reason}")

    def _refuse(self, layer: Any, how: str) -> None:
        """Raises ValueError, also through Keras. A tf.function of the model must not keep a trace of this."""
        self._refused = ValueError(
            f"model {self._layer.name!r} calls layer {layer.name!r} {how}, so its ids are not known before "
            "the step; give that layer in place of the model, and inputs=, a function from an element of the "
            f"dataset to its ids: inputs=lambda x, y: x[{layer.name!r}]"
        )
        raise self._refused

    def _reason(self, ids: list[Any]) -> str:
        """Returns why the ids may differ from those of the step; "" if they do not."""
        known = {one.op.name: None for one in self._given}
        known |= {internal.op.name: external for external, internal in self._graph.captures}
        trained = [variable.handle for variable in self._layer.trainable_variables]
        for op in _above(ids):
            if op.type == "Placeholder" and op.name not in known:
                return "rows of a table"
            if any(handle is known.get(op.name) for handle in trained):
                return "a trained weight"
        for name in _types(self._part(ids)):
            if "Random" in name or "Shuffle" in name:
                return f"chance ({name})"
            registered = op_def_registry.get(name)  # None: a function
            if registered is not None and registered.is_stateful and name not in _REPEATABLE:
                return f"a state or a function of Python ({name})"
        return ""

    def _part(self, ids: list[Any]) -> Any:
        """Returns a graph of the ops that compute the ids."""
        names = {op.name for op in _above(ids)}
        part = tf.compat.v1.GraphDef(versions=self._graph_def.versions, library=self._graph_def.library)
        part.node.extend(node for node in self._graph_def.node if node.name in names)
        return part

    def _sampled(self, layer: Any, ids: Any) -> Any:
        """Returns ids `[B, n]`. ValueError: their first axis is not that of the batch."""
        message = (
            f"model {self._layer.name} gives layer {layer.name} ids whose first axis is not that of the "
            "batch, so those of a sample are not known; keep the ids of a sample together, [B, n]"
        )
        rows, samples = ids.shape[0], self._first.shape[0]
        if rows is not None and samples is not None:
            if rows != samples:
                raise ValueError(f"{message} (they have {rows}, the batch {samples})")
            return ids
        with tf.control_dependencies([tf.debugging.assert_equal(_count(ids), _count(self._first), message)]):
            return tf.identity(ids)

    def ids_of(self, *given: Any) -> list[Any]:
        """Returns the ids of all lookups, computed in the present graph; `given` are the inputs' tensors."""
        ids = tf.nest.flatten([ids for _, ids in self.found], expand_composites=True)
        graph, part = tf.compat.v1.get_default_graph(), self._part(ids)
        names = {node.name for node in part.node}
        sources = [
            *zip(self._given, given, strict=True),
            *((mine, one) for one, mine in self._graph.captures),
        ]
        inputs = {mine.name: graph.capture(one) for mine, one in sources if mine.op.name in names}
        return list(tf.graph_util.import_graph_def(part, inputs, [one.name for one in ids], name="het_ids"))


def _placeholders(inputs: Any) -> Any:
    flat = tf.nest.flatten(inputs, expand_composites=True)
    flat = [tf.compat.v1.placeholder(one.dtype, one.shape) for one in flat]
    return tf.nest.pack_sequence_as(inputs, flat, expand_composites=True)


def _call(layer: Any, inputs: Any) -> None:
    """Calls a layer as a training step does. ValueError: it fails."""
    try:
        layer(inputs, **({"training": True} if layer._call_has_training_arg else {}))
    except Exception as error:
        if hasattr(layer, layer_state.ATTRIBUTE):
            raise
        raise ValueError(
            f"layer {layer.name!r} cannot be called on the inputs that the dataset gives; give inputs=, a "
            f"function from an element to its inputs: {error}"
        ) from error
    finally:
        layer._clear_losses()  # they are tensors of this graph


def _tables(node: Any) -> list[str]:
    """Returns the tables that a node looks up."""
    return [name.decode() for name in node.attr["tables"].list.s] if node.op == "HetLookup" else []


def _above(tensors: list[Any]) -> list[Any]:
    """Returns the ops that tensors depend on."""
    found: dict[str, Any] = {}
    todo = [tensor.op for tensor in tensors]
    while todo:
        op = todo.pop()
        if op.name not in found:
            found[op.name] = op
            todo += [*op.control_inputs, *(one.op for one in op.inputs)]
    return list(found.values())


def _types(part: Any) -> set[str]:
    """Returns the types of the ops of a graph, and of its functions if it calls any."""
    calls = any(value.func.name or value.list.func for node in part.node for value in node.attr.values())
    inner = [node for one in part.library.function for node in one.node_def] if calls else []
    return {node.op for node in (*part.node, *inner)}


def _of_samples(feature: Any, ids: Any, mask: Any) -> Any:
    """Returns int64 `[B, n]`, or ragged, of a feature's input, without masked ids."""
    ids = ids_lib.to_tensor(ids, "ids")
    if ids_lib.is_sparse(ids):
        ids = tf.RaggedTensor.from_value_rowids(ids.values, ids.indices[:, 0], ids.dense_shape[0])
    if ids_lib.is_ragged(ids):
        ids = ids.with_flat_values(ids_lib.as_int64(ids.flat_values))
        ids = ids if ids.shape.rank == 2 else ids.merge_dims(1, -1)
    else:
        ids = tf.reshape(ids_lib.as_int64(ids), [tf.shape(ids)[0], -1])
        if mask is not None:
            ids = tf.ragged.boolean_mask(ids, tf.reshape(mask, tf.shape(ids)))
    return ids[:, : feature.max_sequence_length]


def _count(x: Any) -> Any:
    """Returns the size of the first axis of a tensor of any kind."""
    if ids_lib.is_ragged(x):
        return x.nrows(tf.int64)
    return x.dense_shape[0] if ids_lib.is_sparse(x) else tf.shape(x, tf.int64)[0]
