"""A process killed during a save leaves only complete checkpoints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
WORKER = ROOT / "tests/lib/checkpoint_crash_worker.py"
ROUNDS = max(6, int(20 * float(os.environ.get("HET_TEST_SCALE", "1"))))


@pytest.mark.long
def test_killed_at_20_points_the_newest_checkpoint_is_whole(tmp_path):
    place = tmp_path / "c"
    done = subprocess.run(
        [sys.executable, str(WORKER), str(place), str(ROUNDS), "1"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rounds) == ROUNDS + 1
    saved = 0  # the newest that `save` has returned
    leftovers = 0
    for number, one in enumerate(rounds):
        last = number == ROUNDS
        # A process that failed to restore, or found another number than it should, has ended with 1.
        assert one["code"] == (0 if last else -9), (one, done.stderr[-3000:])
        assert last or any("killed" in said for said in one["said"]), one
        for said in one["said"]:
            if "restored" in said:
                assert said["restored"] in (saved, saved + 1), (number, one)  # + 1: it had its name already
                saved = said["restored"]
            saved = said.get("saved", saved)
        leftovers += any(name.startswith(".tmp-") for name in one["names"])
    killed = [said["killed"] for one in rounds for said in one["said"] if "killed" in said]
    assert len(killed) == ROUNDS and killed.count("time") > 2 and len(set(killed)) > 5
    assert leftovers > 3, "most deaths leave something"
    assert not any(name.startswith(".tmp-") for name in rounds[-1]["names"]), "the last save has removed it"
    assert len(rounds[-1]["names"]) <= 5, "two, and what they build on"
