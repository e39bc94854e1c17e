"""benchmarks/traffic: does it count right? Streams so small that rows, bytes and waits are known by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks_lib import BENCHMARKS, benchmark

pytestmark = pytest.mark.long
CLASSES = ("miss_pull", "update_pull", "bound_push", "evict_push")


streams = benchmark("traffic_streams")
traffic = benchmark("traffic")
limits = benchmark("traffic_limits")
goals = benchmark("traffic_goals")
tables = benchmark("traffic_tables")


def run_program(*words: object) -> subprocess.CompletedProcess[str]:
    if not traffic.PROGRAM.exists():
        raise FileNotFoundError(f"{traffic.PROGRAM} is missing; build the CMake target traffic")
    command = [str(traffic.PROGRAM), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def simulate(path: Path, keys: list[list[int]] | np.ndarray, **settings: object) -> dict[str, Any]:
    """Runs the program on samples of keys; returns what it printed."""
    stream = path / "stream.bin"
    streams.write_stream(stream, np.array(keys, np.int64))
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    done = run_program("--stream", stream, *words)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def rows(counts: dict[str, Any]) -> dict[str, int]:
    return {name: counts[name]["rows"] for name in CLASSES}


def class_bytes(counts: dict[str, Any]) -> int:
    of_rows = sum(counts[name]["row_bytes"] + counts[name]["key_bytes"] for name in CLASSES)
    return int(of_rows + counts["check_bytes"] + counts["head_bytes"])


def test_without_a_cache_every_row_travels_twice(tmp_path: Path) -> None:
    # Two workers, two samples each, two steps; the first one warms up. Keys below 32 and clocks below 64 take
    # one byte.
    keys = [[1, 2], [2, 3], [4, 4], [5, 6]] * 2
    result = simulate(
        tmp_path, keys, workers=2, batch=2, dim=4, partitions=1, capacity=0, pull=0, push=0, warm=4
    )
    assert result["steps"] == 1 and result["reads"] == 6 and result["hits"] == 0
    counts = result["counts"]
    assert rows(counts) == {"miss_pull": 6, "update_pull": 0, "bound_push": 6, "evict_push": 0}
    assert counts["miss_pull"]["row_bytes"] == counts["bound_push"]["row_bytes"] == 6 * 4 * 4
    # A pulled row: its key and its clock; a pushed one: its key and its ticks.
    assert counts["miss_pull"]["key_bytes"] == counts["bound_push"]["key_bytes"] == 6 * 2
    # Four requests, a read's and a write's of each worker: a frame's head is 20 bytes and a client id's 16;
    # a part's flags, seq and digest are 10, a table's flags and description 12, a count 1. Their replies: 9,
    # flags and seq 2, a table 11; a read's have a count, a write's the partition's incarnation number, since
    # a push alone does not say that it knows it.
    assert counts["heads"] == counts["parts"] == 8
    replies = 2 * (22 + 1) + 2 * (22 + 8)
    assert counts["head_bytes"] == 4 * (36 + 10 + 13) + replies
    assert counts["checks"] == counts["check_bytes"] == 0
    assert counts["bytes_out"] == 4 * 59 + 6 * 1 + 6 * (2 + 16)
    assert counts["bytes_in"] == replies + 6 * (1 + 16)
    assert counts["round_trips"] == 4
    assert result["reads_that_waited"] == result["writes_that_waited"] == 2
    assert result["staleness"] == {"reads": 6, "mean": 0.0, "p99": 0, "max": 0}


def test_one_row_two_workers_and_a_bound_of_two(tmp_path: Path) -> None:
    # Steps 0, 1, 2 tick the row; after the third tick it is pushed, 3 > 2. At step 3 the other's three ticks
    # are at the store, 3 > 2 again: the row is refreshed. And so on, every three steps.
    result = simulate(
        tmp_path, [[7]] * 20, workers=2, batch=1, dim=1, partitions=1, capacity=8, pull=2, push=2
    )
    assert result["steps"] == 10 and result["reads"] == 20 and result["hits"] == 18
    # Fetched once; refreshed at steps 3, 6, 9; pushed at 2, 5, 8. Twice, for there are two workers.
    assert rows(result["counts"]) == {"miss_pull": 2, "update_pull": 6, "bound_push": 6, "evict_push": 0}
    assert result["counts"]["checks"] == 18
    # One for each read and for each write that pushes more than it may leave unsent; and the first request of
    # each worker does not know the table's epoch yet.
    assert result["counts"]["round_trips"] == 2 * (10 + 3 + 1)
    # Reads miss 0, 1, 2, 0, 1, 2, ..., 0 ticks of the other worker.
    assert result["staleness"] == {"reads": 20, "mean": 18 / 20, "p99": 2, "max": 2}
    assert result["unsent_rows"] == 2
    traveled = result["all"]
    assert class_bytes(traveled) == traveled["bytes_in"] + traveled["bytes_out"]


def test_rows_in_fewer_bits_take_fewer_bytes_and_shards_share_frames(tmp_path: Path) -> None:
    settings = {"workers": 2, "batch": 1, "dim": 8, "partitions": 4, "capacity": 8, "pull": 2, "push": 2}
    plain, half, byte = (
        simulate(tmp_path, [list(range(8))] * 20, wire=wire, **settings)
        for wire in ("float32", "float16", "int8")
    )
    # Rounded rows cannot say what they contain.
    assert half["staleness"] == byte["staleness"] == {"reads": 160, "mean": None, "p99": None, "max": None}
    for name in ("miss_pull", "update_pull", "bound_push"):
        of = [result["counts"][name] for result in (plain, half, byte)]
        assert of[0]["rows"] == of[1]["rows"] == of[2]["rows"] > 0
        # A byte before each row says how to read it.
        assert [one["row_bytes"] // one["rows"] for one in of] == [32, 17, 9]
    # One server, one frame a call; two of them, two frames.
    two = simulate(tmp_path, [list(range(8))] * 20, shards=2, **settings)
    assert plain["counts"]["heads"] < two["counts"]["heads"]
    assert plain["counts"]["parts"] == two["counts"]["parts"]
    assert plain["staleness"] == two["staleness"]
    done = run_program("--stream", tmp_path / "stream.bin", "--wire", "float8")
    assert done.returncode == 2 and "float16" in done.stderr


def test_rows_that_leave_a_full_cache_are_pushed(tmp_path: Path) -> None:
    result = simulate(
        tmp_path, [[1], [2], [1], [2]], workers=1, batch=1, dim=1, partitions=1, capacity=1,
        pull="unbounded", push="unbounded",
    )  # fmt: skip
    # Every read misses; each pushes, with its write, the row that went out for it. Nobody waits for that.
    assert rows(result["counts"]) == {"miss_pull": 4, "update_pull": 0, "bound_push": 0, "evict_push": 3}
    assert result["counts"]["checks"] == 0
    assert result["counts"]["round_trips"] == 4 + 1
    assert result["writes_that_waited"] == 0
    assert result["unsent_rows"] == 1


def test_rows_that_nobody_has_written_bring_no_floats(tmp_path: Path) -> None:
    stream = tmp_path / "new.bin"
    streams.write_stream(stream, np.array([[1], [2], [1], [2]], np.int64))
    words = ["--workers", 1, "--batch", 1, "--dim", 2, "--capacity", 0, "--pull", 0, "--push", 0]
    counts = json.loads(run_program("--stream", stream, "--new-rows", *words).stdout)["counts"]
    assert counts["miss_pull"] | {"key_bytes": 0} == {
        "rows": 4, "absent": 2, "row_bytes": 2 * 8, "key_bytes": 0,
    }  # fmt: skip


@pytest.fixture(scope="module")
def sample() -> np.ndarray:
    """Keys of 4,096 rows of the Criteo-like stream."""
    keys: np.ndarray = streams.criteo_like_keys(4096, seed=3)
    return keys


@pytest.mark.parametrize("checks", ["asked", "told"])
@pytest.mark.parametrize("bound", [0, 1, 3, "unbounded"])
def test_classes_are_all_that_travels_and_staleness_keeps_its_bound(
    tmp_path: Path, sample: np.ndarray, bound: int | str, checks: str
) -> None:
    settings = {"workers": 4, "batch": 32, "dim": 3, "partitions": 5, "capacity": 500, "policy": "lfu"}
    settings["checks"] = checks
    result = simulate(tmp_path, sample, pull=bound, push=bound, **settings)
    for counts in (result["counts"], result["all"]):
        assert class_bytes(counts) == counts["bytes_in"] + counts["bytes_out"]
    # A client does not count rows that it is told of and has let go meanwhile.
    traveled = sum(rows(result["all"]).values())
    assert result["client_rows"] == traveled if checks == "asked" else result["client_rows"] <= traveled
    unique = sum(len(np.unique(sample[at : at + 32])) for at in range(0, 4096, 32))
    assert result["reads"] == result["staleness"]["reads"] == unique
    assert result["counts"]["miss_pull"]["rows"] == unique - result["hits"]
    assert result["cached_rows"] == 4 * 500
    if bound == 0:
        assert result["staleness"]["max"] == 0
        assert result["counts"]["bound_push"]["rows"] == unique
    elif bound != "unbounded":
        assert 0 < result["staleness"]["max"] <= bound + 3 * (bound + 1)  # I3
        assert result["counts"]["update_pull"]["rows"] > 0
    else:
        assert result["counts"]["checks"] == 0
        assert result["counts"]["bound_push"]["rows"] == result["counts"]["update_pull"]["rows"] == 0


def test_streams_hold_the_ids_of_the_generator(tmp_path: Path, sample: np.ndarray) -> None:
    from het_tf.python.data import criteo_like
    from het_tf.python.data.criteo_curves import criteo_like_parameters

    begin = 0
    drawn = criteo_like(4096, seed=3).categorical
    for place, field in enumerate(criteo_like_parameters()["fields"]):
        np.testing.assert_array_equal(sample[:, place] - begin, drawn[field["name"]])
        begin += field["cardinality"]
    changed = streams.changed_keys(100, seed=3)
    assert not np.intersect1d(changed[:100], changed[100:]).size
    for keys in (sample, np.array([[-(1 << 62)], [5], [1 << 62], [5]])):
        path = tmp_path / "round.bin"
        streams.write_stream(path, keys)
        distinct, ids = streams.read_stream(path)
        np.testing.assert_array_equal(distinct[ids], keys)
        assert len(distinct) == len(np.unique(keys))


def test_rare_ids_are_joined_and_frequent_ones_are_not(sample: np.ndarray) -> None:
    ranks = streams.scaled_rank(np.arange(1 << 20))
    np.testing.assert_array_equal(ranks[: streams.HEAD], np.arange(streams.HEAD))
    assert set(np.diff(ranks)) == {0, 1}
    sizes = np.bincount(ranks)[:-1]
    assert sizes.max() == sizes[-1] == streams.JOIN
    scaled = streams.criteo_scaled_keys(4096, seed=3)
    for column, joined in zip(sample.T, scaled.T, strict=True):
        # One id of the stream is one joined id: as many as before, or fewer.
        assert len(np.unique(np.stack([column, joined]), axis=1).T) == len(np.unique(column))
    assert len(np.unique(scaled)) < len(np.unique(sample))
    batches = [len(np.unique(scaled[at : at + 128])) for at in range(0, 4096, 128)]
    assert 1480 < np.mean(batches) < 1590  # Criteo has 1,534


def test_a_cache_that_knows_the_future_keeps_what_is_used_again_soonest(tmp_path: Path) -> None:
    path = tmp_path / "future.bin"
    streams.write_stream(path, np.array([[1], [2], [1], [3], [2], [1], [1]]))

    def count(bound: str, size: int, warm: int = 0) -> tuple[dict[str, float], float]:
        return limits.clairvoyant(path, 1, 1, bound, size, warm)

    # 2 goes for 1, 3 goes at once, 2 goes again: four pulls, and three pushes of what went.
    of, saved = count("unbounded", 1)
    assert {name: 7 * value for name, value in of.items()} == {
        "miss_pull": 4, "update_pull": 0, "bound_push": 0, "evict_push": 3,
    }  # fmt: skip
    assert saved == pytest.approx(1 - 7 / 14)
    # Of the third step on, three of the misses and pushes; with two rows, 2 stays for its second use.
    assert count("unbounded", 1, 2)[1] == pytest.approx(1 - 4 / 10)
    assert count("unbounded", 2)[0]["miss_pull"] * 7 == 3
    # At a bound of 0 every use is pushed, and nothing is left for a row that goes.
    assert count("0", 1)[0] | {"miss_pull": 0} == dict.fromkeys(CLASSES, 0) | {"bound_push": 1}


@pytest.mark.parametrize("bound", ["0", "3", "5", "unbounded"])
def test_the_model_of_a_cache_of_all_rows_counts_what_the_program_counts(
    tmp_path: Path, sample: np.ndarray, bound: str
) -> None:
    settings = {"workers": 4, "batch": 32, "dim": 1, "partitions": 2, "policy": "lfu", "warm": 1024}
    result = simulate(tmp_path, sample, pull=bound, push=bound, capacity=100_000, **settings)
    stream = tmp_path / "stream.bin"
    of, saved = limits.clairvoyant(stream, 4, 32, bound, 100_000, 1024)
    steps = result["steps"] * 4
    assert rows(result["counts"]) == {name: round(value * steps) for name, value in of.items()}
    assert saved == pytest.approx(1 - sum(rows(result["counts"]).values()) / 2 / result["reads"])
    # And of a small one: the program's caches do not know the future.
    real = simulate(tmp_path, sample, pull=bound, push=bound, capacity=500, **settings)
    least, _ = limits.clairvoyant(stream, 4, 32, bound, 500, 1024)
    assert of["miss_pull"] < least["miss_pull"] < real["counts"]["miss_pull"]["rows"] / steps


def test_workers_of_a_host_read_the_union_of_their_rows_and_each_writes_its_own_ticks(tmp_path: Path) -> None:
    # Two hosts of two workers; everyone uses row 7, and a row of his own.
    keys = [[7, 1], [7, 2], [7, 3], [7, 4]] * 5
    settings = {
        "workers": 4,
        "share": 2,
        "batch": 1,
        "dim": 1,
        "partitions": 1,
        "policy": "lfu",
        "pull": 3,
        "push": 3,
    }
    result = simulate(tmp_path, keys, capacity=8, **settings)
    assert result["reads"] == 2 * 5 * 3 and result["hits"] == 2 * 4 * 3
    assert result["staleness"]["reads"] == 4 * 5 * 2  # of workers
    # A host ticks row 7 twice a step, and pushes four ticks after every second one; the others reach their
    # bound in the fourth step. Row 7 is refreshed in the steps after its pushes.
    counts = rows(result["counts"])
    assert counts == {"miss_pull": 6, "update_pull": 2 * 2, "bound_push": 2 * 2 + 4, "evict_push": 0}
    # Ticks of the own host are never missed; of the other one's 0, 2, 0, 2, 0.
    assert result["staleness"] | {"mean": 0} == {"reads": 40, "mean": 0, "p99": 2, "max": 2}
    assert result["staleness"]["mean"] == 4 * 2 * 2 / 40
    # A batch that is more than the cache: rows stay pinned until the host's last worker has written.
    small = simulate(tmp_path, keys, capacity=1, **settings)
    assert small["reads"] == 2 * 5 * 3 and rows(small["counts"])["miss_pull"] == 30 - small["hits"]
    done = run_program("--stream", tmp_path / "stream.bin", "--workers", 4, "--share", 3)
    assert done.returncode == 2 and "3 workers share a cache, of 4" in done.stderr


def test_every_run_has_its_baseline_and_savings_are_against_it() -> None:
    runs = traffic.all_runs(traffic.sweeps(65_536, quick=False))
    assert len(runs) == len(set(runs))
    assert {run.baseline() for run in runs if run.stream != "changed"} <= set(runs)
    run = traffic.Run("criteo_like", 65_536, workers=2)

    def result(row_count: int, size: int) -> dict[str, Any]:
        of = {name: {"rows": row_count, "key_bytes": 1, "row_bytes": 1} for name in CLASSES}
        counts = of | {
            name: 1
            for name in ("checks", "check_bytes", "heads", "head_bytes", "parts", "bytes_in", "round_trips")
        }
        counts["bytes_out"] = size - 1
        plain = ("reads", "hits", "steps", "distinct", "seconds", "memory_mb")
        plain += ("unsent_rows", "unsent_rows_before")
        waits = {"reads_that_waited": 1, "writes_that_waited": 1, "staleness": {"reads": 1}}
        return {name: 1 for name in plain} | waits | {"counts": counts}

    figures = traffic.summary(run, result(1, 30), result(4, 100))
    assert figures["rows_saved"] == 0.75 and figures["bytes_saved"] == 0.7
    assert figures["rows"] == 2 and figures["bytes"] == 15  # of a step of one of the two workers


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workers", "0"], "--workers cannot be '0'"),
        (["--pull", "-1"], "--pull cannot be '-1'"),
        (["--policy", "best"], "lru"),
        (["--speed", "1"], "no argument --speed"),
        (["--dim"], "wants a value"),
        (["--batch", "5"], "is left to count"),
    ],
)
def test_bad_arguments_are_named(tmp_path: Path, words: list[str], message: str) -> None:
    stream = tmp_path / "stream.bin"
    streams.write_stream(stream, np.array([[1], [2]]))
    done = run_program("--stream", stream, *words)
    assert done.returncode == 2 and message in done.stderr and not done.stdout


def test_damaged_streams_are_refused(tmp_path: Path) -> None:
    stream = tmp_path / "stream.bin"
    streams.write_stream(stream, np.array([[1], [2], [3]]))
    whole = stream.read_bytes()
    for damage, message in (
        (b"", "no head"),
        (b"x" + whole[1:], "does not begin"),
        (whole[:-1], "does not fit"),
        (whole[:-4] + b"\3\0\0\0", "past the last key"),
        (whole[:8] + b"\xff" * 8 + whole[16:], "does not fit"),
    ):
        stream.write_bytes(damage)
        done = run_program("--stream", stream)
        assert done.returncode == 2 and message in done.stderr, done.stderr


def test_every_table_has_its_place_in_the_docs_and_says_when_it_was_not_run() -> None:
    text = (BENCHMARKS.parent / "docs/benchmarks.md").read_text()
    sweeps = traffic.sweeps(65_536, quick=False)
    for name, write in tables.WRITERS.items():
        assert f"<!-- traffic {name} -->" in text
        assert write({"sweeps": {}})[0].startswith("Not run yet: `python benchmarks/traffic.py --only ")
        assert tables.NEEDS[name][1] in sweeps


def test_back_after_counts_the_batches_until_the_hit_rate_is_back() -> None:
    rates = [0.0, 0.5, 0.95] + [1.0] * 37 + [0.0, 0.2, 0.8, 0.89, 0.9] + [1.0] * 35
    assert goals.back_after(rates) == (2, 4)
    assert goals.back_after([1.0] * 40 + [0.5] * 40) == (0, None)


def test_what_reads_may_miss() -> None:
    run = {"bound": "10", "workers": 8, "share": 1}
    assert goals.missed_at_most(run) == 10 + 7 * 11  # I3
    assert goals.missed_at_most(run | {"share": 4}) == 10 + 14  # one other host, and its workers' steps
    assert goals.missed_at_most(run | {"bound": "unbounded"}) is None


def test_a_small_sweep_from_its_runs_to_its_table(tmp_path: Path) -> None:
    out = tmp_path / "traffic.json"
    words = ["--quick", "--only", "dims", "--samples", "32768", "--out", str(out)]
    command = [sys.executable, str(BENCHMARKS / "traffic.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    low, high = (goals.find(result["sweeps"]["dims"], bound=bound, dim=16) for bound in ("10", "100"))
    assert 0 < low["rows_saved"] < high["rows_saved"] < 1
    assert low["bytes_saved"] < goals.find(result["sweeps"]["dims"], bound="10", dim=128)["bytes_saved"]
    for name in ("goals", "dims"):
        assert len(tables.WRITERS[name](result)) > 3
    judged = {entry["goal"]: entry["value"] for entry in goals.goals(result)}
    assert judged["rows saved, s=10, %"] == pytest.approx(100 * low["rows_saved"])
    unknown = subprocess.run([*command[:3], "--only", "speed"], capture_output=True, text=True, timeout=300)
    assert unknown.returncode == 1 and "there is no sweep ['speed']" in unknown.stderr
