"""Forecasts of het plan: rows, memory, time, text; and refused arguments."""

import dataclasses
import json

import numpy as np
import pytest
from cli_lib import het

import het_tf
from het_tf.ext.sizing.python import cost, show
from het_tf.ext.sizing.python.accuracy import cost as auc_cost
from het_tf.ext.sizing.python.cost import Machine, step_time
from het_tf.ext.sizing.python.forecast import Request, forecast
from het_tf.ext.sizing.python.profile import Profiler
from het_tf.ext.sizing.python.replay import Job, Replayed, Traffic

SAMPLES = 40_000
JOB = Job(workers=4, batch=128)


def feature(name, dim):
    return het_tf.FeatureConfig(het_tf.TableConfig(name, dim))


@pytest.fixture(scope="module")
def stats(tmp_path_factory):
    """A stream of two tables: users with a flat law, items with a steep one."""
    rng = np.random.default_rng(5)
    items = rng.choice(3000, (SAMPLES, 2), p=(w := 1 / np.arange(1, 3001) ** 1.1) / w.sum())
    users = rng.integers(0, 20_000, SAMPLES)
    profiler = Profiler({"user": feature("user", 8), "item": feature("item", 16)}, "clicks")
    profiler.add({"user": users, "item": items})
    return profiler.finish(tmp_path_factory.mktemp("stats"))


REQUEST = Request(job=JOB, machine=Machine(compute=0.004), entries=400_000)


@pytest.fixture(scope="module")
def plan(stats):
    """Its forecast."""
    return json.loads(json.dumps(forecast(stats, REQUEST)))


def test_rows_at_the_end_are_between_those_now_and_in_proportion(stats, plan):
    assert [table["rows_at_end"] for table in plan["tables"]] == [[of.rows, of.rows] for of in stats.tables]
    later = forecast(stats, dataclasses.replace(REQUEST, samples=3 * SAMPLES))["tables"]
    assert [table["rows_at_end"] for table in later] == [[of.rows, 3 * of.rows] for of in stats.tables]


def replayed(**fields: float) -> Replayed:
    zero = {field.name: 0 for field in dataclasses.fields(Replayed)}
    return Replayed(**{**zero, "table": "t", "parts": {}, "frames": {}, **fields})  # type: ignore[arg-type]


MOVED = Traffic(bytes_in=1000.0, bytes_out=3000.0, head_bytes=0.0, waits=1.0, waiting_writes=0.0)


def test_a_step_is_its_parts_and_updates_overlap():
    table = replayed(client_seconds=0.002, store_seconds=0.001)
    machine = Machine(rate=1e6, round_trip=0.001, compute=0.010)
    step = step_time(MOVED, [table], Job(workers=4, shards=2), machine)
    assert step.parts == pytest.approx(
        {"compute": 0.010, "worker CPU": 0.002, "server CPU": 0.002, "rows in": 0.002, "updates out": 0.006,
         "round trips": 0.001}
    )  # fmt: skip
    assert step.seconds == pytest.approx((0.017**2 + 0.006**2) ** 0.5)
    assert step.bound == "compute"
    # A writer that waits adds its updates; rows that come early overlap with the computing.
    exact = dataclasses.replace(MOVED, waiting_writes=1.0)
    step = step_time(exact, [replayed()], Job(workers=1), Machine(rate=1e6, compute=0.010))
    assert step.seconds == pytest.approx(0.010 + 0.001 + 0.003)
    machine = Machine(round_trip=0.010, compute=0.010)
    late, early = (step_time(MOVED, [replayed()], JOB, machine, early) for early in (False, True))
    assert (late.seconds, early.seconds) == pytest.approx((0.020, 0.010 * 2**0.5))


def test_a_byte_takes_time():
    assert 1e-11 < cost.byte_seconds() < 1e-7


def test_the_measured_case_that_is_nearest_is_named():
    default = {"name": "row_wise_adagrad"}
    adagrad = {**default, "params": {"decay_steps": 1}}
    of_adagrad = auc_cost({}, adagrad, 8, 1024, False)["clicks"]
    assert (of_adagrad["bound"], of_adagrad["batch"], of_adagrad["workers"]) == ("30", 1024, 8)
    assert auc_cost({}, adagrad, 40, 128, False)["clicks"]["workers"] == 32
    assert auc_cost({}, adagrad, 8, 128, True)["clicks"]["planned"] is True
    assert auc_cost({}, default, 8, 128, False)["rare"]["part"] == "packages"
    assert auc_cost({"staleness": "synchronous"}, {"name": "adam"}, 8, 128, False)["any"]["auc"] == 0


def test_what_was_not_measured_has_no_figure():
    """Would see the figure of another rule, whose bounds are others."""
    assert auc_cost({"staleness": 77}, {"name": "row_wise_adagrad"}, 8, 128, False) == {}
    assert auc_cost({}, {"name": "row_wise_adagrad", "params": {"decay_steps": 7}}, 8, 128, False) == {}
    assert auc_cost({}, {"name": "rmsprop"}, 8, 128, False) == {}
    assert set(auc_cost({}, {"name": "ftrl"}, 8, 128, False)) == {"clicks"}


def test_caches_get_a_tenth_of_rows_memory(plan, stats):
    user, item = plan["tables"]
    least = 4 * (8 * user["rows"] + 16 * item["rows"])  # without clocks and an index
    assert 0.05 * least < plan["forecast"]["cache_bytes"] <= 0.3 * least
    assert plan["not_filled"] == []
    assert item["forecast"]["hit_rate"] > user["forecast"]["hit_rate"]
    assert item["cache_rows"] / item["rows"] > user["cache_rows"] / user["rows"]
    assert user["forecast"]["uses"] == pytest.approx(128, rel=0.02)
    assert stats.samples == SAMPLES


def test_hot_rows_cover_nine_tenths_of_uses(plan):
    user, item = plan["tables"]
    assert item["hot_rows"] < item["rows"] / 2 and user["hot_rows"] > user["rows"] / 2


def test_caches_that_the_sample_cannot_fill_are_named(tmp_path):
    profiler = Profiler({"user": feature("user", 8)}, "few")
    profiler.add({"user": np.random.default_rng(1).integers(0, 1 << 40, 4096)})
    request = Request(job=JOB, cache_bytes=300_000)
    assert forecast(profiler.finish(tmp_path), request)["not_filled"] == ["user"]


def test_servers_that_are_too_small_say_what_would_do(stats):
    more = r"no plan fits: a server needs [\d,]+ bytes at the end, [\d,]+ more"
    with pytest.raises(ValueError, match=more):
        forecast(stats, Request(job=JOB, ram=100_000, entries=200_000))


def test_caches_of_no_byte_are_legal_and_hit_nothing(stats):
    none = forecast(stats, Request(job=JOB, cache_bytes=0, entries=200_000))["forecast"]
    assert none["hit_rate"] == 0 and none["cache_bytes"] == 0


def test_stream_too_short_for_job_is_refused(stats):
    with pytest.raises(ValueError, match=r"which are 0 steps of 64 workers x 1024"):
        forecast(stats, Request(job=Job(workers=64, batch=1024)))


def test_classes_of_bytes_sum_up(plan):
    for table in plan["tables"]:
        of = table["forecast"]
        classes = sum(of[f"{kind}_bytes"] for kind in ("miss", "update", "push", "evict"))
        assert classes == pytest.approx(of["bytes"])
    rows = sum(table["forecast"]["bytes"] for table in plan["tables"])
    assert plan["forecast"]["bytes"] == pytest.approx(rows + plan["forecast"]["head_bytes"])


def test_a_plan_is_text_of_80_columns(plan):
    long = {**plan["tables"][0], "name": "a_table_of_a_very_long_name"}
    lines = show.lines({**plan, "tables": [*plan["tables"], long], "not_filled": ["user"]}, "x" * 70, 12345)
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for part in ("item", "a_table_of..", "miss", "server CPU", "The sample could not fill", "AUC"):
        assert part in text


def test_the_command_prints_a_plan(stats):
    job = ("--workers", 4, "--batch", 128, "--link", "10Gb", "--rtt", "0.2ms", "--ram", "64GB")
    plan = json.loads(het("plan", "show", stats.directory, *job, "--json").out)
    assert (plan["workers"], plan["servers"]["maxmemory"]) == (4, 64 * 10**9)
    assert "A step takes" in het("plan", "show", stats.directory, *job).out


BAD_ARGUMENTS = [
    (["--link", "10"], "not a rate in bits a second, such as 10Gb"),
    (["--rtt", "5"], "not a time, such as 0.2ms"),
    (["--link", "10GB"], "'10GB' is not a rate in bits a second, such as 10Gb (B would be bytes)"),
    (["--ram", "much"], "not a number of bytes with its unit, such as 64GB (10^9 bytes a GB), 64GiB"),
    (["--ram", "64"], "'64' is not a number of bytes with its unit, such as 64GB"),
    (["--cache", "1.2.3GB"], "'1.2.3GB' is not a number of bytes"),
    (["--batch", "0"], "not a whole number of 1 or more"),
]


@pytest.mark.parametrize(("words", "said"), BAD_ARGUMENTS)
def test_arguments_that_say_nothing_are_refused(stats, words, said):
    assert said in het("plan", "show", stats.directory, *words, status=2).err
