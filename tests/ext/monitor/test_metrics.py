"""The declared metrics: their names, and who uses them."""

import json
import re
import runpy

import pytest
from tools_lib import ROOT

pytest.importorskip("prometheus_client", reason="pip install -r requirements/dev.txt")

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from het_tf.ext.monitor.python.web.collector import Figures, Histogram, text
from het_tf.ext.monitor.python.web.history import History
from het_tf.ext.monitor.python.web.metrics import LABELS, METRICS

DEPLOY = ROOT / "examples/deploy"
UNITS = ("rows", "bytes", "seconds", "ticks", "partitions", "frames", "info", "total", "workers", "faults",
         "version", "up")  # fmt: skip


def used(text: str) -> set[str]:
    """The metrics that queries name, without the suffixes of a histogram's series."""
    names = set(re.findall(r"\bhet_\w+", text))
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names} - {"het_tf"}


def test_names_follow_the_conventions():
    """A counter without `_total`, or a label in a name, which Prometheus' own checks would refuse."""
    for name, metric in METRICS.items():
        assert re.fullmatch(r"het(_[a-z]+)+", name), name
        assert (metric.kind == "counter") == name.endswith("_total"), name
        assert (metric.kind == "info") == name.endswith("_info"), name
        assert name.rsplit("_", 1)[1] in UNITS, name
        assert metric.of in LABELS and metric.help.endswith("."), name
        assert (not isinstance(metric.field, str)) == bool(metric.by), name


def test_rules_and_board_use_declared_names():
    """An alert on a name that no exporter has never fires."""
    board = (DEPLOY / "board.json").read_text()
    rules = [line for line in (DEPLOY / "alerts.yaml").read_text().splitlines() if "summary" not in line]
    for queries in (board, "\n".join(rules)):
        names = used(queries)
        assert len(names) > 8 and names <= METRICS.keys(), names - METRICS.keys()
    assert board == runpy.run_path(str(DEPLOY / "board.py"))["text"]()
    labels = {label for metric in METRICS.values() for label in metric.labels} | {"le"}
    assert set(", ".join(re.findall(r"by \((.*?)\)", board)).split(", ")) <= labels


def test_rules_are_rules():
    yaml = pytest.importorskip("yaml", reason="there is no YAML parser")
    (group,) = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "annotations"} and rule["annotations"]["summary"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"]) >= 10


def test_the_manual_lists_every_metric():
    lines = (ROOT / "docs/monitoring.md").read_text().splitlines()
    for name, metric in METRICS.items():
        assert f"| `{name}` | {', '.join(metric.labels)} | {metric.help} |" in lines, name


def cache(rank: str, hits: int, reads: int, lags: list[int]) -> Figures:
    counted = dict.fromkeys(("row_bytes_in", "row_bytes_out", "metadata_bytes_in", "metadata_bytes_out"), 0)
    lag = Histogram((0.0, 1.0, 3.0, float("inf")), lags, 0.0)
    steps = {"updates": reads // 10, "bound": 2, "lag": lag}
    counted |= {"hits": hits, "reads": reads, "row_bytes_in": 10 * reads}
    return Figures(("t", rank), counted | steps)


def sample(seen: float, *caches: Figures, pid: int = 1) -> dict[str, list[Figures]]:
    worker = Figures(("0",), {"seen": seen, "host": "h", "pid": pid})
    phase = Figures(("0", "wait"), {"length": Histogram((1.0,), [1], caches[0].values["updates"] * 0.002)})
    table = Figures(("t",), {"rows": 7})
    return {"cache": [*caches], "worker": [worker], "phase": [phase], "table": [table], "follower": []}


def test_history_has_growth_between_reports():
    """A rate over the samples' times, while the reports between them are further apart or nearer."""
    history = History()
    history.add(100.0, sample(4.0, cache("0", 10, 100, [5, 0, 0, 0])))
    history.add(110.0, sample(1.0, cache("0", 160, 300, [5, 96, 4, 0])))
    first, point = history.points
    json.dumps(list(history.points), allow_nan=False)
    assert first["hit_rate"] is None and first["row_bytes_in"] == 0
    assert point["hit_rate"] == 150 / 200 and point["rows"] == 7
    assert point["row_bytes_in"] == pytest.approx(2000 / 13), "reports of 96 s and 109 s"
    assert point["lag_p99"] == 3.0 and point["bound"] == 2
    assert point["step"] == pytest.approx(13 / 20) and point["parts"] == {"wait": pytest.approx(0.002)}
    assert history.now["ranks"]["0"]["hit_rate"] == history.now["tables"]["t"]["hit_rate"] == 150 / 200
    # The same report again, and then one of a process that has begun anew, with smaller counters.
    history.add(120.0, sample(11.0, cache("0", 160, 300, [5, 96, 4, 0])))
    history.add(130.0, sample(1.0, cache("0", 1, 2, [1, 0, 0, 0]), pid=2))
    assert [point["hit_rate"] for point in list(history.points)[2:]] == [None, None]
    assert list(history.points)[3]["lag_p99"] is None


def test_a_histogram_adds_up():
    """Buckets of OpenMetrics count all smaller values."""
    of_all = {name: [] for name in LABELS} | {"cache": [cache("0", 0, 0, [5, 96, 4, 1])]}
    families = {one.name: one for one in text_string_to_metric_families(text(of_all))}
    samples = families["het_row_lag_ticks"].samples
    buckets = {one.labels["le"]: one.value for one in samples if one.name.endswith("_bucket")}
    assert list(buckets.values()) == [5, 101, 105, 106] and "+Inf" in buckets


def test_any_name_may_be_a_label():
    """A name with a quote would end the label, and the scrape."""
    name = 'a "b" \\n \\ \n ü,{}='
    of_all = {of: [] for of in LABELS} | {"table": [Figures((name,), {"rows": 3, "bytes": 4})]}
    families = {one.name: one for one in text_string_to_metric_families(text(of_all))}
    (sample,) = families["het_table_rows"].samples
    assert sample.labels == {"table": name} and sample.value == 3
