"""The bulk-synchronous mode under horovodrun: two ranks learn what one process learns from both batches."""

from __future__ import annotations

import contextlib

import horovod_lib
import numpy as np
import pytest
import redis_lib

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(horovod_lib.missing()), reason=horovod_lib.missing() or "there is Horovod"),
]


@pytest.fixture(scope="module")
def union():
    import horovod_worker

    import het_tf

    het_tf.reset()
    yield horovod_worker.union(2)
    het_tf.reset()


@pytest.mark.parametrize("shards", [1, 2])
def test_two_ranks_equal_one_process_on_the_union_batch(shards, tmp_path, union):
    environment = {}
    with contextlib.ExitStack() as stack:
        if shards > 1:  # else rank 0 starts a server
            cluster = stack.enter_context(redis_lib.cluster(tmp_path / "cluster", shards))
            environment["HET_PS"] = cluster.address
        done = horovod_lib.launch(horovod_lib.WORKER, "exact", tmp_path, **environment)
    assert done.returncode == 0, done.stdout[-4000:]
    ranks = [np.load(tmp_path / f"{rank}.npz") for rank in (0, 1)]
    assert set(ranks[0]) == set(union)
    for name, expected in union.items():
        np.testing.assert_array_equal(ranks[0][name], ranks[1][name], err_msg=name)
        if name.startswith("float/") and not name.endswith("/ids"):
            np.testing.assert_allclose(ranks[0][name], expected, rtol=1e-6, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(ranks[0][name], expected, err_msg=name)
    assert len(set(union["whole/rows"].ravel())) > 10, "the rows have moved"
