"""Signatures of a SavedModel: names, types and shapes of inputs, and names of outputs.

A signature takes and returns plain tensors by name. Ragged and sparse inputs are given by their parts:

    dense    x        x
    ragged   x        x_values, x_row_splits          (x_row_splits_0, x_row_splits_1 with two ragged axes)
    sparse   x        x_indices, x_values, x_shape
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from het_tf.ext.serving.python.export import redirect
from het_tf.python.session.native import tf

DEFAULT = "serving_default"

_SPECS = (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)


def functions(model: Any, signatures: Any, backend: redirect.Backend) -> dict[str, Any]:
    """Returns the concrete functions of an export, traced with the backend in place of the live tables.

    Args:
      model: A built Keras model.
      signatures: As in `het_tf.export`.
      backend: Answers lookups.

    Returns:
      Name of the signature -> concrete function of tensors by name, which returns a dict of tensors.

    Raises:
      ValueError: The model's inputs are unknown, or a signature is invalid.
    """
    if signatures is None:
        signatures = {DEFAULT: input_specs(model)}
    if not isinstance(signatures, Mapping) or not signatures:
        raise ValueError(
            f"signatures is {signatures!r}; give a dict from names (such as {DEFAULT!r}) to the model's "
            "inputs (tf.TensorSpec in the structure of the model's inputs, or a batch) or to a "
            "tf.function with an input_signature"
        )
    return {name: _function(model, name, one, backend) for name, one in signatures.items()}


def input_specs(model: Any) -> Any:
    """Returns specs of the model's inputs with an unknown batch dimension.

    Raises:
      ValueError: It has neither a keras.Input nor a method `input_specs()`.
    """
    own = getattr(model, "input_specs", None)
    if callable(own):
        return own()
    structure = getattr(model, "_inputs_struct", None)
    if structure is None and isinstance(model, tf.keras.Sequential):
        structure = (getattr(model, "inputs", None) or [None])[0]
    if structure is None:
        raise ValueError(
            f"model {model.name!r} has no keras.Input, so its inputs are unknown; give "
            f'signatures={{"{DEFAULT}": batch}} with a batch of its inputs (or with tf.TensorSpec), or give '
            "the class a method input_specs()"
        )
    return tf.nest.map_structure(_spec_of_input, structure)


def _spec_of_input(x: Any) -> Any:
    """Returns the spec of a symbolic input of Keras."""
    shape, dtype = [None, *x.shape[1:]], tf.as_dtype(x.dtype)
    if x.sparse:
        return tf.SparseTensorSpec(shape, dtype)
    if getattr(x, "ragged", False):
        return tf.RaggedTensorSpec(shape, dtype, ragged_rank=1)
    return tf.TensorSpec(shape, dtype, x.name)


def batch_specs(batch: Any) -> Any:
    """Returns specs of a batch of inputs (arrays, tensors or specs) with an unknown first dimension.

    Raises:
      ValueError: An element has another type, or no batch dimension.
    """

    def spec(x: Any) -> Any:
        if isinstance(x, _SPECS):
            return x
        if isinstance(x, (tf.RaggedTensor, tf.SparseTensor)):
            shape = [None] * x.shape.rank
            if isinstance(x, tf.SparseTensor):
                return tf.SparseTensorSpec(shape, x.dtype)
            return tf.RaggedTensorSpec(shape, x.dtype, x.ragged_rank, x.row_splits.dtype)
        if not tf.is_tensor(x):
            if not isinstance(x, (np.ndarray, np.generic, list, tuple, int, float, str, bytes)):
                raise ValueError(f"{x!r} is not an input of a model; give arrays, tensors or tf.TensorSpec")
            x = tf.convert_to_tensor(x)
        if x.shape.rank == 0:
            raise ValueError(f"an input is the scalar {x.numpy()!r}; give it a batch dimension, shape [B]")
        return tf.TensorSpec([None, *x.shape[1:]], x.dtype)

    return tf.nest.map_structure(spec, batch)


def names_of(model: Any, specs: Any) -> list[str]:
    """Returns a name for each flattened spec: the keys of a dict, else the names of Keras' inputs."""
    if isinstance(specs, Mapping):
        if any(tf.nest.is_nested(one) for one in specs.values()):
            raise ValueError(
                f"the inputs are a dict with structures inside ({list(specs)}); a signature has names only "
                "for tensors, give a tf.function with an input_signature"
            )
        return sorted(str(name) for name in specs)
    flat = tf.nest.flatten(specs)
    of_model = [str(x.name) for x in getattr(model, "inputs", None) or []]
    of_specs = [one.name if isinstance(one, tf.TensorSpec) else None for one in flat]
    names = [
        spec or (of_model[number] if len(of_model) == len(flat) else None)
        for number, spec in enumerate(of_specs)
    ]
    if len(flat) == 1:
        return [names[0] or "inputs"]
    return [name or f"inputs_{number}" for number, name in enumerate(names)]


# --- parts of ragged and sparse tensors ---------------------------------------------------------------------


def _parts(name: str, spec: Any) -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], Any]]:
    """Returns the plain parts of one input by name, and a function that joins them again."""
    if isinstance(spec, tf.SparseTensorSpec):
        indices, values, shape = f"{name}_indices", f"{name}_values", f"{name}_shape"
        rank = spec.shape.rank
        specs = {
            indices: tf.TensorSpec([None, rank], tf.int64, indices),
            values: tf.TensorSpec([None], spec.dtype, values),
            shape: tf.TensorSpec([rank], tf.int64, shape),
        }
        return specs, lambda given: tf.SparseTensor(given[indices], given[values], given[shape])
    if isinstance(spec, tf.RaggedTensorSpec):
        values = f"{name}_values"
        rank = spec.ragged_rank
        splits = [f"{name}_row_splits" + (f"_{axis}" if rank > 1 else "") for axis in range(rank)]
        inner = spec.shape[rank + 1 :] if spec.shape.rank is not None else []
        specs = {
            values: tf.TensorSpec([None, *inner], spec.dtype, values),
            **{one: tf.TensorSpec([None], spec.row_splits_dtype, one) for one in splits},
        }

        def ragged(given: Mapping[str, Any]) -> Any:
            return tf.RaggedTensor.from_nested_row_splits(given[values], [given[one] for one in splits])

        return specs, ragged
    return {name: tf.TensorSpec(spec.shape, spec.dtype, name)}, lambda given: given[name]


def feed(names: list[str], values: list[Any]) -> dict[str, Any]:
    """Returns the plain tensors of a signature for inputs with these names."""
    given: dict[str, Any] = {}
    for name, x in zip(names, values, strict=True):
        parts, _ = _parts(name, tf.type_spec_from_value(x))
        given |= zip(parts, tf.nest.flatten(x, expand_composites=True), strict=True)
    return given


# --- tracing ------------------------------------------------------------------------------------------------


def _function(model: Any, name: str, what: Any, backend: redirect.Backend) -> Any:
    if not isinstance(name, str) or not name:
        raise ValueError(f"signatures has the name {name!r}; give non-empty strings, such as {DEFAULT!r}")
    if hasattr(what, "get_concrete_function"):
        return _of_users(model, name, what, backend)
    if callable(what) or what is None:
        raise ValueError(
            f"signatures[{name!r}] is {what!r}; give the model's inputs (tf.TensorSpec or a batch), or a "
            "tf.function with an input_signature"
        )
    specs = batch_specs(what)
    names = names_of(model, specs)
    plain: dict[str, Any] = {}
    makers = []
    for each, spec in zip(names, tf.nest.flatten(specs), strict=True):
        parts, make = _parts(each, spec)
        plain |= parts
        makers.append(make)

    @tf.autograph.experimental.do_not_convert
    def serve(**given: Any) -> dict[str, Any]:
        inputs = tf.nest.pack_sequence_as(specs, [make(given) for make in makers])
        with redirect.to(backend, model):
            return outputs_of(model, model(inputs, training=False))

    return tf.function(serve).get_concrete_function(**plain)


def _of_users(model: Any, name: str, function: Any, backend: redirect.Backend) -> Any:
    """Traces the user's tf.function anew: an earlier trace of it reads the live tables."""
    signature = getattr(function, "input_signature", None)
    if signature is None:
        raise ValueError(
            f"signatures[{name!r}] is a tf.function without an input_signature; give it one: "
            "@tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name='item')])"
        )
    python_function = function.python_function

    @functools.wraps(python_function)  # for the names of its arguments
    def serve(*args: Any) -> Any:
        with redirect.to(backend, model):
            return python_function(*args)

    return tf.function(serve, input_signature=signature).get_concrete_function()


def outputs_of(model: Any, outputs: Any) -> dict[str, Any]:
    """Names the model's outputs by its keys, the names of Keras' outputs, or output_0, output_1, ..."""
    if isinstance(outputs, Mapping):
        return {str(name): one for name, one in outputs.items()}
    flat = tf.nest.flatten(outputs)
    names = list(getattr(model, "output_names", None) or [])
    if len(names) != len(flat) or len(set(names)) != len(names):
        names = [f"output_{number}" for number in range(len(flat))]
    return dict(zip(names, flat, strict=True))
