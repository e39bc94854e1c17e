"""TableStats: what TensorBoard reads is what tables say."""

import numpy as np
import pytest
import rules_lib
import tensorflow as tf

import het_tf
from het_tf.ext.monitor.python import table_stats

keras = tf.keras
TableStats = het_tf.callbacks.TableStats


def scalars(run):
    """Tag -> step -> value, of what TensorBoard shows as scalars."""
    found = {}
    for file in sorted(run.glob("events.out.tfevents.*")):
        for record in tf.data.TFRecordDataset(str(file)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                assert value.tag in found or value.metadata.plugin_data.plugin_name == "scalars"
                found.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    return found


def model(cache=None):
    ids = keras.Input((3,), dtype="int64")
    x = rules_lib.embedding(cache=cache)(ids)
    x = keras.layers.Concatenate()([x, rules_lib.embedding(name="plain", dim=2)(ids)])
    made = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(x)))
    made.compile("sgd", "mse")
    return made


def fit(made, *callbacks, **options):
    ids, y = rules_lib.data(64)
    made.fit(ids, y, batch_size=8, verbose=0, callbacks=list(callbacks), **options)


def bytes_in():
    cache = het_tf.Table("t").stats()["cache"]
    return cache["row_bytes_in"] + cache["metadata_bytes_in"]


def test_points_are_what_the_tables_say(fresh, tmp_path):
    made = model(het_tf.Cache(rows=4, staleness=2))
    callback = TableStats(tmp_path / "new" / "logs", every=3)
    fit(made, callback)  # 8 steps
    table = het_tf.Table("t")
    stats, cache = table.stats(), table.stats()["cache"]
    found = scalars(tmp_path / "new" / "logs" / "tables")
    assert all(list(points) == [3, 6, 8] for tag, points in found.items()), "and what is left at the end"
    last = {tag: points[8] for tag, points in found.items()}
    assert last["t/rows"] == stats["rows"] == 10 and last["t/bytes"] == stats["bytes"]
    assert last["t/updates"] == 8 and last["t/cache/rows"] == cache["rows"]
    steps = {3: 3, 6: 3, 8: 2}
    for tag, names in table_stats._PER_STEP.items():
        total = sum(value * steps[step] for step, value in found[f"t/{tag}"].items())
        assert total == pytest.approx(sum(cache[name] for name in names), rel=1e-6), tag
    assert all(0 < value < 1 for value in found["t/cache/hit_rate"].values())
    of_plain = {tag for tag in found if tag.startswith("plain/")}
    assert of_plain == {"plain/rows", "plain/bytes", "plain/updates"}

    fit(made, callback)  # a second fit goes on
    assert list(scalars(tmp_path / "new" / "logs" / "tables")["t/rows"]) == [3, 6, 8, 11, 14, 16]


def test_figures_of_epochs(fresh):
    ids = np.random.default_rng(0).integers(0, 30, (64, 3))
    stats, made = TableStats(log="all"), model(het_tf.Cache(rows=10, staleness=2))
    history = made.fit(ids, np.ones((64, 1)), batch_size=8, epochs=3, verbose=0, callbacks=[stats]).history
    assert history["t/updates"] == [8, 8, 8] and history["t/cache_rows"] == [10, 10, 10]
    last = het_tf.Table("t").stats()
    assert (history["t/rows"][-1], history["t/bytes"][-1]) == (last["rows"], last["bytes"])
    for name in ("hits", "reads", "miss_pull", "requests", "metadata_bytes_in"):
        assert sum(history[f"t/{name}"]) == last["cache"][name] > 0, name
    assert [epoch["t"]["hits"] for epoch in stats.epochs] == history["t/hits"]
    rates = [hits / reads for hits, reads in zip(history["t/hits"], history["t/reads"], strict=True)]
    assert history["t/hit_rate"] == rates
    for log, logged in [(None, {"t/rows", "t/hit_rate"}), (["reads", "absent"], {"t/reads"})]:
        stats = TableStats(log=log) if log else TableStats()
        history = made.fit(ids, np.ones((64, 1)), verbose=0, callbacks=[stats]).history
        assert {name for name in history if name.startswith("t/")} == logged
    assert stats.async_safe, "Keras waits for no step"


def test_norms_of_drawn_rows_use_stored_values(fresh, tmp_path):
    made = model(het_tf.Cache(rows=4, staleness=2))
    fit(made, TableStats(tmp_path, every=4, norms={"t": 1000}))
    het_tf.Table("t").flush()
    found = scalars(tmp_path / "tables")
    norms = np.linalg.norm(het_tf.Table("t").to_numpy()[1], axis=1)
    assert 0 < found["t/norm/mean"][8] <= found["t/norm/max"][8] == pytest.approx(norms.max(), rel=0.5)


def test_norms_of_named_rows_do_not_count_as_traffic(fresh, tmp_path):
    made = model(het_tf.Cache(rows=4, staleness=2))
    callback = TableStats(tmp_path, every=4, norms={"t": np.arange(5)})
    before, after = [], []
    looks = [
        keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs, to=to: to.append(bytes_in()))
        for to in (before, after)
    ]
    fit(made, looks[0], callback, looks[1])
    found = scalars(tmp_path / "tables")
    norms = np.linalg.norm(het_tf.Table("t").lookup(np.arange(5)), axis=1)
    for name, value in (("mean", norms.mean()), ("median", np.median(norms)), ("max", norms.max())):
        assert found[f"t/norm/{name}"][8] == pytest.approx(value)
    assert not any(tag.startswith("plain/norm") for tag in found)
    assert found["t/traffic/bytes_in"][8] * 4 == pytest.approx(before[7] - after[3])
    assert after[3] > before[3], "reading them takes a fetch"
    epoch = callback.epochs[0]["t"]
    assert epoch["row_bytes_in"] + epoch["metadata_bytes_in"] == before[7] - (after[3] - before[3])


def test_lags_and_rates_are_those_since_the_last_point():
    def stats(reads, hits, observed, mean, p99):
        lag = dict(observed=observed, mean_at_most=mean, p99_at_most=p99, max_at_most=9.0)
        names = {name for names in table_stats._PER_STEP.values() for name in names}
        counters = dict.fromkeys(names, 0) | dict(reads=reads, hits=hits)
        cache = {**counters, "staleness": lag, "pull_bound": {"most": 30, "of_age": 0.1}}
        return table_stats._flat({"updates": 0, "unapplied_gradients": 0, "cache": cache})

    found = table_stats._of_cache(stats(300, 200, 30, 4.0, 8.0), stats(100, 100, 10, 2.0, 7.0), 10)
    assert found["cache/hit_rate"] == 0.5 and found["reads"] == 20
    assert found["lag/mean"] == 5, "(30 * 4 - 10 * 2) / 20"
    assert found["lag/p99_so_far"] == 8


def test_ranks_write_runs_and_rank_0_the_store(played, tmp_path):
    made = het_tf.workers.distribute(model(het_tf.Cache(rows=4)))
    for me in (0, 1):
        played.me = me
        fit(made, TableStats(tmp_path, every="epoch"), epochs=2)
        found = scalars(tmp_path / f"tables-rank-{me}")
        assert ("t/rows" in found) == (me == 0) and list(found["t/cache/rows"]) == [8, 16]
    assert "het_tf.table_stats" not in played.gathered


EVERY = "give a number of steps, an integer of 1 or more, or 'epoch'"


REFUSED = [
    *[({"every": every}, EVERY) for every in (0, True, 2.5, "batch")],
    ({"log": "rows"}, "log is 'rows'; give a list"),
    ({"log_dir": None, "norms": {"t": 5}}, "log_dir is None; give a directory"),
    ({"log_dir": "file"}, r"file.* of .* cannot be written: .*; give a directory"),
    ({"norms": {"t": [0.5]}}, r"norms\['t'\] is .*give a number of rows, .*ids of some rows"),
    *[({"norms": {"t": rows}}, r"norms\['t'\] is .*give a number of rows") for rows in (0, True, 1.5)],
    ({"norms": {"u": [1]}}, r"norms names \['u'\], but the tables of the model are 't', 'plain'"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_is_refused(fresh, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=message):
        fit(model(), TableStats(**{"log_dir": tmp_path, **arguments}))
