"""One system in one process, asked by local_step.py through its standard input.

    python worker.py SYSTEM ROWS DIM OPTIMIZER THREADS

Says when it is ready; then each line `lookup STEPS` or `train STEPS` is answered with one line of JSON:
nanoseconds of CPU time (all threads of the process) and of wall time for each looked-up row.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time

import workload

MODULES = {
    "het_tf": ("het_system", "System"),
    "het_tf, cache": ("het_system", "CachedSystem"),
    "raw TF ops": ("raw_tf_system", "System"),
    "Keras": ("keras_system", "System"),
    "TFRA cuckoo": ("tfra_system", "System"),
    "FBGEMM TBE": ("fbgemm_system", "System"),
}


def rss() -> int:
    """Resident bytes of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answers

    def reply(**values) -> None:
        print(json.dumps(values), file=replies, flush=True)

    name, rows, dim, optimizer, threads = sys.argv[1], *map(int, sys.argv[2:4]), sys.argv[4], int(sys.argv[5])
    module, class_name = MODULES[name]
    kind = getattr(__import__(module), class_name)
    system = kind(rows, dim, optimizer, threads)
    system.lookup(0)
    gc.collect()
    reply(version=kind.version, rss=rss())
    at = 0
    for line in sys.stdin:
        what, steps = line.split()
        run = getattr(system, what)
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(int(steps)):
            run(at % workload.POOL)
            at += 1
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        rows_run = int(steps) * workload.IDS
        reply(cpu_ns=cpu / rows_run * 1e9, wall_ns=wall / rows_run * 1e9, seconds=wall)


if __name__ == "__main__":
    main()
