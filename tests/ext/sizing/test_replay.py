"""A table that is replayed from a sample of its ids stands for the whole table."""

import dataclasses

import numpy as np
import pytest

from het_tf.ext.sizing.python.entries import is_kept
from het_tf.ext.sizing.python.forecast import lengthened, thinned
from het_tf.ext.sizing.python.replay import Job, Sample, replay, traffic

SPEC = {"name": "t", "dim": 8, "optimizer": {"name": "adagrad"}}
JOB = Job(workers=4, batch=64)


def zipf(samples: int, ids: int, seed: int = 1) -> Sample:
    """Ids of a Zipf law, one a sample."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, ids + 1) ** 1.05
    keys = rng.choice(ids, samples, p=weights / weights.sum()).astype(np.int64)
    return Sample(keys, np.arange(samples), samples, 1)


def kept(sample: Sample, ratio: int) -> Sample:
    chosen = is_kept(sample.keys, ratio)
    return Sample(sample.keys[chosen], sample.samples[chosen], sample.total, ratio)


def test_sample_of_an_eighth_estimates_all_ids():
    """With the unique ids of a batch, which are counted apart, for ids that are in every batch."""
    whole = zipf(65_536, 20_000)
    of_all = replay(whole, SPEC, {"rows": 2000}, JOB)
    of_part = replay(kept(whole, 8), SPEC, {"rows": 2000}, JOB, of_all.uses)
    for field in ("uses", "hits", "miss", "update", "push", "row_bytes", "key_bytes", "rows"):
        assert getattr(of_part, field) == pytest.approx(getattr(of_all, field), rel=0.15), field
    assert of_part.row_memory == pytest.approx(of_all.row_memory, rel=0.1)
    assert of_part.hits / of_part.uses == pytest.approx(of_all.hits / of_all.uses, abs=0.02)


def test_exact_steps_wait_twice_and_stale_ones_once():
    sample = zipf(16_384, 2000)
    exact = replay(sample, SPEC, {"rows": 2000, "staleness": 0}, JOB)
    stale = replay(sample, SPEC, {"rows": 2000}, JOB)
    assert exact.waits == pytest.approx(2, abs=0.1) and exact.waiting_writes == pytest.approx(1)
    assert stale.waits <= 1.1 and stale.waiting_writes == 0


def test_a_second_pass_meets_rows_that_exist():
    sample = zipf(4096, 500)
    once = replay(sample, SPEC, {"rows": 5000}, JOB)
    twice = replay(sample, SPEC, {"rows": 5000}, dataclasses.replace(JOB, passes=2))
    assert twice.miss == 0 < once.miss
    assert twice.rows == len(np.unique(sample.keys))


def test_tables_share_the_heads_of_frames():
    one = replay(zipf(16_384, 5000), SPEC, {"rows": 500}, JOB)
    alone, both = traffic([one], JOB), traffic([one, one], JOB)
    assert both.bytes - both.head_bytes == pytest.approx(2 * (alone.bytes - alone.head_bytes))
    assert alone.head_bytes < both.head_bytes < 2 * alone.head_bytes
    assert both.waits == alone.waits


def test_more_servers_are_more_frames_and_no_more_rows():
    sample = zipf(16_384, 5000)
    one, four = (replay(sample, SPEC, {"rows": 500}, Job(workers=4, batch=64, shards=n)) for n in (1, 4))
    assert four.miss == pytest.approx(one.miss, rel=0.01)
    assert four.frames["reads"] > 2 * one.frames["reads"]


def test_an_argument_that_no_cache_has_is_refused():
    with pytest.raises(ValueError, match="'float33'"):
        replay(zipf(4096, 100), SPEC, {"rows": 10, "wire": "float33"}, JOB)


def test_thinning_keeps_few_ids_and_shortens_stream():
    many, few = zipf(65_536, 60_000), zipf(65_536, 100)
    thin = thinned(many, 8000, 1000)
    assert thin.ratio > 1 and thin.total == many.total and len(thin.keys) <= 8000
    short = thinned(few, 8000, 1000)
    assert short.ratio == 1 and short.total == 8000
    assert thinned(few, 8000, 20_000).total == 20_000


def test_a_lengthened_sample_goes_on_from_its_end():
    long = lengthened(Sample(np.array([5, 6], np.int64), np.array([0, 2]), 3, 1), 8)
    assert long.total == 9
    assert long.keys.tolist() == [5, 6] * 3
    assert long.samples.tolist() == [0, 2, 3, 5, 6, 8]


def test_batches_end_where_their_samples_end():
    sample = Sample(np.arange(5, dtype=np.int64), np.array([0, 0, 3, 4, 7]), 8, 1)
    assert sample.ends(2).tolist() == [2, 3, 4, 5]
