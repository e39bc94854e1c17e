"""Checkpoints made by hand, with nothing but the description of the format: what het ckpt is tested on.

`write` takes rows as {id: (clock, value, slots, last_used, count)}; nothing of the package is used but the
checksum.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from cli_lib import Done, het
from safetensors.numpy import load_file

COLUMNS = ("keys", "clocks", "values", "slots", "last_used", "counts")
Rows = dict[int, tuple[int, list[float], list[float], int, int]]
PARTITIONS, SEED = 24, 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def mix(x: int) -> int:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ x >> 33) * factor & _MASK
    return x ^ x >> 33


def partition(key: int, table: str = "item", partitions: int = PARTITIONS, seed: int = SEED) -> int:
    """A table lies in a group of the partitions, from 8 and an eighth of them; of at most 16 in all."""
    name = 0xCBF29CE484222325
    for byte in table.encode():
        name = (name ^ byte) * 0x100000001B3 & _MASK
    least = partitions if partitions <= 16 else max(8, partitions // 8)
    group = next(some for some in range(least, partitions + 1) if partitions % some == 0)
    stride = partitions // group
    return mix(name) % stride + stride * ((mix((key & _MASK) ^ seed) >> 16 & 0xFFFF) * group >> 16)


@dataclass
class Table:
    """The content of one table in a checkpoint."""

    rows: Rows
    removed: list[int] = field(default_factory=list)
    complete: bool = True
    dim: int = 3
    slots: int = 1
    name: str = "item"

    def spec(self) -> dict[str, Any]:
        return {"name": self.name, "dim": self.dim, "optimizer": {"name": "row_wise_adagrad"}, "seed": 0}


def tensor_bytes(
    tensors: dict[str, np.ndarray], metadata: dict[str, str] | None = None
) -> tuple[bytes, bytes]:
    """Header and body of a safetensors file."""
    codes = {"int64": "I64", "float32": "F32", "uint32": "U32", "uint16": "U16"}
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    body = b""
    for name, array in tensors.items():
        begin = len(body)
        body += array.tobytes()
        header[name] = {
            "dtype": codes[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [begin, len(body)],
        }
    return pack(header), body


def pack(header: dict[str, Any]) -> bytes:
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text


def columns(table: Table, partitions: set[int], increment: bool) -> dict[str, np.ndarray]:
    rows = {key: row for key, row in table.rows.items() if partition(key, table.name) in partitions}
    out = {
        "keys": np.array([*rows], np.int64),
        "clocks": np.array([row[0] for row in rows.values()], np.int64),
        "removed": np.array(
            [key for key in table.removed if partition(key, table.name) in partitions], np.int64
        ),
        "values": np.array([row[1] for row in rows.values()], np.float32).reshape(len(rows), table.dim),
        "slots": np.array([row[2] for row in rows.values()], np.float32).reshape(len(rows), table.slots),
        "last_used": np.array([row[3] for row in rows.values()], np.uint32),
        "counts": np.array([row[4] for row in rows.values()], np.uint16),
    }
    if not increment:
        del out["removed"]
    if not table.slots:
        del out["slots"]
    return {f"{table.name}/{name}": column for name, column in out.items()}


def write(
    path: Path,
    tables: list[Table],
    base: Path | None = None,
    files: int = 3,
    step: int | None = 7,
    dense: dict[str, np.ndarray] | None = None,
) -> Path:
    """Writes a checkpoint; an increment if it has a base."""
    path.mkdir(parents=True)
    entries = []
    parts = np.array_split(np.arange(PARTITIONS), files)
    for number, part in enumerate(parts):
        found = [columns(table, {*map(int, part)}, base is not None) for table in tables]
        tensors = {
            name: of[name] for size in (8, 4, 2) for of in found for name in of if of[name].itemsize == size
        }
        head, body = tensor_bytes(tensors, {"format": "het_tf rows", "version": "1"})
        name = f"rows-{number:05d}-of-{files:05d}.safetensors"
        (path / name).write_bytes(head + body)
        entries.append({
            "name": name,
            "bytes": len(head + body),
            "partitions": [int(one) for one in part],
            "header_xxh3": xxhash.xxh3_64_hexdigest(head),
            "tensors": {
                name: {"rows": len(array), "xxh3": xxhash.xxh3_64_hexdigest(array.tobytes())}
                for name, array in tensors.items()
            },
        })  # fmt: skip
    dense_entry = None
    if dense is not None:
        raw = b"".join(tensor_bytes(dense))
        (path / "dense.safetensors").write_bytes(raw)
        dense_entry = {
            "name": "dense.safetensors",
            "bytes": len(raw),
            "xxh3": xxhash.xxh3_64_hexdigest(raw),
            "tables": [],
            "apart": [],
        }
    document = {
        "format": "het_tf checkpoint",
        "version": 5,
        "id": f"{abs(hash(str(path))):032x}",
        "created": 1_700_000_000.0,
        "step": step,
        "namespace": "",
        "base": {"name": base.name, "id": manifest(base)["id"]} if base else None,
        "store": {"partitions": PARTITIONS, "hash_seed": str(SEED)},
        "tables": [
            {
                "name": table.name,
                "spec": table.spec(),
                "limits": {},
                "applies": 5,
                "rows": len(table.rows),
                "removed": len(table.removed),
                "complete": table.complete,
                "clock_floor": 0,
                "slots": [["accumulator", table.slots]] if table.slots else [],
                "positions": ["1:0"] * PARTITIONS,
            }
            for table in tables
        ],
        "files": entries,
        "dense": dense_entry,
    }
    seal(path, document)
    return path


def manifest(path: Path) -> dict[str, Any]:
    return json.loads((path / "manifest.json").read_text())


def seal(path: Path, document: dict[str, Any]) -> None:
    """Writes the manifest with its checksum."""
    document = {name: value for name, value in document.items() if name != "xxh3"}
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    (path / "manifest.json").write_text(json.dumps({**document, "xxh3": xxhash.xxh3_64_hexdigest(canonical)}))


def reseal_file(path: Path, number: int = 0) -> None:
    """Makes the manifest's checksums those of a file that was changed: what remains is what is in it."""
    document = manifest(path)
    entry = document["files"][number]
    raw = (path / entry["name"]).read_bytes()
    length = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:length])
    entry.update(bytes=len(raw), header_xxh3=xxhash.xxh3_64_hexdigest(raw[:length]), tensors={})
    for name, one in header.items():
        if name != "__metadata__":
            begin, end = (length + offset for offset in one["data_offsets"])
            entry["tensors"][name] = {
                "rows": one["shape"][0],
                "xxh3": xxhash.xxh3_64_hexdigest(raw[begin:end]),
            }
    seal(path, document)


def rows(
    ids: range | list[int], clock: int = 1, dim: int = 3, slots: int = 1, last_used: int = 1_600_000_000
) -> Rows:
    """Rows whose content says which they are."""
    return {
        key: (
            clock,
            [key + clock / 8 + i for i in range(dim)],
            [0.5 + clock] * slots,
            last_used + clock,
            clock,
        )
        for key in ids
    }


def het_ckpt(*words: object, status: int = 0) -> Done:
    """Runs `het ckpt WORDS` and checks its exit status."""
    return het("ckpt", *words, status=status)


def flip(path: Path, at: int) -> None:
    """Damages a byte of a file."""
    raw = bytearray(path.read_bytes())
    raw[at] ^= 4
    path.write_bytes(raw)


def content(path: Path) -> dict[str, dict[int, tuple]]:
    """All rows of a full checkpoint, by table and id, as the package safetensors reads them."""
    found: dict[str, dict[int, tuple]] = {}
    for file in sorted(path.glob("rows-*")):
        tensors = load_file(file)
        for name in {tensor.rpartition("/")[0] for tensor in tensors}:
            rows = found.setdefault(name, {})
            of = {column: tensors.get(f"{name}/{column}") for column in COLUMNS}
            slots = np.empty((len(of["keys"]), 0)) if of["slots"] is None else of["slots"]
            assert not rows.keys() & {*map(int, of["keys"])}
            for key, clock, value, slot, used, count in zip(
                of["keys"], of["clocks"], of["values"], slots, of["last_used"], of["counts"], strict=True
            ):
                rows[int(key)] = (int(clock), value.tolist(), slot.tolist(), int(used), int(count))
    return found
