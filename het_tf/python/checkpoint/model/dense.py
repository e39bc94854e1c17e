"""dense.safetensors: the weights of a Keras model that are no tables, and the state of its optimizer.

A plain safetensors file; the name of a tensor is the path of its variable. Variables are written and read one
at a time. Restoring goes by name; where the names differ only in the numbers that Keras counts up for a model
that is built twice in a process ("dense" and "dense_1"), by order.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from het_tf.python.checkpoint import manifest as manifests
from het_tf.python.layer import owner
from het_tf.python.session.native import tf
from het_tf.python.table import layer_state

FILE = "dense.safetensors"
_CHUNK = 16 << 20  # bytes that are read at a time
_MAX_HEADER = 100 << 20  # as the safetensors package has it
# TensorFlow's name of a type -> that of safetensors.
_TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
    "bool": "BOOL",
}  # fmt: skip
_NAMES = {there: here for here, there in _TYPES.items()}
_PARTS = ("model", "optimizer")


@dataclass(frozen=True)
class Entry:
    """One variable in the file: "model" or "optimizer", its name there, its type, and where its bytes are."""

    part: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Live:
    """One variable of a model."""

    part: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    variable: Any


def variables_of(model: Any) -> list[Live]:
    """The variables of a model that are no tables, then those of its optimizer, which is built if it is not.

    Metrics, which begin anew with every epoch, are left out, and so are the layers' anchors, which are 0.

    Raises:
      TypeError: `model` is no Keras model, or has a variable of a type that a file cannot hold.
      RuntimeError: It has no weights yet.
    """
    if not isinstance(model, tf.keras.Model):
        raise TypeError(f"model is {model!r}; give a Keras model")
    if not model.built:
        raise RuntimeError(
            f"model {model.name!r} has no weights yet; call it on a batch first, or give it a keras.Input"
        )
    optimizer: Any = getattr(model, "optimizer", None)
    if optimizer is not None and hasattr(optimizer, "build") and not getattr(optimizer, "built", False):
        for layer in layer_state.layers_of(model):
            owner.before_build(layer, optimizer)
        optimizer.build(model.trainable_variables)
        optimizer.built = True
    apart = {id(one) for one in getattr(model, "metrics_variables", [])}
    apart |= {id(one) for metric in model.metrics for one in metric.variables}
    apart |= {id(layer.anchor) for layer in layer_state.layers_of(model)}
    of_optimizer = getattr(optimizer, "variables", [])
    of_optimizer = of_optimizer() if callable(of_optimizer) else of_optimizer
    apart_of = {"model": apart | {id(one) for one in of_optimizer}, "optimizer": set()}
    found, seen = [], set[str]()
    for part, variables in zip(_PARTS, (model.variables, of_optimizer), strict=True):
        for variable in variables:
            if id(variable) in apart_of[part]:
                continue
            path = getattr(variable, "path", variable.name).removesuffix(":0")
            if part == "optimizer":  # Keras 2 has its name there or not, by where it was built
                path = path.removeprefix(f"{optimizer.name}/")
            name = _unique(f"{part}/{path}", seen)
            dtype = str(tf.as_dtype(variable.dtype).name)
            if dtype not in _TYPES:
                raise TypeError(
                    f"variable {name!r} of model {model.name!r} is {dtype}, which a checkpoint of het_tf "
                    f"cannot hold; it holds {', '.join(_TYPES)}. Save it by tf.train.Checkpoint"
                )
            found.append(Live(part, name, dtype, tuple(int(one) for one in variable.shape), variable))
    return found


def _unique(name: str, seen: set[str]) -> str:
    """Two layers may have one name; then the second one's variables have a number behind theirs."""
    numbered = (f"{name}#{number}" for number in itertools.count(2))
    chosen = name if name not in seen else next(one for one in numbered if one not in seen)
    seen.add(chosen)
    return chosen


def write(directory: Path, variables: list[Live]) -> dict[str, Any]:
    """Writes the file and waits until it is on disk. Returns its entry of the manifest."""
    header: dict[str, Any] = {"__metadata__": {"format": "het_tf dense", "version": "1"}}
    begin = 0
    for live in variables:
        end = begin + _bytes(live.dtype, live.shape)
        header[live.name] = {
            "dtype": _TYPES[live.dtype],
            "shape": list(live.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    start = len(text).to_bytes(8, "little") + text
    path = directory / FILE
    with manifests.naming(path), path.open("xb") as out:
        out.write(start)
        checksum = xxhash.xxh3_64(start)
        for live in variables:
            data = np.ascontiguousarray(_array(live.variable))
            raw = data.reshape(-1).view(np.uint8)
            if raw.size != _bytes(live.dtype, live.shape):
                raise RuntimeError(f"variable {live.name!r} has changed its shape while it was saved")
            out.write(raw.data)
            checksum.update(raw.data)
        out.flush()
        os.fsync(out.fileno())
    return {"name": FILE, "bytes": len(start) + begin, "xxh3": checksum.hexdigest()}


def _array(variable: Any) -> Any:
    return tf.convert_to_tensor(variable).numpy()


def _bytes(dtype: str, shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * int(tf.as_dtype(dtype).size)


def verify(path: Path, entry: dict[str, Any]) -> None:
    """Checks size and checksum.

    Args:
      path: The file.
      entry: What the manifest says of it.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: It is damaged.
    """
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != entry["bytes"]:
            raise ValueError(
                f"{path} is damaged: it has {size} bytes, and the manifest says {entry['bytes']}"
                f"{manifests.AGAIN}"
            )
        checksum = xxhash.xxh3_64()
        while chunk := file.read(_CHUNK):
            checksum.update(chunk)
    if (found := checksum.hexdigest()) != entry["xxh3"]:
        raise ValueError(
            f"{path} is damaged: its checksum is {found}, and the manifest says {entry['xxh3']}"
            f"{manifests.AGAIN}"
        )


def _opened(path: Path) -> Any:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing, and the manifest of the checkpoint names it") from None


def read_header(path: Path) -> list[Entry]:
    """What is in the file, in the order of its bytes; `begin` and `end` count from the beginning of the file.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: It is no safetensors file, or one of other variables than het_tf writes.
    """
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(size - 8, _MAX_HEADER):
            raise ValueError(f"{path} is damaged: its header has {length} bytes, and the file {size}")
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            entries = [_entry(name, one, 8 + length) for name, one in header.items()]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is damaged: its header is not that of safetensors ({error})") from None
    entries.sort(key=lambda one: one.begin)
    place = 8 + length
    for one in entries:
        if one.begin != place or one.end - one.begin != _bytes(one.dtype, one.shape):
            raise ValueError(f"{path} is damaged: the bytes of {one.name!r} are not where they should be")
        place = one.end
    if place != size:
        raise ValueError(f"{path} is damaged: its variables end at {place} bytes, and the file at {size}")
    return entries


def _entry(name: str, one: dict[str, Any], start: int) -> Entry:
    begin, end = (start + int(offset) for offset in one["data_offsets"])
    shape = tuple(int(length) for length in one["shape"])
    return Entry(name.partition("/")[0], name, _NAMES[one["dtype"]], shape, begin, end)


def match(path: Path, entries: list[Entry], model: Any, strict: bool) -> list[tuple[Entry, Live]]:
    """Which variable of the file goes into which one of the model. Changes nothing but builds the optimizer.

    A model that is not compiled takes its weights alone.

    Args:
      path: The file, for messages.
      entries: What is in it.
      model: A built Keras model.
      strict: False: what only one side has is left as it is.

    Raises:
      ValueError: A side has variables that the other has not (`strict`), or one of another shape or type.
    """
    live = variables_of(model)
    pairs: list[tuple[Entry, Live]] = []
    lines: list[str] = []
    for part in _PARTS:
        if part == "optimizer" and getattr(model, "optimizer", None) is None:
            continue
        there = [one for one in entries if one.part == part]
        here = [one for one in live if one.part == part]
        by_name = {one.name: one for one in here}
        if by_name.keys() != {one.name for one in there} and _alike(there, here):
            found = list(zip(there, here, strict=True))
        else:
            found = [(one, by_name[one.name]) for one in there if one.name in by_name]
            if strict:
                lines += _missing("only the checkpoint has", there, found, 0)
                lines += _missing("only the model has", here, found, 1)
        for one, variable in found:
            if (one.dtype, one.shape) != (variable.dtype, variable.shape):
                lines.append(
                    f"{variable.name}: {one.dtype} {list(one.shape)} in the checkpoint, {variable.dtype} "
                    f"{list(variable.shape)} in the model"
                )
        pairs += found
    if lines:
        shown = "".join(f"\n  {line}" for line in lines[:20])
        rest = f"\n  and {len(lines) - 20} more" if len(lines) > 20 else ""
        raise ValueError(
            f"the variables in {path} are not those of model {model.name!r}; build and compile the model "
            f"that was saved:{shown}{rest}"
        )
    return pairs


def _alike(there: list[Entry], here: list[Live]) -> bool:
    """Whether the names differ in nothing but the numbers that Keras counts up."""
    plain = [[re.sub(r"_\d+(?![^/_#])", "", one.name) for one in side] for side in (there, here)]
    return plain[0] == plain[1]


def _missing(text: str, side: list[Any], found: list[tuple[Entry, Live]], which: int) -> list[str]:
    taken = {id(pair[which]) for pair in found}
    return [f"{text} {one.name} {one.dtype} {list(one.shape)}" for one in side if id(one) not in taken]


def assign(path: Path, pairs: list[tuple[Entry, Live]]) -> None:
    """Gives the variables of a model their values, one after the other."""
    with _opened(path) as file:
        for entry, live in pairs:
            file.seek(entry.begin)
            raw = np.fromfile(file, np.uint8, entry.end - entry.begin)
            live.variable.assign(raw.view(tf.as_dtype(entry.dtype).as_numpy_dtype).reshape(entry.shape))
