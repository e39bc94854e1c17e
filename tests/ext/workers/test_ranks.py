"""Two ranks, of het_tf and of Horovod: they train, save, restore and export; many cases in one launch."""

from __future__ import annotations

import horovod_lib
import numpy as np
import pytest
import redis_lib
import saving_lib
import tensorflow as tf
from checkpoint_lib import fit, model, tables, weights
from floats_lib import MODEL, assert_close

import het_tf
from het_tf import checkpoint

pytestmark = [pytest.mark.slow, horovod_lib.RANKS]


@pytest.fixture(scope="module", params=horovod_lib.BACKENDS)
def job(request, tmp_path_factory):
    """The launch, and the directory of its files."""
    place = tmp_path_factory.mktemp("ranks")
    cases = "ways begin layers metrics loops fail export publish exact save keras_files orders end"
    bits = ["bits"] if request.param == "horovod" else []
    ranks = horovod_lib.Ranks(place, *bits, *cases.split(), backend=request.param, TMPDIR=str(place))
    yield ranks, place
    ranks.end()


@pytest.mark.parametrize("case", ["ways", "begin", "layers", "metrics", "loops", "fail", "export", "publish"])
def test_both_ranks_are_through(job, case):
    """The assertions of a case are in the workers of tests/lib."""
    job[0].wait(case)


@pytest.mark.parametrize("job", ["horovod"], indirect=True)
def test_ranks_of_het_tf_give_the_bits_of_horovod(job):
    """Horovod's sums and those of a mesh of the same two ranks, in one process each."""
    job[0].wait("bits")


@pytest.fixture(scope="module")
def union():
    import exact_worker

    het_tf.reset()
    yield exact_worker.union(2)
    het_tf.reset()


def equals_the_union(place, union):
    found = [np.load(place / f"{rank}.npz") for rank in (0, 1)]
    assert set(found[0]) <= set(union)
    for name in found[0]:
        expected = union[name]
        np.testing.assert_array_equal(found[0][name], found[1][name], err_msg=name)
        if name.startswith("float/") and not name.endswith("/ids"):
            assert_close(found[0][name], expected, message=name)
        else:
            np.testing.assert_array_equal(found[0][name], expected, err_msg=name)
    assert len(set(union["placed/rows"].ravel())) > 10, "the rows have moved"


def test_two_ranks_equal_one_process_on_the_union_batch(job, union):
    ranks, place = job
    ranks.wait("exact")
    equals_the_union(place / "exact", union)


@pytest.mark.long
def test_two_ranks_on_two_shards_equal_one_process(union, tmp_path):
    with redis_lib.cluster(tmp_path / "cluster", 2) as cluster:
        ranks = horovod_lib.Ranks(tmp_path, "more_exact", "more_ways", HET_PS=cluster.address)
        ranks.wait("more_exact")
        ranks.wait("more_ways")
        assert ranks.end() == 0
    equals_the_union(tmp_path / "exact", union)


def test_one_process_restores_checkpoint_of_two_ranks(job, fresh):
    ranks, place = job
    ranks.wait("save")
    made = model(whole=True)
    fit(made, 0, 1)
    found = checkpoint.restore(place / "c", made)
    assert found.step == 7 and found.base is not None and found.partitions == 64
    later = np.load(place / "later0.npz")
    table = tables()["item"]
    for name in ("ids", "clocks", "counts", "rows"):
        np.testing.assert_array_equal(table[name], later[name])
    for number, one in enumerate(weights(made)):
        np.testing.assert_array_equal(one, later[f"w{number}"])


@pytest.mark.long
def test_three_ranks_restore_checkpoint_of_one_process(job, fresh, tmp_path):
    ranks, place = job
    ranks.wait("save")
    made = model(whole=True)
    for step in (4, 7):
        checkpoint.restore(place / "c" / f"ckpt-{step:08d}", made)
        checkpoint.save(tmp_path / "c", made, step=step)
    for name in ("later0.npz", "saved0.npz"):
        (tmp_path / name).write_bytes((place / name).read_bytes())
    three = horovod_lib.Ranks(tmp_path, "load", ranks=3)
    three.wait("load")
    assert three.end() == 0


def test_files_of_keras_have_what_both_ranks_have_trained(job, fresh):
    ranks, place = job
    ranks.wait("keras_files")
    found = np.load(place / "keras_files.npz")
    made = saving_lib.make_model("sgd")
    for name in ("x.weights.h5", "x.keras"):
        tf.keras.Model(made.input, made.output).load_weights(str(place / name))
        restored = saving_lib.everything()
        for column in ("ids", "clocks", "counts", "last_used", "rows"):
            np.testing.assert_array_equal(restored[column], found[column])
        assert_close(saving_lib.predictions(made), found["predictions"], MODEL)


def test_placed_stream_in_two_orders_is_refused(job):
    job[0].wait("orders")


def test_ranks_end_with_shortest_stream_and_warn_once(job):
    """Ranks with more batches would wait for ever."""
    job[0].wait("end")
    assert job[0].out.count("the data of rank 0 ended first, after 7 batches") == 1


def test_the_job_leaves_nothing_behind(job):
    ranks, place = job
    assert ranks.end() == 0, ranks.out[-3000:]
    assert all(f"rank {rank} is done" in ranks.out for rank in (0, 1))
    assert ranks.out.count("runs the parameter server of this job at unix://") == 1
    assert "keeps the parameter server" not in ranks.out, "rank 0 should not wait"
    assert not horovod_lib.servers_below(place) and not list(place.glob("het_ps_*"))
