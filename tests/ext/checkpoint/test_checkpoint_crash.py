"""A process killed during a save leaves only complete checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys

import checkpoint_crash_worker
import pytest

ROUNDS = max(6, int(20 * float(os.environ.get("HET_TEST_SCALE", "1"))))


@pytest.mark.long
def test_killed_at_20_points_the_newest_checkpoint_is_whole(tmp_path):
    """The worker looks at each round itself."""
    command = [sys.executable, checkpoint_crash_worker.__file__, str(tmp_path / "c"), str(ROUNDS), "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
