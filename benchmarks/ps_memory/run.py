"""How much memory does the parameter server take for its rows?

    python benchmarks/ps_memory/run.py [--rows N] [--dims D ...] [--out FILE]

Tables of N rows of D floats at a Redis server with the module, one with SGD (no slots) and three with
RowWiseAdagrad (one slot), whose rows are stored in each format, filled in chunks. The limit: the bytes of the
stored row and 24 bytes for key, clock and use. Measured are the resident memory of the server's process less
that of the same server without rows, and what the server itself counts (`used_memory`, which `maxmemory` is
compared with).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import het_tf
from benchmarks import report
from het_tf.ext.ps.python import redis_server

LIMIT = 1.2
OF_FLOAT32 = {
    "bfloat16": {8: 0.75, 16: 0.71, 64: 0.60, 128: 0.56},
    "int8": {8: 0.60, 16: 0.55, 64: 0.38, 128: 0.33},
}
"""Limits on resident memory over that of the same table stored as float32, by width."""
CHUNK = 200_000


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def used(address: str) -> int:
    from het_tf.ext.ps.python import address as addresses
    from het_tf.ext.ps.python.node import Node

    with Node.of(addresses.parse(address), 30) as node:
        return int(node.info("memory")["used_memory"])


def stored_bytes(stored: str, dim: int, slots: int) -> int:
    value = {"float32": 4 * dim, "bfloat16": 2 * dim, "int8": dim + 1}[stored]
    return 4 * slots + (value + 3) // 4 * 4


def measure(optimizer: str, slots: int, rows: int, dim: int, stored: str = "float32") -> dict:
    with redis_server.LocalServer.start(unix=True) as server:
        het_tf.init(ps=server.address)
        config = het_tf.TableConfig("rows", dim, {"name": optimizer, "learning_rate": 0.1}, stored=stored)
        het_tf.keras.Embedding(config, cache=het_tf.Cache(rows=0))
        table = het_tf.Table("rows")
        table.assign(np.arange(1), np.zeros((1, dim), np.float32))
        empty, empty_used = resident(server.pid), used(server.address)
        values = np.random.default_rng(0).random((CHUNK, dim), np.float32)
        ids = np.random.default_rng(1).permutation(rows).astype(np.int64) * 0x9E3779B97F4A7C1 % (1 << 62)
        began = time.monotonic()
        for begin in range(0, rows, CHUNK):
            part = ids[begin : begin + CHUNK]
            table.assign(part, values[: len(part)])
            print(
                f"\r  {optimizer}, {dim} floats as {stored}: {begin + len(part):,} of {rows:,} rows",
                end="",
                file=sys.stderr,
                flush=True,
            )
        print(f" in {time.monotonic() - began:.0f} s", file=sys.stderr)
        assert table.size >= rows
        limit = rows * (stored_bytes(stored, dim, slots) + 24)
        result = {
            "optimizer": optimizer,
            "rows": rows,
            "dim": dim,
            "stored": stored,
            "limit_bytes": limit,
            "resident_bytes": resident(server.pid) - empty,
            "used_memory_bytes": used(server.address) - empty_used,
        }
        het_tf.reset()
        het_tf.init(ps="")
    result["bytes_a_row"] = result["resident_bytes"] / rows
    result["ratio"] = result["resident_bytes"] / limit
    result["used_memory_ratio"] = result["used_memory_bytes"] / limit
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--dims", type=int, nargs="+", default=[8, 16, 64, 128])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    arguments = parser.parse_args()
    tables, goals = [], []
    for dim in arguments.dims:
        exact = measure("row_wise_adagrad", 1, arguments.rows, dim)
        tables += [measure("sgd", 0, arguments.rows, dim), exact]
        for stored, limits in OF_FLOAT32.items():
            one = measure("row_wise_adagrad", 1, arguments.rows, dim, stored)
            one["of_float32"] = one["bytes_a_row"] / exact["bytes_a_row"]
            tables.append(one)
            if dim in limits:
                what = f"resident memory of {dim} floats, {stored} over float32"
                goals.append(report.goal(what, one["of_float32"], "<=", limits[dim]))
    for of in tables:
        what = f"resident memory, {of['optimizer']}, {of['dim']} floats as {of['stored']}"
        goals.append(report.goal(what, of["ratio"], "<=", LIMIT))
    result = {"command": "python benchmarks/ps_memory/run.py", "tables": tables, "goals": goals}
    report.finish(result, arguments.out, __file__)


if __name__ == "__main__":
    main()
