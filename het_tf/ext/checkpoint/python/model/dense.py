"""Dense weights of a Keras model, and the state of its optimizer, as named arrays and as dense.safetensors.

A plain safetensors file; a tensor's name is the path of its variable. The whole file is in memory while it is
written; variables are read one at a time. Restoring matches by name. If the names differ only in the numbers
that Keras adds when a process builds a model twice ("dense" and "dense_1"), or in the model's name before
them, it matches by the order of the variables, which the header's metadata has.

    model/PATH, optimizer/PATH      variables; metadata "order": their names
    layers/N/arrays/KEY             what the N-th layer of table/dense_layers.py keeps beside its variables
    layers/N/assets/PATH            a file of it, uint8; metadata "layers": name, kind and variables of each
"""

import contextlib
import itertools
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from het_tf.ext.checkpoint.python import manifest as manifests
from het_tf.ext.checkpoint.python import tensors
from het_tf.python import backend
from het_tf.python.backend import keras
from het_tf.python.table import dense_layers, dense_optimizer, layer_state
from het_tf.python.table.dense_layers import State

FILE = "dense.safetensors"
_COUNTERS = ("int32", "int64", "uint32")


@dataclass(frozen=True)
class Entry:
    """One variable: its name, which begins with "model/" or "optimizer/", type and shape.

    Attributes:
      variable: The model's; None: it is one of a file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    variable: Any = None

    @property
    def part(self) -> str:
        """Returns "model" or "optimizer"."""
        return self.name.partition("/")[0]

    @property
    def spec(self) -> tensors.Spec:
        """As `tensors.signature` takes it."""
        return self.name, self.shape, self.dtype


def variables_of(model: Any) -> list[Entry]:
    """Returns a model's dense variables, then those of its optimizer; builds the optimizer if needed.

    Leaves out metrics, which start anew in every epoch, and the layers' anchors, which are always 0.

    Raises:
      TypeError: `model` is not a Keras model, or has a variable of a type that a file cannot hold.
      RuntimeError: It has no weights yet.
    """
    _prepare(model)
    of_optimizer = dense_optimizer.optimizer_variables(model)
    apart = {id(one) for one in [*model.metrics_variables, *of_optimizer]}
    of_model = [one for one in model.variables if id(one) not in apart]
    # The name of an optimizer is there or not, depending on where it was built.
    return _entries(model, "model", of_model) + _entries(
        model, "optimizer", of_optimizer, f"{model.optimizer.name}/" if of_optimizer else ""
    )


def weights_of(model: Any) -> list[Entry]:
    """As `variables_of`, only what computes the model's outputs: `model.weights`.

    Then an empty entry whose name says what its layers keep beside them (table/dense_layers.py): weights
    replace those of a served model only if that is equal.
    """
    _prepare(model)
    digest = dense_layers.digest(model)
    kept = [Entry(f"layers/{digest}", "uint8", (0,))] if digest else []
    return _entries(model, "model", model.weights) + kept


def _prepare(model: Any) -> None:
    """Checks a model; on JAX, whose `fit` holds the weights apart between steps, puts them into it."""
    if not isinstance(model, keras.Model):
        raise TypeError(f"model is {model!r}; give a Keras model")
    if not model.built:
        raise RuntimeError(
            f"model {model.name!r} has no weights yet; call it on a batch first, or give it a keras.Input"
        )
    if sync := getattr(model, "jax_state_sync", None):
        with contextlib.suppress(RuntimeError):  # a step that failed has deleted them; `values` says so
            sync()


def _entries(model: Any, part: str, variables: list[Any], prefix: str = "") -> list[Entry]:
    anchors = {id(one) for one in layer_state.variables_of(model)}
    found, seen = [], set[str]()
    for variable in variables:
        if id(variable) in anchors:
            continue
        name = _unique(f"{part}/{variable.path.removeprefix(prefix)}", seen)
        dtype = str(getattr(variable.dtype, "name", variable.dtype))
        if dtype not in tensors.NAMES:
            raise TypeError(
                f"variable {name!r} of model {model.name!r} is {dtype}, which a file of dense weights cannot "
                f"hold; it holds {', '.join(tensors.NAMES)}. Save it by tf.train.Checkpoint"
            )
        found.append(Entry(name, dtype, tuple(int(one) for one in variable.shape), variable))
    return found


def values(variables: list[Entry]) -> dict[str, tensors.Array]:
    """Returns copies of the values of variables by their names."""
    return {
        one.name: np.empty(one.shape, one.dtype)
        if one.variable is None
        # PyTorch has no uint32, and holds such a variable as int64.
        else _numpy(one).astype(one.dtype, copy=False)
        for one in variables
    }


def _numpy(entry: Entry) -> tensors.Array:
    with backend.naming_lost_weights():
        return np.asarray(keras.ops.convert_to_numpy(entry.variable))


def _unique(name: str, seen: set[str]) -> str:
    """Returns a unique name: if two layers share one, the second one's variables get a number."""
    numbered = (f"{name}#{number}" for number in itertools.count(2))
    chosen = name if name not in seen else next(one for one in numbered if one not in seen)
    seen.add(chosen)
    return chosen


def write(directory: Path, variables: list[Entry], states: Sequence[State] = ()) -> dict[str, Any]:
    """Writes the file and waits until it is on disk. Returns its entry of the manifest."""
    arrays = values(variables)
    for number, state in enumerate(states):
        arrays |= {f"layers/{number}/arrays/{key}": array for key, array in state.arrays.items()}
        for name, content in state.assets.items():
            arrays[f"layers/{number}/assets/{name}"] = np.frombuffer(content, np.uint8)
    layers = [{"name": one.name, "kind": one.kind, "variables": one.variables} for one in states]
    order = json.dumps([one.name for one in variables])
    raw = tensors.pack(arrays, order=order, layers=json.dumps(layers))
    path = directory / FILE
    with manifests.naming(path), path.open("xb") as out:
        out.write(raw)
        out.flush()
        os.fsync(out.fileno())
    return {"name": FILE, "bytes": len(raw), "xxh3": xxhash.xxh3_64_hexdigest(raw)}


def read_header(path: Path) -> list[Entry]:
    """Returns the entries of the file, in the order of `write`.

    Raises:
      FileNotFoundError: It does not exist.
      ValueError: It is damaged, or was not written by `write`.
    """
    file = tensors.TensorFile(path)
    try:
        names = json.loads(file.metadata["order"])
        found = [file.tensors.pop(name) for name in names]
    except (KeyError, TypeError, ValueError):
        raise file.damaged("its header has no order of its variables") from None
    return [Entry(one.name, one.dtype.name, one.shape) for one in found]


def read_layers(path: Path) -> list[State]:
    """Returns what the layers keep, in the order of `write`.

    Raises:
      FileNotFoundError: It does not exist.
      ValueError: It is damaged, or was not written by `write`.
    """
    file = tensors.TensorFile(path)
    try:
        states = [State(**one) for one in json.loads(file.metadata["layers"])]
        for name in file.tensors:
            part, number, kind, key = (*name.split("/", 3), "", "", "")[:4]
            if part == "layers" and kind == "arrays":
                states[int(number)].arrays[key] = np.array(file.mapped(name))
            elif part == "layers" and kind == "assets" and ".." not in Path(key).parts and key[0] != "/":
                states[int(number)].assets[key] = file.mapped(name).tobytes()
            elif part == "layers":
                raise ValueError(name)
    except (KeyError, TypeError, ValueError, IndexError):
        raise file.damaged("its header does not describe the states of its layers") from None
    return states


def match_layers(
    path: Path, states: list[State], model: Any, strict: bool
) -> tuple[list[tuple[Any, State]], list[str]]:
    """Pairs the layers of the file, in their order, with those of the model. Changes nothing.

    Args:
      path: The file, for messages.
      states: What it has.
      model: A built Keras model.
      strict: False: pair none if the two sides differ.

    Returns:
      The pairs, and why they are left out.

    Raises:
      ValueError: The model has other layers that keep a state (`strict`).
    """
    here = list(dense_layers.layers_of(model))
    saved = [one.kind for one in states]
    live = [type(one).__name__ for one in here]
    if saved == live:
        return list(zip(here, states, strict=True)), []
    line = (
        f"layers that keep a state beside their variables: {', '.join(saved) or 'none'} in the checkpoint, "
        f"{', '.join(live) or 'none'} in the model"
    )
    if strict:
        raise ValueError(
            f"{path} is not of model {model.name!r}; build the model that was saved, or give strict=False to "
            f"leave them as they are:\n  {line}"
        )
    return [], [line]


def match(
    path: Path, entries: list[Entry], model: Any, strict: bool
) -> tuple[list[tuple[Entry, Entry]], list[str]]:
    """Pairs the variables of the file with those of the model. Builds the optimizer, but changes nothing.

    A model that is not compiled takes only its weights.

    Args:
      path: The file, for messages.
      entries: Its entries.
      model: A built Keras model.
      strict: False: leave out variables that only one side has, and those whose shape or type differs.

    Returns:
      The pairs, and why each of the other variables is left out.

    Raises:
      ValueError: A variable is left out (`strict`), or all weights; without `strict`: the layers have other
        numbers than in the file.
    """
    live = variables_of(model)
    pairs: list[tuple[Entry, Entry]] = []
    lines: list[str] = []
    renumbered = False
    for part in ("model", "optimizer"):
        if part == "optimizer" and getattr(model, "optimizer", None) is None:
            continue
        there = [one for one in entries if one.part == part]
        here = [one for one in live if one.part == part]
        by_name = {one.name: one for one in here}
        same = by_name.keys() == {one.name for one in there}
        if not same and _alike(there, here, model.name):
            found = list(zip(there, here, strict=True))
            renumbered = True
        else:
            # The names of slots have the numbers of the layers.
            known = by_name if same or not renumbered else {}
            found = [(one, known[one.name]) for one in there if one.name in known]
            lines += _missing("only the checkpoint has", there, found, 0)
            lines += _missing("only the model has", here, found, 1)
            if lines and not strict:
                _require_same_numbers(path, there, here, model)
        for one, variable in found:
            if one.shape == variable.shape and _fits(one.dtype, variable.dtype):
                pairs.append((one, variable))
            else:
                lines.append(
                    f"{variable.name}: {one.dtype} {list(one.shape)} in the checkpoint, {variable.dtype} "
                    f"{list(variable.shape)} in the model"
                )
    none = any(one.part == "model" for one in live) and not any(one.part == "model" for one, _ in pairs)
    if lines and (strict or none):
        shown = "".join(f"\n  {line}" for line in lines[:20])
        rest = f"\n  and {len(lines) - 20} more" if len(lines) > 20 else ""
        fits = "" if none else ", or give strict=False to restore those that fit"
        raise ValueError(
            f"the variables in {path} are not those of model {model.name!r}; build and compile the model "
            f"that was saved{fits}:{shown}{rest}"
        )
    return pairs, lines


def _require_same_numbers(path: Path, there: list[Entry], here: list[Entry], model: Any) -> None:
    """Raises ValueError if this process had built layers before, so that "dense_1" is another layer here."""
    kinds = {type(layer).__name__ for layer in model._flatten_layers()}
    plain = {re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower() for kind in kinds}
    least: tuple[dict[str, int], ...] = ({}, {})
    for found, names in zip(least, ([one.name for one in there], [one.name for one in here]), strict=True):
        for place in {place for name in names for place in name.split("/")[1:-1]}:
            stem, number = re.findall(r"^(.+?)(?:_(\d+))?$", place)[0]
            if stem in plain:
                found[stem] = min(found.get(stem, 1 << 62), int(number or 0))
    for stem in least[0].keys() & least[1].keys():
        if least[0][stem] != least[1][stem]:
            raise ValueError(
                f"layers {stem!r} of model {model.name!r} are numbered from {least[1][stem]}, but those in "
                f"{path} from {least[0][stem]}: which is which is unknown. Call keras.backend.clear_session()"
                " before you build the model, or give its layers names before it is saved"
            )


def _fits(saved: str, live: str) -> bool:
    """Whether a type is restored into another: Keras counts in int64 on TensorFlow, in int32 on others."""
    return saved == live or (saved in _COUNTERS and live in _COUNTERS)


def _alike(there: list[Entry], here: list[Entry], model: str) -> bool:
    """Whether the names differ only in the numbers that Keras adds, and in the model's name before them.

    A layer has it before its name if a call of a subclassed model has built it, and not if `adapt` has.
    """
    numbers = r"_\d+(?![^/_#])"
    prefix = rf"^(model|optimizer)/{re.escape(re.sub(numbers, '', model))}[/_]"
    plain = [
        [re.sub(prefix, r"\1/", re.sub(numbers, "", one.name)) for one in side] for side in (there, here)
    ]
    return plain[0] == plain[1]


def _missing(text: str, side: list[Any], found: list[tuple[Entry, Entry]], which: int) -> list[str]:
    taken = {id(pair[which]) for pair in found}
    return [f"{text} {one.name} {one.dtype} {list(one.shape)}" for one in side if id(one) not in taken]


def assign(path: Path, pairs: list[tuple[Entry, Entry]], layers: Sequence[tuple[Any, State]] = ()) -> None:
    """Assigns the variables of a model one by one, then lets its layers load what else they keep.

    Raises:
      ValueError: A counter does not fit into the model's type; no variable has changed.
    """
    file = tensors.TensorFile(path)
    for entry, live in pairs:
        if entry.dtype != live.dtype and not np.array_equal(_as(file, entry, live), file.mapped(entry.name)):
            raise ValueError(f"{entry.name} in {path} is beyond the {live.dtype} of the model")
    for entry, live in pairs:
        live.variable.assign(_as(file, entry, live))
    for layer, state in layers:
        dense_layers.give(layer, state)


def _as(file: tensors.TensorFile, entry: Entry, live: Entry) -> tensors.Array:
    return np.array(file.mapped(entry.name)).astype(live.dtype, copy=False)
