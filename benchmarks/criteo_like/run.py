"""How fast does the Criteo-like generator make rows, and the reader of Criteo's format read them?

    python benchmarks/criteo_like.py [--rows N] [--repeats K] [--excerpts E] [--out FILE]

One thread. The limit is `numpy.random.Generator.integers` of 26 int64 a row: the generator has to draw, skew
and chain its ids, so it cannot be faster. The reader reads the same rows as lines of Criteo's format, in
batches of 4,096; beside it TensorFlow's own ops split the lines (`TextLineDataset`, `decode_csv`), without
hashing. The rates of these two are for a second of processor time, since several threads run.

It also compares the stream with what is known of real rows: unique ids a batch, and criteo_excerpt.py's
figures. The exit status is 1 if one is missed that is not known to be.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import criteo_excerpt
import numpy as np
import tensorflow as tf

from het_tf.python.data import criteo, criteo_like, oracle_logit
from het_tf.python.data.criteo_curves import criteo_like_parameters
from het_tf.python.data.criteo_ids import draw_ids


def rows_per_second(rows: int, repeats: int, work: Callable[[], object]) -> float:
    """Returns the best of `repeats` runs of `work`, which handles `rows` rows."""
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return rows / best


def criteo_text(rows: int) -> bytes:
    """Returns rows of the stream as lines of Criteo's format."""
    examples = criteo_like(rows)
    columns = [examples.label.astype(np.int64), *np.rint(np.expm1(examples.numeric.T)).astype(np.int64)]
    fields = [np.char.mod("%d", column) for column in columns]
    fields += [np.char.mod("%08x", ids) for ids in examples.categorical.values()]
    return "\n".join(map("\t".join, zip(*fields, strict=True))).encode()


def auc(label: np.ndarray, score: np.ndarray) -> float:
    """Returns the area under the ROC curve of scores without ties."""
    rank = np.empty(len(score))
    rank[np.argsort(score, kind="stable")] = np.arange(1, len(score) + 1)
    positive = label.sum(dtype=np.float64)
    return float(
        (rank[label > 0].sum() - positive * (positive + 1) / 2) / (positive * (len(label) - positive))
    )


def rows_per_processor_second(rows: int, repeats: int, dataset: tf.data.Dataset) -> float:
    """Returns the best of `repeats` passes over `dataset`, which has `rows` rows, without Python in them."""
    one_pass = tf.function(lambda: dataset.reduce(tf.constant(0, tf.int64), lambda count, *_: count + 1))
    one_pass()
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        one_pass()
        best = min(best, time.process_time() - start)
    return rows / best


def split_lines(file: Path) -> tf.data.Dataset:
    """Returns the file's columns by TensorFlow's own ops: 14 integers and 26 strings, no hashes."""
    columns = [[0]] * 14 + [[""]] * 26
    lines = tf.data.TextLineDataset(str(file)).batch(4096)
    return lines.map(lambda line: tf.io.decode_csv(line, columns, field_delim="\t")).prefetch(1)


def unique_per_batch(rows: int) -> dict[str, dict[str, float]]:
    """Returns for each batch size the mean number of unique ids, the wanted one, and the relative error."""
    ids = np.stack([column + (number << 40) for number, column in enumerate(draw_ids(rows).values())], axis=1)
    result = {}
    for size, wanted in criteo_like_parameters()["unique_ids_per_batch"].items():
        count = min(rows // int(size), 400)
        unique = np.mean([len(np.unique(ids[at * int(size) : (at + 1) * int(size)])) for at in range(count)])
        result[size] = {"unique": float(unique), "wanted": wanted, "error": float(unique / wanted - 1)}
    return result


def measure_speed(rows: int, repeats: int) -> dict[str, dict[str, float]]:
    """Returns the rates of the generator and of the readers."""
    rng = np.random.default_rng(0)
    file = Path(tempfile.mkdtemp()) / "criteo.tsv"
    file.write_bytes(criteo_text(rows))
    made = {
        "numpy integers, 26 int64 a row (limit)": rows_per_second(
            rows,
            repeats,
            lambda: [rng.integers(0, 2**63, (1 << 14, 26)) for _ in range(-(-rows // (1 << 14)))],
        ),
        "ids": rows_per_second(rows, repeats, lambda: draw_ids(rows)),
        "ids, numbers, labels": rows_per_second(rows, repeats, lambda: criteo_like(rows)),
    }
    read = {
        "criteo(path).to_tf(4096)": rows_per_processor_second(
            rows, repeats, criteo(file, workers=1).to_tf(4096)
        ),
        "TextLineDataset, batch(4096), decode_csv": rows_per_processor_second(
            rows, repeats, split_lines(file)
        ),
    }
    file.unlink()
    limit = next(iter(made.values()))
    return {
        "rows_per_second": made,
        "rows_read_per_processor_second": read,
        "ratio_to_limit": {name: value / limit for name, value in made.items()},
    }


def measure_fit(rows: int, excerpts: int) -> dict[str, Any]:
    """Returns the figures of the stream that are known of real rows, and those of its truth."""
    examples = criteo_like(rows)
    return {
        "unique_ids_per_batch": unique_per_batch(min(rows, 1 << 17)),
        "excerpts": excerpts,
        "excerpt": criteo_excerpt.measure(excerpts),
        "click_rate": float(examples.label.mean()),
        "oracle_auc": auc(examples.label, oracle_logit(examples)),
        "first_order_auc": auc(examples.label, oracle_logit(examples, pairs=False)),
    }


def print_result(result: dict[str, Any]) -> None:
    """Prints the tables."""
    print(f"{'one thread':42}{'M rows/s':>10}{'of limit':>10}")
    for name, value in result["rows_per_second"].items():
        print(f"{name:42}{value / 1e6:10.2f}{result['ratio_to_limit'][name]:10.2f}")
    for name, value in result["rows_read_per_processor_second"].items():
        print(f"{name:42}{value / 1e6:10.2f}")
    print(f"\n{'batch':>6}{'unique ids':>12}{'wanted':>8}{'error':>8}")
    for size, entry in result["unique_ids_per_batch"].items():
        print(f"{size:>6}{entry['unique']:12.0f}{entry['wanted']:8d}{entry['error']:+8.1%}")
    print(f"\n{'of 8,192 rows':24}{'measured':>9}{'spread':>8}{'wanted':>8}{'error':>7}")
    for name, entry in result["excerpt"].items():
        wanted = f"{entry['wanted'] or '< 5':>8}"
        mark = "" if entry["met"] else "  missed"
        print(f"{name:24}{entry['measured']:9.1f}{entry['spread']:8.1f}{wanted}{entry['error']:+7.1f}{mark}")
    print(
        f"\nclick rate {result['click_rate']:.4f}, AUC of the oracle {result['oracle_auc']:.4f}, "
        f"of its first order {result['first_order_auc']:.4f}"
    )


def missed(result: dict[str, Any]) -> list[str]:
    """Returns the figures that the stream has lost: beyond their tolerance, and not known to be."""
    sizes = [
        f"unique ids in batches of {size}"
        for size, entry in result["unique_ids_per_batch"].items()
        if abs(entry["error"]) > 0.05
    ]
    names = [name for name, entry in result["excerpt"].items() if not entry["met"]]
    return sizes + [name for name in names if name not in criteo_excerpt.BEYOND]


def main() -> None:
    """Measures, prints the tables, writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000, help="rows a run")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each; the best counts")
    parser.add_argument("--excerpts", type=int, default=32, help="excerpts of 8,192 rows; 2 or more")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parent / "results" / "criteo_like.json",
        help="the JSON file",
    )
    arguments = parser.parse_args()
    result = {
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "numpy": np.__version__,
        "rows": arguments.rows,
        **measure_speed(arguments.rows, arguments.repeats),
        **measure_fit(arguments.rows, arguments.excerpts),
    }
    print_result(result)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written: {arguments.out}")
    if lost := missed(result):
        sys.exit(f"error: the stream is no longer as real rows are: {', '.join(lost)}")


if __name__ == "__main__":
    main()
