"""How long do workers wait for their rows on a slow link, beside no cache and Horovod's all-gather?

    make benchmark-tools
    python benchmarks/slow_link/run.py [--quick] [--only PART ...] [--workers N]

Real workers under horovodrun train Wide & Deep and GraphSAGE at a real shard. The program makes network
namespaces of its own, whose links the kernel limits (`tc tbf`) and counts. That needs root, or a kernel that
lets everyone make namespaces.

* Computing is the step of the same model with its tables as variables in each worker and rows that are not
  exchanged; communication is what a step takes beyond that.
* The rate is set in the run such that communication without a cache takes 12 times the computing.
* In the settings "rows" the all-reduce of dense gradients does not cross the slow links; in "all" it does.
* Systems take turns after 400 steps that fill the caches; figures are medians over the turns.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.slow_link import network

PARTS = ("wide_deep", "graphsage")
STREAMS = ROOT / "build/traffic"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few steps of 16 floats; judges nothing")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--workers", type=int, default=2, help="1 to 4, default 2; they share the processors")
    parser.add_argument("--out", type=Path, help="the JSON file")
    arguments = parser.parse_args()
    if not 1 <= arguments.workers <= 4:
        parser.error(f"--workers is {arguments.workers}; give 1 to 4")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if network.INSIDE not in os.environ and (why := network.missing()):
        sys.exit(f"error: {why}")
    network.enter_private_namespaces()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    from benchmarks.slow_link.program import (
        run,  # imports TensorFlow, which the process that waits outside does not need
    )

    default = Path(__file__).with_name("result.json")
    out = arguments.out or (STREAMS / "slow_link_quick.json" if arguments.quick else default)
    parts = arguments.only or (("wide_deep",) if arguments.quick else PARTS)
    try:
        run(parts, out, arguments.workers, arguments.quick, STREAMS)
    except KeyboardInterrupt:
        sys.exit(130)
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
