"""The benchmarks run, small, and write the figures of their tables. What they measure is no test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import horovod_lib
import models_lib
import numpy as np
import pytest
from benchmarks_lib import BENCHMARKS, benchmark

pytestmark = pytest.mark.long


def run(program: str, out: Path, *words: str) -> dict[str, Any]:
    """Runs benchmarks/PROGRAM.py --quick; returns the file that it wrote."""
    command = [sys.executable, str(BENCHMARKS / f"{program}.py"), "--quick", "--out", str(out), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(out.read_text()))


def test_accuracy(tmp_path: Path) -> None:
    tables = benchmark("accuracy_tables")
    result = run("accuracy", tmp_path / "accuracy.json")
    assert set(result["parts"]) == {"census", "criteo_like"}
    for part in result["parts"].values():
        assert len(tables.part_table(part)) > 3
        for group in part["groups"]:
            names = {"auc", "auc_before_flush", "largest_clock", "steps", "rows", "placed"}
            assert names <= set(group["runs"][0])
    assert [goal["goal"].split(" less")[0] for goal in tables.goals(result)] == [
        "census: AUC at s=30, int4", "census: AUC at unbounded", "criteo_like: AUC at unbounded",
    ]  # fmt: skip


def test_traffic(tmp_path: Path) -> None:
    goals, tables = benchmark("traffic_goals"), benchmark("traffic_tables")
    sweeps = ("dims", "placed", "default")
    result = run("traffic", tmp_path / "traffic.json", "--only", *sweeps, "--samples", "32768")
    low = goals.find(result["sweeps"]["dims"], bound="10/10", dim=16)
    assert {"rows", "bytes", "rows_saved", "bytes_saved"} <= set(low)
    assert sum(low["bytes_by_class"].values()) == pytest.approx(low["bytes"])
    assert set(low["of_heads"]) == {"frame", "part"} and set(low["of_checks"]) == {"check", "moved", "left"}
    for name in ("goals", *sweeps):
        assert len(tables.WRITERS[name](result)) > 3
    placed = goals.find(result["sweeps"]["placed"], bound="10/10", placed="C24")
    assert placed["bytes_saved"] > low["bytes_saved"] and placed["unique_ids"] < low["unique_ids"]


def test_traffic_bounds(tmp_path: Path) -> None:
    """A staleness that the program took for HET's bound, or by its rows' own optimizer, would not show."""
    goals, program = benchmark("traffic_goals"), benchmark("traffic")
    path = benchmark("traffic_streams").make_stream(tmp_path, "criteo_scaled", 8192, 1)

    def bounds(run: Any, *words: str) -> dict[str, Any]:
        words = (str(program.PROGRAM), *run.arguments(path, 1000), *words)
        result = dict(json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout))
        allowed = goals.missed_at_most({"bounds": result["bounds"], "share": 1, "workers": 2})
        assert allowed is None or result["staleness"]["max"] <= allowed
        return dict(result["bounds"])

    def by(bound: str, *words: str) -> dict[str, Any]:
        return bounds(program.Run("criteo_scaled", 8192, 2, bound=bound), *words)

    aged = by("30")
    assert aged["pull"]["most"] == 30 and aged["pull"]["every"] > 1 and aged["push"]["every"] > 1
    assert by("30", "--optimizer", "sgd")["pull"] == {"most": 10, "every": 0}
    assert by("30/2") == {"pull": {"most": 30, "every": 0}, "push": {"most": 2, "every": 0}}
    assert by("unbounded") == {"pull": None, "push": None}


@horovod_lib.RANKS
@pytest.mark.parametrize(("how", "model"), [("namespaces", "graphsage"), ("relay", "wide_deep")])
def test_slow_link(how: str, model: str, tmp_path: Path) -> None:
    tables = benchmark("slow_link_tables")
    missing = benchmark("network", BENCHMARKS / "slow_link").missing()
    if how == "namespaces" and missing:
        pytest.skip(missing)
    words = ["--relay"] if how == "relay" else []
    result = run("slow_link", tmp_path / "slow_link.json", "--only", model, *words)
    entry = tables.setting(result["models"][model], 1, dense=False)
    assert entry is not None and set(entry["systems"]) == {"no cache", "s=100"}
    assert all({"step", "bytes", "server_bytes"} <= set(figures) for figures in entry["systems"].values())
    for name in ("goals", "models"):
        assert len(tables.WRITERS[name](result)) > 3


def test_retrieval_twins_are_trained_by_the_same_formulas(fresh: np.random.Generator) -> None:
    """Rows by AdaGrad of summed gradients, towers by Adam: on either side."""
    models = benchmark("models")
    examples = models_lib.events(fresh, 64)
    made = models.pair("TwoTower", models_lib.EVENTS, examples, 1, embedding_dim=4, hidden_units=(8,))
    for model in made.values():
        models.fit(model, examples, 32, 3, 1)
    models_lib.assert_equal_twins(made["het"], made["keras"])


def test_gene_papers(tmp_path: Path) -> None:
    tables = benchmark("gene_papers_tables")
    result = run("gene_papers", tmp_path / "gene_papers.json", "--seeds", "1", "2")
    for write in tables.WRITERS.values():
        assert len(write(result)) > 3
    sizes = {run["limits"]: run["size"] for run in result["stream"]["runs"] if run["seed"] == 1}
    assert sizes["ttl"] <= sizes["none"] and sizes["min_count"] <= sizes["none"]
    for run_of in result["stream"]["runs"]:
        follows = run_of["curves"]["follows"]
        for stop in run_of["stops"]:
            stopped = run_of["curves"].get(f"stopped {stop}", {str(stop): follows[str(stop)]})
            assert stopped[str(stop)] == follows[str(stop)], "it has stopped after the question"


def not_run(tables: ModuleType, nothing: dict[str, Any]) -> None:
    """Every table has its place in the docs, and says when it was not run."""
    text = "\n".join(document.read_text() for document in benchmark("update_docs").DOCUMENTS)
    program = tables.__name__.removesuffix("_tables")
    for name, write in tables.WRITERS.items():
        assert f"<!-- {program} {name} -->" in text
        assert write(nothing)[0].startswith("Not run yet")


def test_tables_have_their_places_in_the_docs() -> None:
    not_run(benchmark("traffic_tables"), {"sweeps": {}})
    not_run(benchmark("slow_link_tables"), {})
    not_run(benchmark("gene_papers_tables"), {})
