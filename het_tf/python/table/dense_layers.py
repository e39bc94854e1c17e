"""What a Keras layer keeps beside its variables, or derives from them: Keras' own files hold it, too.

    Normalization                    mean and variance in the type and shape of its inputs, from its variables
    Discretization                   bin boundaries
    lookups, TextVectorization       a vocabulary (an asset: a file), idf weights
    TorchModuleWrapper               the buffers of its module
    a layer of the user's            what its own `save_own_variables` and `save_assets` write

Keras hands it back by `load_own_variables` and `load_assets`, where such a layer also derives what it
computes with. Who only assigns variables passes that by, and the layer computes with what it had before.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from het_tf.python import callers
from het_tf.python.backend import keras
from het_tf.python.table import layer_state, notes

_METHODS = ("save_own_variables", "load_own_variables", "save_assets", "load_assets")
_BINS = "bin_boundaries"


@dataclass(frozen=True)
class State:
    """What one layer keeps.

    Attributes:
      name, kind: The layer's name and class.
      variables: What it saves of its variables: key -> position in `layer.variables`.
      arrays: What else it saves: key -> array.
      assets: Its files: path in its directory -> content.
    """

    name: str
    kind: str
    variables: dict[str, int] = field(default_factory=dict)
    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    assets: dict[str, bytes] = field(default_factory=dict)


def layers_of(model: Any) -> Iterator[Any]:
    """Returns the built layers of a model that keep something beside their variables, or derive it."""
    for layer in model._flatten_layers():
        kind = type(layer)
        own = [getattr(kind, name, None) for name in _METHODS]
        by_user = any(
            method is not getattr(keras.Layer, name, None)
            and not getattr(method, "__module__", "").startswith("keras.")
            for name, method in zip(_METHODS, own, strict=True)
            if method is not None
        )
        by_keras = hasattr(kind, "finalize_state") or own[3] or kind.__name__ == "TorchModuleWrapper"
        if (by_user or by_keras) and layer.built and not hasattr(layer, layer_state.ATTRIBUTE):
            yield layer


def take(layer: Any) -> State:
    """Returns what a layer keeps.

    Raises:
      TypeError: It saves something else than numbers.
    """
    state = State(layer.name, type(layer).__name__)
    store: dict[str, Any] = {}
    layer.save_own_variables(store)
    positions = {id(variable): position for position, variable in enumerate(layer.variables)}
    for key, value in store.items():
        if id(value) in positions:
            state.variables[key] = positions[id(value)]
            continue
        array = keras.ops.convert_to_numpy(value) if keras.ops.is_tensor(value) else np.asarray(value)
        if array.dtype.kind in "OSUV":
            raise TypeError(
                f"layer {layer.name!r} ({state.kind}) saves {key!r} as {array.dtype}; het_tf keeps numbers: "
                "let its save_own_variables write an array of them, or its save_assets a file"
            )
        state.arrays[key] = array
    if _learns_bins(layer) and layer.bin_boundaries is not None:
        state.arrays[_BINS] = np.asarray(layer.bin_boundaries, np.float64)
    if hasattr(layer, "save_assets"):
        with tempfile.TemporaryDirectory(prefix="het_tf-assets-") as directory:
            layer.save_assets(directory)
            for path in sorted(Path(directory).rglob("*")):
                if path.is_file():
                    state.assets[str(path.relative_to(directory))] = path.read_bytes()
    return state


def digest(model: Any) -> str:
    """Returns a checksum of what a model's layers keep beside their variables; "" if they keep nothing."""
    running, found = xxhash.xxh3_64(), False
    for state in map(take, layers_of(model)):
        for key, array in sorted(state.arrays.items()):
            running.update(f"{state.kind}/{key} {array.dtype} {array.shape} ".encode() + array.tobytes())
        for name, content in sorted(state.assets.items()):
            running.update(f"{state.kind}/{name} {len(content)} ".encode() + content)
        found = found or bool(state.arrays or state.assets)
    return running.hexdigest() if found else ""


def give(layer: Any, state: State) -> None:
    """Lets a layer load what `take` returned, and derive from its variables, which have their values.

    Raises:
      ValueError: An asset would be written outside of the layer's directory.
    """
    arrays = dict(state.arrays)
    if _learns_bins(layer) and _BINS in arrays:
        layer.bin_boundaries = arrays.pop(_BINS).tolist()
    variables = layer.variables
    store = {key: keras.ops.convert_to_numpy(variables[at]) for key, at in state.variables.items()}
    layer.load_own_variables({**store, **arrays})
    if not hasattr(layer, "load_assets") or not state.assets:
        return
    with tempfile.TemporaryDirectory(prefix="het_tf-assets-") as directory:
        for name, content in state.assets.items():
            path = Path(directory, name)
            if not path.resolve().is_relative_to(Path(directory).resolve()):  # a file or a rank says so
                raise ValueError(f"{name!r} of layer {layer.name!r} is no file in its directory of assets")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        layer.load_assets(directory)


def warn_of_keras_files() -> None:
    """Warns of what a file that Keras or TensorFlow writes or reads now does not hold. A layer calls it."""
    for model in filter(_is_model, callers.of("save_weights", "load_weights")):
        lacking = [one for one in layers_of(model) if _learns_bins(one) or take(one).assets]
        _warn(lacking, "a file of weights holds none of it", 'Save the model (model.save("m.keras")), or')
    for checkpoint in callers.of("save", "write", "restore", "read"):
        if type(checkpoint).__name__ == "Checkpoint" and type(checkpoint).__module__.startswith(
            "tensorflow."
        ):
            for model in filter(_is_model, vars(checkpoint).values()):
                remedy = "Call finalize_state() of a Normalization after a restore, or"
                _warn(list(layers_of(model)), "tf.train.Checkpoint holds variables alone", remedy)


def _is_model(one: Any) -> bool:
    return isinstance(one, keras.Model)


def _learns_bins(layer: Any) -> bool:
    """Whether it is a Discretization whose bins are no argument."""
    return isinstance(layer, keras.layers.Discretization) and layer.num_bins is not None


def _warn(layers: list[Any], why: str, remedy: str) -> None:
    if layers:
        names = ", ".join(f"{layer.name!r} ({type(layer).__name__})" for layer in layers)
        notes.warn(
            f"the layers {names} keep a vocabulary, bins or the like, or derive what they compute with when "
            f"they load, and {why}: it stays as the process that loads has made it. {remedy} use "
            "het_tf.checkpoint"
        )
