"""Stands in for het_tf.python.checkpoint.rows until that is there."""

import json
from pathlib import Path

import numpy as np

from het_tf.python import native
from het_tf.python.table import Table


def write_tables(directory, namespace, tables=None, since=None):
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    native.call("HetFlush", namespace)
    described, files = [], []
    for number, name in enumerate(tables):
        table = Table(name, namespace)
        rows = table.scan()
        dim = table.dim
        columns = {"keys": rows["ids"], "clocks": rows["clocks"], "values": rows["rows"][:, :dim],
                   "slots": rows["rows"][:, dim:], "last_used": rows["last_used"], "counts": rows["counts"]}
        dtypes = {"keys": "I64", "clocks": "I64", "values": "F32", "slots": "F32", "last_used": "U32",
                  "counts": "U16"}
        header, at, blobs = {"__metadata__": {"format": "het_tf rows", "version": "1"}}, 0, []
        for column, array in columns.items():
            if column == "slots" and not array.shape[1]:
                continue
            blob = np.ascontiguousarray(array).tobytes()
            header[f"{name}/{column}"] = {"dtype": dtypes[column], "shape": list(array.shape),
                                          "data_offsets": [at, at + len(blob)]}
            at += len(blob)
            blobs.append(blob)
        text = json.dumps(header).encode()
        text += b" " * (-(len(text) + 8) % 64)
        file = f"rows-{number:05d}-of-{len(tables):05d}.safetensors"
        (directory / file).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))
        files.append({"name": file, "bytes": 8 + len(text) + at, "tensors": {}, "header_crc32c": ""})
        described.append({"name": name, "spec": table.spec, "applies": table.applies, "rows": len(rows["ids"])})
    manifest = {"tables": described, "files": files, "crc32c": ""}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return manifest


def read_tables(directory, namespace, tables=None, strict=True, slots=True):
    from het_tf.python.saving import rowfile

    manifest = json.loads((Path(directory) / "manifest.json").read_text())
    for file, described in zip(manifest["files"], manifest["tables"], strict=True):
        to = tables[described["name"]]
        columns = rowfile.columns(Path(directory) / file["name"])[described["name"]]
        table = Table(to, namespace)
        if table.dim != described["spec"]["dim"]:
            raise ValueError(f"table {to!r}: dim is {table.dim}, and {described['spec']['dim']} in the file")
        rows = np.concatenate([columns["values"], *([columns["slots"]] if "slots" in columns else [])], 1)
        table.clear()
        table.assign(np.array(columns["keys"]), rows, True)
        native.call("HetSetApplies", namespace, to, described["applies"])
