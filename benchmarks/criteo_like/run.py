"""Is the Criteo-like stream like real rows?

    python benchmarks/criteo_like/run.py [--rows N] [--excerpts E] [--out FILE]

The stream is compared with what is known of real rows: unique ids a batch, and the figures of excerpt.py. The
exit status is 1 if one is missed that is not known to be.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import report
from benchmarks.accuracy.data import auc
from benchmarks.criteo_like import excerpt
from het_tf.python.data import criteo_like, oracle_logit
from het_tf.python.data.criteo_curves import criteo_like_parameters
from het_tf.python.data.criteo_ids import draw_ids


def unique_per_batch(rows: int) -> dict[str, dict[str, float]]:
    """Returns for each batch size the mean number of unique ids, the wanted one, and the relative error."""
    ids = np.stack([column + (number << 40) for number, column in enumerate(draw_ids(rows).values())], axis=1)
    result = {}
    for size, wanted in criteo_like_parameters()["unique_ids_per_batch"].items():
        count = min(rows // int(size), 400)
        unique = np.mean([len(np.unique(ids[at * int(size) : (at + 1) * int(size)])) for at in range(count)])
        result[size] = {"unique": float(unique), "wanted": wanted, "error": float(unique / wanted - 1)}
    return result


def measure(rows: int, excerpts: int) -> dict[str, Any]:
    """Returns the figures of the stream that are known of real rows, and those of its truth."""
    examples = criteo_like(rows)
    unique, found = unique_per_batch(min(rows, 1 << 17)), excerpt.measure(excerpts)
    goals = [
        report.goal(f"unique ids in batches of {size}, relative error", abs(of["error"]), "<=", 0.05)
        for size, of in unique.items()
    ]
    goals += [
        report.goal(f"{name}, off by", abs(of["error"]), "<=", excerpt.TOLERANCE)
        for name, of in found.items()
    ]
    return {
        "command": "python benchmarks/criteo_like/run.py",
        "machine": report.machine(),
        "rows": rows,
        "unique_ids_per_batch": unique,
        "excerpts": excerpts,
        "excerpt": found,
        "click_rate": float(examples.label.mean()),
        "oracle_auc": auc(examples.label, oracle_logit(examples)),
        "first_order_auc": auc(examples.label, oracle_logit(examples, pairs=False)),
        "goals": goals,
    }


def main() -> None:
    """Measures, prints the tables, writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000, help="of the stream")
    parser.add_argument("--excerpts", type=int, default=32, help="excerpts of 8,192 rows; 2 or more")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    arguments = parser.parse_args()
    result = measure(arguments.rows, arguments.excerpts)
    report.finish(result, arguments.out, __file__)
    known = tuple(f"{name}, off by" for name in excerpt.BEYOND)
    if lost := [goal["name"] for goal in result["goals"] if not goal["met"] and goal["name"] not in known]:
        sys.exit(f"error: the stream is no longer as real rows are: {', '.join(lost)}")


if __name__ == "__main__":
    main()
