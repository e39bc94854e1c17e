"""The benchmarks run, small, and write the figures of their tables. What they measure is no test."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ranks

from benchmarks.slow_link import network
from benchmarks.traffic import run as traffic
from benchmarks.traffic.goals import find
from benchmarks.traffic.streams import make_stream

pytestmark = pytest.mark.long

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(name: str, out: Path, *words: str) -> dict[str, Any]:
    """Runs benchmarks/NAME/run.py --quick; returns the file that it wrote."""
    command = [sys.executable, str(BENCHMARKS / name / "run.py"), "--quick", "--out", str(out), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "written: " in done.stdout
    return dict(json.loads(out.read_text()))


def test_accuracy(tmp_path: Path) -> None:
    """A run that is missing, and a summary that leaves one out, would not show in the tables."""
    result = run("accuracy", tmp_path / "accuracy.json")
    assert set(result["parts"]) == {"census", "criteo_like"}
    for part in result["parts"].values():
        for group in part["groups"]:
            names = {"auc", "auc_before_flush", "largest_clock", "steps", "rows", "placed"}
            assert names <= set(group["runs"][0])
    runs = {(one["part"], one["run"]) for one in result["summary"] if one["model"] == "all"}
    assert runs == {
        ("census", "10/10"), ("census", "s=30, int4"), ("census", "unbounded"), ("criteo_like", "unbounded"),
    }  # fmt: skip
    assert [goal["name"].partition(":")[0] for goal in result["goals"]] == ["census", "census", "criteo_like"]


@pytest.mark.skipif(
    not (BENCHMARKS.parent / ".venv-backends").exists(),
    reason="there is no .venv-backends: make test-backends",
)
def test_backends(tmp_path: Path) -> None:
    """A model that learns nothing on one backend, or a system that has no figure."""
    result = run("backends", tmp_path / "backends.json")
    systems = {(one["system"], one["update"]) for one in result["steps"]}
    ours = {(backend, update) for backend in ("tensorflow", "torch", "jax") for update in ("default", "adam")}
    assert systems >= ours and all(one["ms"] > 0 for one in result["steps"])
    assert min(one["auc"] for one in result["models"] if one["data"] == "census") > 0.9


def test_traffic(tmp_path: Path) -> None:
    """Bytes that no class has, or a sweep whose figures no table would have."""
    sweeps = ("dims", "placed", "default")
    result = run("traffic", tmp_path / "traffic.json", "--only", *sweeps, "--samples", "32768")
    low = find(result["sweeps"]["dims"], bound="10/10", dim=16)
    assert {"rows", "bytes", "rows_saved", "bytes_saved", "allowed"} <= set(low)
    assert sum(low["bytes_by_class"].values()) == pytest.approx(low["bytes"])
    assert set(low["of_heads"]) == {"frame", "part"} and set(low["of_checks"]) == {"check", "moved", "left"}
    placed = find(result["sweeps"]["placed"], bound="10/10", placed="C24")
    assert placed["bytes_saved"] > low["bytes_saved"] and placed["unique_ids"] < low["unique_ids"]


def test_traffic_bounds(tmp_path: Path) -> None:
    """A staleness that the program took for HET's bound, or by its rows' own optimizer, would not show."""
    path = make_stream(tmp_path, "criteo_scaled", 8192, 1)

    def bounds(run: traffic.Run, *words: str) -> dict[str, Any]:
        words = (str(traffic.PROGRAM), *run.arguments(path, 1000), *words)
        result = dict(json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout))
        allowed = traffic.missed_at_most({"bounds": result["bounds"], "workers": 2})
        assert allowed is None or result["staleness"]["max"] <= allowed
        return dict(result["bounds"])

    def by(bound: str, *words: str) -> dict[str, Any]:
        return bounds(traffic.Run("criteo_scaled", 8192, 2, bound=bound), *words)

    aged = by("30")
    assert aged["pull"]["most"] == 30 and aged["pull"]["every"] > 1 and aged["push"]["every"] > 1
    of_default = by("30", "--optimizer", traffic.ROWS)
    assert of_default["pull"]["most"] == 3 and of_default["push"]["most"] == 0
    assert by("30/2") == {"pull": {"most": 30, "every": 0}, "push": {"most": 2, "every": 0}}
    assert by("unbounded") == {"pull": None, "push": None}


@ranks.HOROVOD
@pytest.mark.parametrize("model", ["graphsage", "wide_deep"])
def test_slow_link(model: str, tmp_path: Path) -> None:
    """A setting that was not measured, or a system without bytes."""
    if missing := network.missing():
        pytest.skip(missing)
    result = run("slow_link", tmp_path / "slow_link.json", "--only", model)
    entry = result["models"][model]["settings"]["rows"]
    assert set(entry["systems"]) == {"no cache", "s=100"}
    for figures in entry["systems"].values():
        assert {"step", "bytes", "server_bytes", "gain"} <= set(figures)
