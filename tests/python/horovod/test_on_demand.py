"""Rows on demand under horovodrun and a real Redis: what is not of the stream is refused, or right.

Defects: a look within a pass reads rows without what another rank holds back, and leaves them for later
steps; one rank refuses a step and the other one waits for it; a restore leaves copies of rows from before it.
"""

import horovod_lib
import on_demand_lib
import pytest
import redis_lib

pytestmark = [pytest.mark.slow, horovod_lib.RANKS]


def test_calls_beside_the_stream(tmp_path):
    """Each case compares all rows that it reads with a numpy twin (on_demand_lib.py)."""
    with redis_lib.running(tmp_path / "redis") as server:
        done = horovod_lib.launch(on_demand_lib.__file__, server.address, tmp_path, timeout=300)
    assert done.returncode == 0, done.stdout[-6000:]
    assert done.stdout.count(": done") == 2 * 6, done.stdout[-6000:]
