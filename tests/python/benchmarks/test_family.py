"""Simulated systems of benchmarks/family.py: their counters are those of a real run, digit for digit."""

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

caches, sync, herald = (benchmark(name) for name in ("simulated_cache", "simulated_sync", "family_herald"))
others, streams = benchmark("family_others"), benchmark("traffic_streams")

WORKERS, BATCH, SAMPLES, WARM = 3, 16, 6000, 1500


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ids that all change in the middle: the hit rate falls, and LFU's rows age by more than they do else."""
    return Path(streams.make_stream(tmp_path_factory.mktemp("stream"), "changed", SAMPLES, 1))


def simulated(path: Path, rows: int, make: Any) -> Any:
    """Runs the model with LFU caches; `make(workers, rows)` makes the synchronisation."""
    stream = caches.Stream(path, WORKERS, BATCH)
    batches = stream.batches()
    held = [caches.Cache(caches.Lfu(rows, stream.distinct), rows, stream.distinct) for _ in batches]
    first = -(-WARM // (WORKERS * BATCH))
    of_steps = list(zip(*batches, strict=True))
    return sync.simulate(stream.steps, of_steps.__getitem__, held, make(WORKERS, stream.distinct), first)


def measured(path: Path, rows: int, *words: str) -> dict[str, Any]:
    """Runs three workers of the real client; returns what the program printed."""
    setting = {"stream": path, "workers": WORKERS, "batch": BATCH, "warm": WARM, "dim": 4, "capacity": rows}
    setting |= {"policy": "lfu", "checks": "asked"}
    command = [str(benchmark("traffic").PROGRAM), *words]
    command += [str(word) for name, value in setting.items() for word in (f"--{name}", value)]
    return dict(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def rows_of(result: dict[str, Any]) -> dict[str, int]:
    return {name: result["counts"][name]["rows"] for name in sync.CLASSES}


@pytest.mark.parametrize("rows", [1 << 20, 800, 150, 20])
@pytest.mark.parametrize("bound", ["0", "10/10", "100/100", "unbounded"])
def test_bounded_rows_are_those_of_the_client(path: Path, bound: str, rows: int) -> None:
    """A row that the model lets go in another order, or checks against its own ticks, moves a counter.

    With 1,048,576 rows nothing goes. 800 rows are those of three batches, 20 fewer than a batch: LFU's
    order decides, within a batch as well.
    """
    pull, _, push = bound.partition("/")
    model = simulated(path, rows, lambda workers, size: sync.Bounded(bound, workers, size))
    client = measured(path, rows, "--pull", pull, "--push", push or pull)
    assert model.rows == rows_of(client)
    assert model.uses == client["staleness"]["reads"]


@pytest.mark.parametrize("rows", [1 << 20, 800, 150, 20])
def test_on_demand_rows_are_those_of_the_client(path: Path, rows: int) -> None:
    """A row that is pushed for no one, or read though another worker used it since, moves a counter."""
    model = simulated(path, rows, sync.OnDemand)
    client = measured(path, rows, "--sync", "on_demand", "--pull", "0", "--push", "0")
    assert model.rows == rows_of(client)
    assert client["staleness"]["max"] == 0


@pytest.mark.parametrize("rows", [1 << 20, 800, 150])
def test_exact_systems_pull_the_same_rows(path: Path, rows: int) -> None:
    """All pull what was written since, no more: a directory that calls an old copy newest pulls too little.

    At s=0 every update is pushed; on demand fewer are, and the strict rule pushes more than the stream's.
    """
    write_through, stream, strict = (
        simulated(path, rows, make)
        for make in (lambda workers, size: sync.Bounded("0", workers, size), sync.OnDemand, sync.Directory)
    )
    for name in ("miss_pull", "update_pull"):
        assert write_through.rows[name] == stream.rows[name] == strict.rows[name]
    pushed = [sum(of.rows[name] for name in sync.CLASSES[2:]) for of in (stream, strict, write_through)]
    assert pushed[0] < pushed[1] < pushed[2] == write_through.uses


def test_assignment_by_hand() -> None:
    """The greedy has no room at worker 0 for the sample that loses most elsewhere; by regret it is first.

    Ties go to a different worker in each step: else worker 0 would get all new rows.
    """
    scores = np.array([[1, 1], [3, 2], [2, 2], [9, 0]])
    assert herald.assign(scores, 2, 0, regret=False).tolist() == [[0, 1], [2, 3]]
    assert herald.assign(scores, 2, 0, regret=True).tolist() == [[1, 3], [0, 2]]
    assert herald.assign(scores, 2, 1, regret=False).tolist() == [[1, 3], [0, 2]]


def tiny(place: Path, ids: list[list[int]]) -> Any:
    """Two workers of one sample a step."""
    streams.write_stream(place / "tiny.bin", np.array(ids, np.int64))
    return caches.Stream(place / "tiny.bin", 2, 1)


def test_bagpipe_by_hand(tmp_path: Path) -> None:
    """Row 0 is in three steps: one fetch for each copy, three reductions of two rows, one write back.

    Rows 1 to 3 have one trainer and no second use: fetched and written back by it, never reduced or sent on.
    Row 4 has one step, but both trainers. Partitioned, rows 0 and 4 are with trainer 0: trainer 1 gets them
    from there, and sends their updates.
    """
    stream = tiny(tmp_path, [[0], [1], [0], [2], [3], [0], [4], [4]])
    rows = others.bagpipe(stream, first=0, partitioned=False, window=1)
    assert rows.pulled == pytest.approx((2 * 2 + 3) / 2 / 4)
    assert rows.pushed == pytest.approx(5 / 2 / 4)
    assert rows.between == 2 and rows.more["cached"] == 2
    parts = others.bagpipe(stream, first=0, partitioned=True, window=1)
    assert parts.pulled == pytest.approx((2 + 3) / 2 / 4) and parts.pushed == rows.pushed
    assert parts.between == pytest.approx(2 * 4 / 2 / 4)


def test_fae_by_hand(tmp_path: Path) -> None:
    """Hot rows are those of the steps before: an input that has one cold id is cold, whatever comes later."""
    ids = [[0, 1], [0, 1], [0, 1], [0, 2], [0, 2], [1, 0], [3, 2], [0, 1]]
    rows = others.fae(tiny(tmp_path, ids), first=2, share=0.5)
    assert rows.more["hot_inputs"] == 0.5 and rows.more["copied"] == 2 * 2 / 2
    assert rows.between == 0.5 * 2 * 2 and rows.pulled == 0.5 * 2 + 2 and rows.pushed == 0.5 * 2 + 2 / 2


def family(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "family.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_family(tmp_path: Path) -> None:
    """The formula of simulated bytes is off by less than 2 %, and the table fits a terminal."""
    tables, out = benchmark("family_tables"), tmp_path / "family.json"
    done = family("--samples", "16384", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    (trace,) = result["traces"]
    formula = trace["formula"]
    assert formula["rows_times_row_bytes"] == pytest.approx(formula["measured_without_checks"], rel=0.02)
    assert max(len(line) for line in done.stdout.splitlines()[:-1]) <= 100
    lines = {line["system"]: line for line in trace["lines"]}
    assert lines["on demand"]["rows"] < lines["HET, s=0"]["rows"] <= trace["rows"]
    assert len(tables.WRITERS["8"](result)) == len(lines) + 4 and len(tables.WRITERS["claims"](result)) == 7


def test_bad_input_is_named(tmp_path: Path) -> None:
    for words, said in (
        (("--workers", "0"), "--workers is 0; give 1 to 32"),
        (("--stream", "nowhere.bin"), "--stream is 'nowhere.bin'; give criteo_scaled"),
        (("--samples", "100"), "there are 100; give at least 8,192"),
        (("--program", str(tmp_path)[:-1]), "run `make benchmark-tools`"),
    ):
        done = family(*words)
        assert done.returncode == 2 and said in " ".join(done.stderr.split())


def test_tables_have_their_places_in_the_docs() -> None:
    """A table without a marker would be counted and never seen."""
    tables = benchmark("family_tables")
    text = (BENCHMARKS.parent / "docs/planning.md").read_text()
    for name, write in tables.WRITERS.items():
        assert f"<!-- family {name} -->" in text
        assert write({"traces": []})[0].startswith("Not run yet")
