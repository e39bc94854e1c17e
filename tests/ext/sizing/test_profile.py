"""Counts of a profile: against plain Python, for any batches, in bounded memory."""

import collections
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import het_tf
from het_tf.ext.sizing.python import entries as stream
from het_tf.ext.sizing.python import profile as profile_lib
from het_tf.ext.sizing.python.counts import Head, quantiles
from het_tf.ext.sizing.python.entries import Entries, is_kept, unique_of
from het_tf.ext.sizing.python.profile import Profiler
from het_tf.ext.sizing.python.stats import Stats


def feature(name: str, dim: int = 4, padding_id: int | None = None) -> het_tf.FeatureConfig:
    return het_tf.FeatureConfig(het_tf.TableConfig(name, dim), padding_id=padding_id)


RNG = np.random.default_rng(3)
SAMPLES = 3000
USERS = RNG.zipf(1.3, SAMPLES) % 700
ITEMS = RNG.zipf(1.2, (SAMPLES, 3)) % 900 - 1  # -1 is padding
LENGTHS = RNG.integers(0, 5, SAMPLES)
HISTORY = RNG.zipf(1.2, LENGTHS.sum()) % 900
ENDS = np.cumsum(LENGTHS)
ITEM = het_tf.TableConfig("item", 4)
FEATURES = {
    "user": feature("user", 8),
    "item": het_tf.FeatureConfig(ITEM, padding_id=-1),
    "history": het_tf.FeatureConfig(ITEM),
}


def batch(begin: int, end: int) -> dict[str, object]:
    first = ENDS[begin - 1] if begin else 0
    history = HISTORY[first : ENDS[end - 1]], LENGTHS[begin:end]
    return {"user": USERS[begin:end].astype(np.int32), "item": ITEMS[begin:end], "history": history}


def profiled(out: Path, sizes: list[int], **arguments: object) -> Stats:
    """A profile of batches of these sizes, whose arrays change once they are added."""
    profiler = Profiler(FEATURES, "test", **arguments)
    begin = 0
    for size in sizes:
        given = batch(begin, begin + size)
        arrays = [given["user"], given["item"].copy(), *(of.copy() for of in given["history"])]
        profiler.add({"user": arrays[0], "item": arrays[1], "history": tuple(arrays[2:])})
        for array in arrays:
            array[:] = 5
        begin += size
    return profiler.finish(out)


def profile_of(out: Path, limit: int, **ids: np.ndarray) -> Stats:
    """A profile of one batch, of tables that are named like their features."""
    profiler = Profiler({name: feature(name) for name in ids}, limit=limit)
    profiler.add(ids)
    return profiler.finish(out)


def stream_of_items() -> list[tuple[int, int]]:
    """Sample and id of each use of the table "item", in order."""
    found = []
    for sample in range(SAMPLES):
        found += [(sample, one) for one in ITEMS[sample] if one != -1]
        found += [(sample, one) for one in HISTORY[ENDS[sample] - LENGTHS[sample] : ENDS[sample]]]
    return found


def test_small_streams_are_counted_exactly(tmp_path):
    stats = profiled(tmp_path, [1000, 2000])
    uses = stream_of_items()
    counts = collections.Counter(one for _, one in uses)
    user, item = stats.tables
    assert (stats.samples, stats.source) == (SAMPLES, "test")
    assert [(one["name"], one["table"]) for one in stats.features] == [
        ("user", "user"), ("item", "item"), ("history", "item"),
    ]  # fmt: skip
    assert stats.features[1]["ids_per_sample"] == np.mean(np.sum(ITEMS != -1, axis=1))
    assert stats.features[2]["ids_per_sample"] == LENGTHS.mean()
    assert (user.name, user.dim, user.uses, user.rows) == ("user", 8, SAMPLES, len(set(USERS)))
    assert (item.uses, item.rows, item.rows_exact) == (len(uses), len(counts), True)
    assert (item.ratio, item.until) == (1, SAMPLES)
    keys, ids, samples = stats.keys(1)
    assert (keys.dtype, ids.dtype, samples.dtype) == (np.int64, np.uint32, np.uint32)
    assert list(zip(samples, keys[ids], strict=True)) == uses
    assert len(keys) == len(counts) and item.entries == len(uses)


def test_figures_of_a_table_are_those_of_its_stream(tmp_path):
    item = profiled(tmp_path, [SAMPLES]).tables[1]
    uses = stream_of_items()
    for size, unique in item.unique:
        batches = {(sample // size, one) for sample, one in uses if sample < 2048}
        assert unique == len(batches) / (2048 // size)
    assert [size for size, _ in item.unique] == [1 << j for j in range(12)]
    counts = np.cumsum(sorted(collections.Counter(one for _, one in uses).values(), reverse=True))
    shares = [0.0, *counts / counts[-1]]
    assert len(item.quantiles) == 64 and item.quantiles[-1] == [1.0, 1.0]
    for rows, share in item.quantiles:
        assert share == pytest.approx(np.interp(rows * item.rows, range(item.rows + 1), shares))


@pytest.mark.parametrize("limit", [2000, 100_000])
def test_batches_of_any_size_make_the_same_files(tmp_path, limit, monkeypatch):
    """And up to the most samples. Blocks of 400 ids: a profile that counts what comes together differs when
    it makes room.
    """
    monkeypatch.setattr(profile_lib, "_IDS", 400)
    monkeypatch.setattr(profile_lib, "_HEAD", 30)
    monkeypatch.setattr(stream, "FEWEST", 20)
    sizes = {"one": [SAMPLES], "many": [7] * (SAMPLES // 7) + [SAMPLES % 7], "few": [1, 999, 2, 1998]}
    for name, of in sizes.items():
        profiled(tmp_path / name, of, limit=limit)
    cut = Profiler(FEATURES, "test", most=1500, limit=limit)
    for begin in (0, 1000, 2000):
        cut.add(batch(begin, begin + 1000))
        assert cut.full == (begin > 0)
    cut.finish(tmp_path / "cut")
    profiled(tmp_path / "first", [1500], limit=limit)
    for file in ("stats.json", "keys.npz"):
        of = {path.name: (path / file).read_bytes() for path in tmp_path.iterdir()}
        assert of["one"] == of["many"] == of["few"] and of["cut"] == of["first"]


def zipf(samples: int, seed: int) -> np.ndarray:
    """Ids of a stream whose tail goes on."""
    return np.random.default_rng(seed).zipf(1.2, samples) * 0x9E3779B97F4A7C1 % (1 << 61)


def test_table_above_limit_keeps_ids_by_hash(tmp_path, monkeypatch):
    """Twenty streams of other ids: estimates are right on average, and scatter as a sample's do."""
    monkeypatch.setattr(profile_lib, "_HEAD", 100)
    samples, rows_off, sigmas = 20_000, [], []
    for seed in range(20):
        ids = zipf(samples, seed) + seed
        stats = profile_of(tmp_path, samples // 3, a=ids)
        (table,) = stats.tables
        keys, numbers, of = stats.keys(0)
        kept = is_kept(ids, table.ratio)
        assert table.ratio > 1 and not table.rows_exact and table.until == samples
        assert np.array_equal(keys[numbers], ids[kept]) and np.array_equal(of, np.flatnonzero(kept))
        assert table.rows == table.ratio * len(keys) and table.uses == samples
        rows = len(np.unique(ids))
        rows_off.append(table.rows - rows)
        sigmas.append(np.sqrt(rows * (table.ratio - 1)))
    assert abs(np.mean(rows_off)) < 4 * np.mean(sigmas) / np.sqrt(20)
    assert np.max(np.abs(np.divide(rows_off, sigmas))) < 4


def test_the_tail_of_quantiles_is_estimated_by_the_sample():
    counts = np.unique(zipf(60_000, 1), return_counts=True)[1]
    tail = counts[np.argsort(counts, kind="stable")[:-200]][::8]
    exact = np.array(quantiles(counts, np.zeros(0, np.int32), 1, 60_000))
    assert np.abs(exact - np.array(quantiles(np.sort(counts)[-200:], tail, 8, 60_000))).max() < 0.03


def test_table_of_few_ids_keeps_half_its_stream(tmp_path):
    """Hashes might keep none or all of five ids; and a table of many beside it is halved by ids."""
    few, many = RNG.integers(0, 5, 40_000), RNG.integers(0, 1 << 40, 40_000)
    few[-1] = 6  # which is in no entry
    stats = profile_of(tmp_path, 20_000, few=few, many=many)
    assert max(table.entries for table in stats.tables) <= 20_000
    table = stats.tables[0]
    keys, ids, samples = stats.keys(0)
    assert (table.ratio, table.rows, table.rows_exact) == (1, 6, True) and table.until < 40_000
    assert np.array_equal(keys[ids], few[: table.until])
    assert np.array_equal(samples, np.arange(table.until))
    assert table.quantiles[-1] == [1.0, 1.0]
    assert stats.tables[1].ratio > 1 and stats.tables[1].until == 40_000


def test_unique_ids_are_those_before_any_was_left_out():
    """The number of a batch's unique ids is not one of the sample's."""
    ids, held = zipf(5000, 2), Entries(1, limit=4500)
    for begin in range(0, 5000, 500):
        held.add(0, ids[begin : begin + 500], np.arange(begin, begin + 500))
        held.whole = begin + 500
    assert held.ratios[0] > 1
    assert held.unique[0][-1] == [4096, len(np.unique(ids[:4096]))]
    assert held.unique[0] == unique_of(ids[:4096].copy(), np.arange(4096, dtype=np.uint32), 4096)
    few = Entries(1, limit=1000)  # no batch has all of its ids
    few.add(0, ids[:3000], np.arange(3000))
    few.whole = 3000
    few.count_unique()
    assert few.unique == [[]]


def test_samples_beyond_32_bits():
    held = Entries(1, limit=100)
    held.add(0, np.arange(50), np.arange(50))
    held.add(0, np.arange(50, 60), np.arange(10) + (1 << 32) - 5)
    ((ids, samples),) = held.take()
    assert samples.dtype == np.int64 and samples[-1] == (1 << 32) + 4
    assert np.array_equal(ids, np.arange(60))
    wide = Entries(1, limit=1000)
    wide.add(0, np.zeros(900, np.int64), np.arange(900) + (1 << 32))
    assert len(next(wide.take())[0]) <= 800  # of 20 bytes


def test_head_is_exact_until_ids_are_dropped():
    """New ids get a chance to stay, and no count is above the truth."""
    head, truth, rng = Head(50), collections.Counter(), np.random.default_rng(0)
    for turn in range(60):
        often = [np.repeat(np.arange(20), 30), np.full(100 * (turn >= 30), 7777777)]
        block = np.concatenate([*often, rng.integers(1000 * turn, 1000 * turn + 900, 300)])
        head.add(block)
        truth.update(block.tolist())
    found = dict(zip(head.keys.tolist(), head.uses.tolist(), strict=True))
    assert len(found) <= 100 and head.missed > 0
    assert all(found[one] == truth[one] for one in range(20))
    assert truth[7777777] - head.missed <= found[7777777] <= truth[7777777]
    assert all(uses <= truth[one] for one, uses in found.items())


def test_late_frequent_id_enters_head():
    """Fifty ids of long ago have more uses than it ever has between two times that others are left out."""
    head = Head(50)
    for _ in range(10):
        head.add(np.repeat(np.arange(50), 20))
    for turn in range(30):
        head.add(np.concatenate([np.full(20, 77), np.arange(300) + 1000 * (turn + 1)]))
    assert 77 in head.keys and 200 <= head.uses[head.keys == 77] <= 600


def test_the_hash_is_even_whatever_the_ids():
    for ids in (np.arange(1 << 16), np.arange(1 << 16) << 20, -np.arange(1 << 16) * 1000003):
        for ratio in (2, 8, 64):
            assert abs(is_kept(ids, ratio).mean() * ratio - 1) < 4 * np.sqrt(ratio / (1 << 16))


MEMORY = r"""
import sys, tracemalloc
import numpy as np
import het_tf
from het_tf.ext.sizing.python.profile import Profiler

features = {f"C{n}": het_tf.FeatureConfig(het_tf.TableConfig(f"C{n}", 4)) for n in range(int(sys.argv[1]))}
tracemalloc.start()
fields, rng = list(features), np.random.default_rng(0)
profiler = Profiler(features)
for turn in range(int(sys.argv[2])):
    profiler.add({name: rng.integers(0, 1 << 60, 8192) for name in fields})
profiler.finish(sys.argv[3])
print(tracemalloc.get_traced_memory()[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("fields", "turns"), [(26, 16), pytest.param(1, 1000, marks=pytest.mark.long)])
def test_a_long_stream_takes_no_more_than_150_MB(tmp_path, fields, turns):
    """All ids differ, which is the worst: each has an entry, a key, and is new to the head.

    What Python and NumPy ask for is counted; what the process takes for it is the allocator's to decide.
    """
    words = [sys.executable, "-c", MEMORY, str(fields), str(turns), str(tmp_path)]
    assert int(subprocess.run(words, capture_output=True, text=True, check=True).stdout) <= 150e6
    assert (tmp_path / "keys.npz").stat().st_size <= 64e6


# --- what is refused --------------------------------------------------------------------------------------


BAD_BATCHES = [
    ({"user": np.array([None] * 10)}, "'user': ids hold None"),
    ({"user": np.ones(9, np.int64)}, "different numbers of samples: {'user': 9"),
    ({"item": np.ones((10, 2, 2), np.int64)}, r"'item': ids have shape \(10, 2, 2\)"),
    ({"history": (np.arange(4), np.ones(10, np.int64))}, r"'history'.*counts \(10,\).*sum up to m"),
    ({"history": (np.arange(2), np.array([3, -1] + [0] * 8))}, "'history'.*sum up to m"),
    ({"history": (np.arange(10), np.ones(10))}, "'history': counts are float64"),
    ({"history": None}, "'history' is missing; the batch has"),
]


@pytest.mark.parametrize(("change", "text"), BAD_BATCHES)
def test_a_batch_that_does_not_fit_changes_nothing(tmp_path, change, text):
    profiler = Profiler(FEATURES)
    profiler.add(batch(0, 1000))
    with pytest.raises(ValueError, match=text):
        profiler.add({name: one for name, one in {**batch(1000, 1010), **change}.items() if one is not None})
    assert profiler.samples == 1000
    profiler.add(batch(1000, SAMPLES))
    assert profiler.finish(tmp_path / "one").tables == profiled(tmp_path / "other", [SAMPLES]).tables


def test_arguments_of_a_profiler(tmp_path):
    with pytest.raises(ValueError, match="one or more"):
        Profiler({})
    for most in (0, 1.5, True):
        with pytest.raises(ValueError, match=f"samples is {most}; give an integer of 1 or more"):
            Profiler(FEATURES, most=most)
    with pytest.raises(ValueError, match="clicks has no samples"):
        Profiler(FEATURES, "clicks").finish(tmp_path)
    padding = Profiler({"a": feature("a", padding_id=0)})
    padding.add({"a": np.zeros(3, np.int64)})
    with pytest.raises(ValueError, match="no ids but padding"):
        padding.finish(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_table_without_ids_is_there_beside_others(tmp_path):
    profiler = Profiler({"a": feature("a", padding_id=0), "b": feature("b")})
    profiler.add({"a": np.zeros(3, np.int64), "b": np.arange(3)})
    stats = profiler.finish(tmp_path)
    assert (stats.tables[0].uses, stats.tables[0].rows) == (0, 0)
    assert [len(one) for one in stats.keys(0)] == [0, 0, 0]


NO_STATS = r"stats.json is damaged \(.*; make it again with het plan profile"


BAD_FILES = [
    ("stats.json", lambda text: text[:100], NO_STATS),
    ("stats.json", lambda text: b"[]", NO_STATS),
    ("stats.json", lambda text: b"{}", NO_STATS),
    ("stats.json", lambda text: text.replace(b'"uses"', b'"used"'), NO_STATS),
    ("stats.json", lambda text: text.replace(b'"sha256"', b'"md5"'), NO_STATS),
    ("stats.json", lambda text: text.replace(b'"version": 3', b'"version": 1'),
     "version 1, not 'het_tf stats', version 3; make it again with"),
    ("stats.json", lambda text: text.replace(b"het_tf stats", b"plan"), "is 'plan', version 3, not"),
    ("keys.npz", lambda text: text[:-1], r"keys\.npz is damaged, or does not belong to stats\.json"),
    ("keys.npz", None, r"has no keys\.npz"),
    ("stats.json", None, r"has no stats\.json; make it with het plan profile --out"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "change", "text"), BAD_FILES)
def test_stats_are_read_as_they_were_written_or_not_at_all(tmp_path, file, change, text):
    written = profiled(tmp_path, [SAMPLES])
    assert Stats.load(str(tmp_path)) == written
    if change is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(change((tmp_path / file).read_bytes()))
    with pytest.raises(ValueError, match=text):
        Stats.load(tmp_path)


def test_a_stream_that_does_not_fit_its_stats(tmp_path):
    stats = profiled(tmp_path, [SAMPLES])
    arrays = dict(np.load(tmp_path / "keys.npz"))
    ids, samples = arrays["t0_ids"], arrays["t0_samples"]
    changed = {
        "entries": {"t0_ids": ids[:-1]},
        "number 4294967295 of": {"t0_ids": np.concatenate([ids[:-1], [2**32 - 1]]).astype(np.uint32)},
        "do not ascend below": {"t0_samples": samples[::-1].copy()},
    }
    for text, change in changed.items():
        np.savez(tmp_path / "keys.npz", **{**arrays, **change})
        with pytest.raises(ValueError, match=f"'user' has .*{text}.*make it again"):
            stats.keys(0)
    np.savez(tmp_path / "keys.npz", t1_keys=ids)
    with pytest.raises(ValueError, match="has no stream of table 'user'"):
        stats.keys(0)
    cut = (tmp_path / "keys.npz").read_bytes()[:-9]
    for content in (b"no zip", cut):
        (tmp_path / "keys.npz").write_bytes(content)
        with pytest.raises(ValueError, match="has no stream of table 'user'"):
            stats.keys(0)
