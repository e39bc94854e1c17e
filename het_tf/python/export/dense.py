"""The dense weights of a model as one safetensors file, which serving processes use in place.

    u64 length of the JSON | JSON | tensors, each at a multiple of 64 of the file

safetensors allows no gaps between tensors, so a gap is a tensor too, `__gap_N`. Tensors are named by the
paths of the model's variables. The layers' anchors, which are always 0, are left out.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.session.native import tf
from het_tf.python.table import layer_state

ALIGN = 64

_CODES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


@dataclass(frozen=True)
class Weight:
    """One dense weight of a model.

    Attributes:
      name: Its path; the second of two equal paths gets "#2".
      shape: Its static shape.
      dtype: The name of its dtype, such as "float32".
      variable: The variable.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    variable: Any


def weights_of(model: Any) -> list[Weight]:
    """Returns the dense weights of a built Keras 3 model, in the order of `model.weights`.

    Raises:
      ValueError: A weight has a dtype that safetensors lacks.
    """
    anchors = {id(layer.anchor) for layer in layer_state.layers_of(model)}
    found: dict[str, Weight] = {}
    for variable in model.weights:
        if id(variable) in anchors:
            continue
        name, number = variable.path, 2
        while name in found:
            name, number = f"{variable.path}#{number}", number + 1
        dtype = str(tf.as_dtype(variable.dtype).name)
        if dtype not in _CODES:
            raise ValueError(f"weight {name!r} is {dtype}, which a published version cannot have")
        found[name] = Weight(name, tuple(int(one) for one in variable.shape), dtype, variable)
    return list(found.values())


def described(weights: Sequence[Weight]) -> str:
    """Returns names, shapes and dtypes: JSON [[name, shape, dtype], ...]."""
    return json.dumps([[one.name, list(one.shape), one.dtype] for one in weights])


def signature(weights: Sequence[Weight]) -> str:
    """Returns the sha256 of `described`, in hex: equal for models that can take each other's weights."""
    return hashlib.sha256(described(weights).encode()).hexdigest()


def blob(weights: Sequence[Weight]) -> bytes:
    """Returns the present values as a safetensors file."""
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    end = 0

    def add(name: str, code: str, shape: Sequence[int], raw: bytes) -> None:
        nonlocal end
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [end, end + len(raw)]}
        parts.append(raw)
        end += len(raw)

    for number, weight in enumerate(weights):
        array: npt.NDArray[Any] = np.asarray(tf.convert_to_tensor(weight.variable))
        add(weight.name, _CODES[weight.dtype], weight.shape, array.tobytes())
        if gap := -end % ALIGN:
            add(f"__gap_{number}", "U8", [gap], bytes(gap))
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % ALIGN)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])
