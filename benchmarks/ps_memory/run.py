"""How much memory does the parameter server take for its rows?

    python benchmarks/ps_memory/run.py [--rows N] [--dim D] [--out FILE]

Tables of N rows of D floats at a Redis server with the module, one with SGD (no slots) and one with
RowWiseAdagrad (one slot), filled in chunks. The limit: the bytes of values and slots and 24 bytes a row for
key, clock and use. Measured are the resident memory of the server's process less that of the same server
without rows, and what the server itself counts (`used_memory`, which `maxmemory` is compared with).
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
CHUNK = 200_000


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def used(address: str) -> int:
    from het_tf.ext.ps.python import address as addresses
    from het_tf.ext.ps.python.node import Node

    with Node.of(addresses.parse(address), 30) as node:
        return int(node.info("memory")["used_memory"])


def measure(optimizer: str, slots: int, rows: int, dim: int) -> dict:
    with redis_server.LocalServer.start(unix=True) as server:
        het_tf.init(ps=server.address)
        config = het_tf.TableConfig("rows", dim, {"name": optimizer, "learning_rate": 0.1})
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
                f"\r  {optimizer}: {begin + len(part):,} of {rows:,} rows",
                end="",
                file=sys.stderr,
                flush=True,
            )
        print(f" in {time.monotonic() - began:.0f} s", file=sys.stderr)
        assert table.size >= rows
        limit = rows * ((dim + slots) * 4 + 24)
        result = {
            "optimizer": optimizer,
            "rows": rows,
            "dim": dim,
            "limit_bytes": limit,
            "resident_bytes": resident(server.pid) - empty,
            "used_memory_bytes": used(server.address) - empty_used,
        }
        het_tf.reset()
        het_tf.init(ps="")
    result["ratio"] = result["resident_bytes"] / limit
    result["used_memory_ratio"] = result["used_memory_bytes"] / limit
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    arguments = parser.parse_args()
    tables = [
        measure(name, slots, arguments.rows, arguments.dim)
        for name, slots in (("sgd", 0), ("row_wise_adagrad", 1))
    ]
    goals = [report.goal(f"resident memory, {of['optimizer']}", of["ratio"], "<=", LIMIT) for of in tables]
    result = {"command": "python benchmarks/ps_memory/run.py", "tables": tables, "goals": goals}
    report.finish(result, arguments.out, __file__)


if __name__ == "__main__":
    main()
