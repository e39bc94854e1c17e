"""A Keras model with tables in place of its Embedding layers (public as `het_tf.keras.convert`)."""

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from het_tf.python.backend import keras
from het_tf.python.ids import widest
from het_tf.python.layer.embedding import Embedding
from het_tf.python.session import collective, settings
from het_tf.python.table import layer_state
from het_tf.python.table.cache import Cache
from het_tf.python.table.initializers import of_keras
from het_tf.python.table.optimizers import Optimizer
from het_tf.python.table.table import Table, tables


def convert(
    model: Any,
    layers: Sequence[str] | None = None,
    optimizer: str | Optimizer | None = None,
    cache: Cache | None = None,
) -> Any:
    """Copies a Keras model, with a `het_tf.keras.Embedding` for each `keras.layers.Embedding`.

        model = het_tf.keras.convert(keras.models.load_model("clicks.keras"))
        model.compile("adam", "binary_crossentropy")

    The rows of a layer go into a table of the layer's name, where a row's number is its id. The other weights
    are copied, so the copy predicts the same. The state of the compiled optimizer is left behind. Layers
    without weights that have learnt something, such as a StringLookup, belong to both models.

    Args:
      model: A functional or Sequential model, built; nested models are converted, too.
      layers: Names of the layers to convert; None: all.
      optimizer: Optimizer of the tables, see `het_tf.TableConfig`.
      cache: Caches of the layers, see `het_tf.Cache`.

    Returns:
      The copy, compiled like the model if that is compiled.

    Raises:
      TypeError: model is not a Keras model.
      ValueError: The model or a layer cannot be converted, or a table of its name has rows: the message names
        all such layers, and the remedies. No table has changed.
    """
    with collective.together("convertible", "convert the model"):
        found = _find(model, layers)
        before = set(tables())
    copies: list[tuple[Any, Any]] = []

    def copy(layer: Any) -> Any:
        if id(layer) in found:
            made: Any = Embedding(
                layer.output_dim,
                name=layer.name,
                padding_id=0 if layer.mask_zero else None,
                optimizer=optimizer,
                initializer=of_keras(layer.embeddings_initializer),
                cache=cache,
                trainable=layer.trainable,
                dtype=layer.dtype_policy,
            )
        elif _is_shared(layer):
            return layer
        else:
            made = type(layer).from_config(layer.get_config())
        copies.append((layer, made))
        return made

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(layer, Embedding) and not keras.backend.is_int_dtype(args[0].dtype):
            args = (keras.ops.cast(args[0], widest()), *args[1:])  # as keras.layers.Embedding does
        return layer(*args, **kwargs)

    how: dict[str, Any] = {"call_function": call}
    if isinstance(model, keras.Sequential):
        (x,) = model.inputs
        dtype = widest() if id(model.layers[0]) in found else x.dtype
        how = {"input_tensors": [keras.Input(batch_shape=x.shape, dtype=dtype, name=x.name)]}
    try:
        with collective.together("convert", "convert the model"):
            new = keras.models.clone_model(model, clone_function=copy, recursive=True, **how)
            for layer, made in copies:
                if id(layer) not in found:
                    made.set_weights(layer.get_weights())
                elif not settings.parameter_server() or settings.is_first_worker():
                    rows = np.asarray(layer.embeddings)
                    Table(layer.name).assign(range(len(rows)), rows.astype(np.float32))
    except BaseException:
        for name in set(tables()) - before:
            with contextlib.suppress(Exception):  # the first error is the one to report
                Table(name).drop()
        raise
    return new


def _is_shared(layer: Any) -> bool:
    """Whether a copy would lose what the layer has learnt, or is not needed."""
    is_layer = isinstance(layer, keras.layers.Layer)
    own = hasattr(layer, "adapt") or hasattr(layer, layer_state.ATTRIBUTE)
    return not is_layer or own or isinstance(layer, keras.layers.Lambda)


def _find(model: Any, names: Sequence[str] | None) -> dict[int, Any]:
    """Returns the layers to convert, by their identity. TypeError, ValueError: as `convert`."""
    if not isinstance(model, keras.Model):
        raise TypeError(f"model is {type(model).__name__}; give a Keras model")
    leaves = {id(layer): layer for layer in _leaves(model)}
    found = {
        key: layer
        for key, layer in leaves.items()
        if isinstance(layer, keras.layers.Embedding) and (names is None or layer.name in names)
    }
    every = [layer.name for layer in leaves.values() if isinstance(layer, keras.layers.Embedding)]
    if unknown := set(names or ()) - set(every):
        raise ValueError(
            f"layers names {sorted(unknown)}; the Embedding layers of {model.name!r} are {every}"
        )
    faults = [
        f"{layer.name}: {why}" for layer in found.values() for why in _faults(layer, list(leaves.values()))
    ]
    if names is None:
        faults += [f"{layer.name}: {_HOLDS}" for layer in leaves.values() if _holds(layer)]
    if faults:
        raise ValueError(f"model {model.name!r} cannot be converted:\n  " + "\n  ".join(faults))
    if not found:
        raise ValueError(f"model {model.name!r} has no layer keras.layers.Embedding to convert")
    return found


def _leaves(model: Any) -> Iterator[Any]:
    """Yields the layers of a model, and of the models in it. ValueError: Keras does not know their calls."""
    if not hasattr(model, "operations") and not isinstance(model, keras.Sequential):
        raise ValueError(
            f"model {model.name!r} is a subclass of keras.Model ({type(model).__name__}), whose calls Keras "
            "does not record; in its code write het_tf.keras.Embedding(dim, name=NAME), and give the table "
            "the rows: het_tf.Table(NAME).assign(range(n), old_layer.get_weights()[0])"
        )
    if not model.built or not model.inputs:
        raise ValueError(f"model {model.name!r} has no weights yet; call it, or give it an Input")
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _leaves(layer)
        else:
            yield layer


_HOLDS = "it holds an Embedding, which a copy cannot replace; call that layer outside of it"


def _holds(layer: Any) -> bool:
    return any(isinstance(one, keras.layers.Embedding) for one in layer._flatten_layers(include_self=False))


def _faults(layer: Any, others: list[Any]) -> Iterator[str]:
    """Yields why a layer cannot be converted, with the remedies."""
    rows, name = np.asarray(layer.embeddings), layer.name
    readers = [one.name for one in others if one is not layer and _reads(one, layer.embeddings)]
    same = sum(isinstance(one, keras.layers.Embedding) and one.name == name for one in others)
    refused = {
        "it is a subclass of keras.layers.Embedding, and may do more; put a plain one in its place": (
            type(layer) is not keras.layers.Embedding
        ),
        "embeddings_regularizer is a loss of all rows; write het_tf.keras.Embedding(l2=) in the model": (
            layer.embeddings_regularizer is not None
        ),
        "embeddings_constraint is set; write het_tf.keras.Embedding(max_norm=) in the model": (
            layer.embeddings_constraint is not None
        ),
        "activity_regularizer is set; put keras.layers.ActivityRegularization behind it": (
            layer.activity_regularizer is not None
        ),
        "it has LoRA weights or is quantised; merge them, or convert before quantize()": (
            getattr(layer, "lora_enabled", False) or getattr(layer, "quantization_mode", None) is not None
        ),
        "its rows are float64, and those of tables float32": rows.dtype == np.float64,
        "its rows hold NaN or Inf; find their cause": not np.isfinite(rows.astype(np.float32)).all(),
        "mask_zero is True and row 0 is not zeros, which a padded id reads; set the row to zeros": bool(
            layer.mask_zero and rows[0].any()
        ),
        f"{readers} read its rows, too (tied weights); give them a separate weight": bool(readers),
        "another layer has its name; tables need different ones": same > 1,
        f"table {name!r} exists already; rename the layer, or het_tf.Table({name!r}).drop()": (
            name in tables()
        ),
    }
    yield from (why for why, holds in refused.items() if holds)


def _reads(layer: Any, variable: Any) -> bool:
    """Whether a layer reads a variable of another one: among its weights, or in the function of a Lambda."""
    taken = list(layer.weights)
    function = getattr(layer, "function", None)
    if isinstance(layer, keras.layers.Lambda) and inspect.isfunction(function):
        closed = inspect.getclosurevars(function)
        for one in [*closed.nonlocals.values(), *closed.globals.values()]:
            taken += [one, getattr(one, "embeddings", None)]
    return any(one is variable for one in taken)
