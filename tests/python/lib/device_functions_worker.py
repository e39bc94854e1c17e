"""Calls the functions of het_tf/capi/device.h as a GPU kernel does, on memory that plays the device's."""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

import numpy as np

import het_tf  # noqa: F401 - loads the library
from het_tf.python.session import native

library = native.library
SPEC = {
    "dim": 2,
    "initializer": {"name": "zeros"},
    "optimizer": {"name": "sgd", "params": {}},
}


def refused(code: type[Exception], words: str, function: str, *arguments: Any) -> None:
    try:
        native.call(function, *arguments)
    except code as error:
        assert words in str(error), str(error)
    else:
        raise AssertionError(f"{function} was to be refused: {words}")


def pointers(arrays: list[np.ndarray]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])


class Node:
    """A node of one table "name" and two features, the second of them with padding."""

    def __init__(self, name: str, **more: Any) -> None:
        specs = {
            "namespace": "",
            "tables": [SPEC | {"name": name}],
            "features": [{"table": 0, "padding_id": None}, {"table": 0, "padding_id": 7}],
            **more,
        }
        self.node = ctypes.c_void_p()
        names = (ctypes.c_char_p * 2)(name.encode(), name.encode())
        native.call("HetNodeCreate", names, ctypes.c_size_t(2), json.dumps(specs), ctypes.byref(self.node))

    def lookup(self, ids: list[list[int]], training: bool = True) -> tuple[list[np.ndarray], int]:
        self.ids = [np.array(i, np.int64) for i in ids]
        rows = [np.full((i.size, 2), -9, np.float32) for i in self.ids]
        token = ctypes.c_int64()
        native.call(
            "HetDeviceLookup", self.node, pointers(self.ids), self.counts(), ctypes.c_size_t(2),
            pointers(rows), ctypes.c_int(training), None, ctypes.byref(token),
        )  # fmt: skip
        return rows, token.value

    def apply(
        self, gradient: float, token: int, scale: float = 1, loss_scale: float = 0, rate: float = 1
    ) -> int:
        gradients = [np.full((i.size, 2), gradient, np.float32) for i in self.ids]
        rates, skipped = np.array([rate], np.float32), ctypes.c_int(5)
        native.call(
            "HetDeviceApply", self.node, pointers(self.ids), self.counts(), ctypes.c_size_t(2),
            pointers(gradients), token, rates, ctypes.c_size_t(1), ctypes.c_float(scale),
            ctypes.c_float(loss_scale), None, ctypes.byref(skipped),
        )  # fmt: skip
        return skipped.value

    def counts(self) -> Any:
        return (ctypes.c_int64 * 2)(*[i.size for i in self.ids])


def main() -> None:
    path = sys.argv[1]
    refused(RuntimeError, 'Cache(device="cpu")', "HetDescribeDevice")
    refused(LookupError, "nowhere.so", "HetLoadDeviceLibrary", "/nowhere.so", ctypes.c_int(0))
    native.call("HetLoadDeviceLibrary", path, ctypes.c_int(0))
    device = json.loads(native.call("HetDescribeDevice"))
    assert device["library"] == path and device["memory_bytes"] > 0, device

    gpu = {"capacity": 100, "device": "gpu", "pull_bound": 0, "push_bound": 3}
    for name, cache in [("g", gpu), ("c", gpu | {"device": "cpu"}), ("d", None)]:
        options = {} if cache is None else {"cache": cache}
        native.call("HetCreateTable", "", json.dumps(SPEC | {"name": name}), json.dumps(options))
        node = Node(name)
        rows, token = node.lookup([[1, 2, 1], [7, 2]])
        assert not np.any(rows[0]) and not np.any(rows[1])
        assert node.apply(-1, token) == 0
        refused_twice(node, token)
        rows, _ = node.lookup([[1, 2, 3], [7, 2]], training=False)
        assert rows[0][:, 0].tolist() == [2, 2, 0] and rows[1][:, 1].tolist() == [0, 2], rows
        # scale / loss_scale, and a gradient that is not finite with and without a loss scale
        _, token = node.lookup([[1], []])
        assert node.apply(-8, token, scale=0.5, loss_scale=4) == 0
        assert node.lookup([[1], []], training=False)[0][0][0, 0] == 3
        _, token = node.lookup([[1], []])
        assert node.apply(np.inf, token, loss_scale=4) == 1
        _, token = node.lookup([[1], []])
        try:
            node.apply(np.inf, token)
        except ValueError as error:
            assert f"gradient of table '{name}' for id 1" in str(error)
        else:
            raise AssertionError("Inf was applied")
        _, token = node.lookup([[1], []])
        try:
            node.apply(1, token, rate=np.nan)
        except ValueError as error:
            assert "learning rate of table" in str(error)
        else:
            raise AssertionError("a learning rate of NaN was taken")
        half = Node(name, needs_loss_scale=True)
        half.lookup([[1], []])
        try:
            half.apply(1, half.lookup([[1], []])[1])
        except RuntimeError as error:
            assert "add_n(model.losses)" in str(error)
        else:
            raise AssertionError("no loss scale was taken")
        dim, tables = ctypes.c_int64(), ctypes.c_size_t()
        native.call("HetNodeDim", node.node, ctypes.c_size_t(1), ctypes.byref(dim))
        native.call("HetNodeTables", node.node, ctypes.byref(tables))
        assert (dim.value, tables.value) == (2, 1)
        refused(ValueError, "feature is 2", "HetNodeDim", node.node, ctypes.c_size_t(2), ctypes.byref(dim))
        library.HetNodeDelete.restype = None
        library.HetNodeDelete(node.node)
    names = (ctypes.c_char_p * 1)(b"g")
    refused(ValueError, "specs is not", "HetNodeCreate", names, ctypes.c_size_t(1), "{", None)

    spec = json.dumps(SPEC | {"name": "t"})
    rows = native.call_int("HetCacheRows", spec, json.dumps({"device": "gpu"}), 1_000_000)
    assert rows % 32 == 0 and 5_000 < rows < 60_000, rows
    refused(ValueError, "the smallest one takes", "HetCacheRows", spec, '{"device": "gpu"}', 100, None)
    assert native.call_int("HetCacheRows", spec, "{}", 660) == 10
    refused(ValueError, "the smallest one takes 66", "HetCacheRows", spec, "{}", 65, None)
    print("all is well")


def refused_twice(node: Node, token: int) -> None:
    try:
        node.apply(-1, token)
    except RuntimeError as error:
        assert "was used before" in str(error)
    else:
        raise AssertionError("a token was used twice")


main()
