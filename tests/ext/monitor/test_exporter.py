"""`het ps exporter` of a job that trains and is served: metrics, the page, its token, refusals."""

import base64
import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import redis_lib
from followed_lib import IDS, Followed
from het_ps_lib import ask, het_ps, picture
from launch_lib import until

import het_tf

pytest.importorskip("prometheus_client", reason="pip install -r requirements/dev.txt")

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from het_tf.ext.monitor.python.web.metrics import METRICS
from het_tf.ext.ps.python import reports
from het_tf.python.session import reporting

pytestmark = redis_lib.MARKS
TOKEN = "a token of the test"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def get(url: str, user: str = "", token: str = "", **headers: str) -> tuple[int, str]:
    """The status and the text of an answer; with a `user` the login is that of a browser."""
    if user:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{token}".encode()).decode()
    elif token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@contextlib.contextmanager
def exporting(server: redis_lib.Server, log: Path, *words: str) -> Iterator[str]:
    """The command, until the block ends. Yields the page's address."""
    command = [sys.executable, "-m", "het_tf", "ps", "exporter", "--ps", server.address,
               "--listen", "127.0.0.1:0", *words]  # fmt: skip
    with log.open("w") as file, subprocess.Popen(command, stderr=file) as process:
        try:
            yield until(lambda: re.search(r"(http://\S+/) shows", log.read_text()))[1]
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0 and "ended" in log.read_text()
        finally:
            process.kill()


def train(steps: int = 5) -> None:
    """Steps of a cached table, and a report of them."""
    layer = redis_lib.counter(rows=50, staleness=2)
    for step in range(steps):
        redis_lib.count(layer, np.arange(step, step + 60), np.zeros(100))
    het_tf.flush()
    reporting._reporter.write()


def test_a_live_job_has_every_metric(server, tmp_path):
    """A declared metric whose field nobody counts, or a counted one that nobody declares."""
    job = Followed(server, tmp_path / "served")
    limited = het_tf.TableConfig("limited", 2, max_rows=1000)
    het_tf.keras.EmbeddingCollection({"id": het_tf.FeatureConfig(limited)})({"id": np.arange(3)})
    train()
    with job.follower(), exporting(server, tmp_path / "log") as url:
        text = until(lambda: _with_follower(url))
        families = {one.name: one for one in text_string_to_metric_families(text)}
        for name, metric in METRICS.items():
            family = families[name.removesuffix("_total").removesuffix("_info")]
            assert family.type == metric.kind and family.documentation == metric.help, name
            for one in family.samples:
                assert set(one.labels) - {"le", "version", "host"} == set(metric.labels), name
        samples = [sample for one in families.values() for sample in one.samples]
        stats = het_tf.Table("t").stats()
        cached = stats["cache"]
        assert value(samples, "het_table_rows", table="t") == stats["rows"] == 64
        of_cache = {"table": "t", "rank": "0"}
        assert value(samples, "het_cache_reads_total", **of_cache) == cached["reads"] == 300
        assert value(samples, "het_row_lag_ticks_count", **of_cache) == cached["staleness"]["observed"]
        assert sum(cached["staleness"]["lags"]) == cached["staleness"]["observed"] > 0
        assert value(samples, "het_staleness_bound_ticks", **of_cache) == 2
        assert value(samples, "het_table_limit_rows", table="limited") == 1000
        assert value(samples, "het_workers") == 1
        assert value(samples, "het_server_up", server=str(server.socket)) == 1
        assert value(samples, "het_step_seconds_count", rank="0", part="lookup") >= 5
        assert value(samples, "het_step_seconds_sum", rank="0", part="send") > 0
        # The page and `het ps status` have the same.
        state = until(lambda: state_with(url, '"followers": [{'))
        assert {table["name"]: table["rows"] for table in state["tables"]}["t"] == 64
        of_status = picture("--ps", server.address)["jobs"][""]
        assert of_status["tables"]["t"]["rows"] == 64
        assert of_status["workers"]["0"]["tables"]["t"]["updates"] == 5
        shown = het_ps("status", "--ps", server.address, "--interval", "0.05").out
        assert "table 't': 64 rows" in shown and "rank 0: " in shown and "follower " in shown
        assert len(IDS) == of_status["tables"]["item"]["rows"]


def key_of(report: dict) -> str:
    """Where a report lies."""
    return reports.key("", "workers", reporting.name(report))


def value(samples, name: str, **labels: str) -> float:
    """The value of the one series of a name and labels."""
    (found,) = [one.value for one in samples if one.name == name and one.labels == labels]
    return found


def _with_follower(url: str) -> str:
    text = get(url + "metrics")[1]
    ready = re.search(r"^het_served_age_seconds\S+ [0-9]", text, re.MULTILINE)
    return text if ready and "het_served_skew_seconds{" in text else ""


def state_with(url: str, words: str) -> dict:
    """What the page shows, once these words are in it."""
    text = get(url + "api/state")[1]
    return json.loads(text) if words in text else {}


def test_reports_begin_and_end_with_the_job(server):
    """A rank that has ended in order and is reported still, or one that never is; and reports of a worker of
    another version, whose fields the exporter does not know.
    """
    het_tf.init(ps=server.address)
    train(1)
    key = key_of(reporting.report()[""])
    told = reports.unpacked(ask(server.address, "GET", key))
    assert told["rank"] == 0 and told["size"] == 1 and "t" in told["tables"]
    assert 0 < ask(server.address, "PTTL", key) <= 1000 * reports.KEEP
    other = base64.b64encode(zlib.compress(b'{"format": 99}')).decode()
    for rank, text in ((1, "no report"), (2, other), (3, "")):
        ask(server.address, "SET", reports.key("", "workers", rank), text)
    assert list(picture("--ps", server.address)["jobs"][""]["workers"]) == ["0"]
    reporting.stop()
    assert ask(server.address, "EXISTS", key) == 0


def test_a_report_that_fails_is_no_error(server, monkeypatch, caplog):
    """A server that takes no report would end training."""
    monkeypatch.setattr(reports, "EVERY", 0.05)
    rights = redis_lib.rights()["het-worker"]
    ask(server.address, "ACL", "SETUSER", "worker", "on", ">secret", *rights, "-set")
    het_tf.init(ps=f"unix://worker:secret@{server.socket}")
    layer = redis_lib.counter(rows=50, staleness=2)
    redis_lib.count(layer, np.arange(60), np.zeros(100))
    until(lambda: "het ps exporter will lack this rank" in caplog.text)
    assert "NOPERM" in caplog.text
    redis_lib.count(layer, np.arange(60), np.zeros(100))
    reporting.stop()
    assert caplog.text.count("will lack this rank") == 1


def test_processes_alone_and_a_job_in_one_namespace(server):
    """Reports under one key: the figures of an evaluation and of the job's rank 0 would take turns."""
    het_tf.init(ps=server.address)
    train(1)
    mine = reporting.report()[""]
    other = {**mine, "host": "~elsewhere", "pid": 1}  # after this one in the order of names

    def put(report, left=reports.KEEP):
        ask(server.address, "SET", key_of(report), reports.packed(report), "EX", left)

    def shown():
        found = picture("--ps", server.address)["jobs"][""]["workers"]
        return {rank: (one["host"], one["pid"], one["size"]) for rank, one in found.items()}

    put(other)
    assert shown() == {"0": (mine["host"], mine["pid"], 1)}  # the same one each time
    reporting.stop()
    put(mine, left=reports.KEEP - 100)  # has been killed
    assert shown() == {"0": ("~elsewhere", 1, 1)}
    for rank in range(2):
        put({**mine, "rank": rank, "size": 2, "host": "job"})
    assert shown() == {"0": ("job", mine["pid"], 2), "1": ("job", mine["pid"], 2)}


def test_the_rights_of_the_monitor_are_enough(server, tmp_path):
    """A right that is missing in users.conf, and one too many: it must write nothing."""
    het_tf.init(ps=server.address)
    train(1)
    ask(server.address, "ACL", "SETUSER", "monitor", "on", ">secret", *redis_lib.rights()["het-monitor"])
    login = f"unix://monitor:secret@{server.socket}"
    assert "note" not in het_ps("status", "--ps", login, "--interval", "0.05").out
    for words in (("SET", "het:x", 1), ("HET.TABLE", "het::{0}", "DROP", "t"), ("UNLINK", "het:")):
        with pytest.raises(RuntimeError, match="NOPERM"):
            ask(login, *words)


REFUSED = [
    ("--ps unix://{tmp}/none --listen 127.0.0.1:0", "no server answers", 1),
    ("--ps unix://blind:secret@{server} --listen 127.0.0.1:0", "NOPERM", 1),
    ("--ps unix://blind:secret@{server} --listen 127.0.0.1:0", "users.conf has the rights", 1),
    *[(f"--listen {place}:0", "is reachable from other machine", 1) for place in ("0.0.0.0", "", "[::]")],
    ("--listen 0.0.0.0:0", "--token-file FILE", 1),
    *[(f"--listen {wrong}", f"'{wrong}' is not HOST:PORT", 2)
      for wrong in ("9400", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536")],
    ("--listen 0.0.0.0:0 --token-file {tmp}/short", "token of 6 characters", 1),
    ("--listen 0.0.0.0:0 --token-file {tmp}/short", "openssl rand", 1),
    ("--token-file {tmp}/none", "none cannot be read: no such file", 1),
    ("--listen host.invalid:9400", "--listen host.invalid:9400 is not possible", 1),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said", "status"), REFUSED)
def test_refusals(server, tmp_path, words, said, status):
    """No server, no rights, a page that every machine reads without a token: each with what to do."""
    ask(server.address, "ACL", "SETUSER", "blind", "on", ">secret", "~het:*", "-@all", "+info", "+ping")
    (tmp_path / "short").write_text("secret\n")
    given = words.format(tmp=tmp_path, server=server.socket).split()
    given += [] if "--ps" in given else ["--ps", server.address]
    err = het_ps("exporter", *given, status=status).err
    assert said in err and "secret" not in err


def test_an_exporter_is_for_one_namespace(server, tmp_path):
    for name in ("a", "b"):
        het_tf.init(ps=server.address)
        with het_tf.namespace(name):
            redis_lib.counter()(np.arange(3))
        het_tf.reset(name)
    two = het_ps("exporter", "--ps", server.address, "--listen", "127.0.0.1:0", status=1).err
    assert "has the namespaces 'a', 'b'; an exporter is for one: give --namespace" in two
    with exporting(server, tmp_path / "log", "--namespace", "b") as url:
        assert until(lambda: state_with(url, '"points": [{'))["namespace"] == "b"


def test_without_its_token_it_tells_nothing(server, tmp_path):
    """A path that forgets the token, or leads out of the page's folder."""
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    with exporting(server, tmp_path / "log", "--token-file", str(token)) as url:
        for path in ("", "metrics", "api/state", "static/uPlot.min.css", "nothing"):
            for how in ({}, {"token": "another token, wrong"}, {"user": "me", "token": "wrong"}):
                status, text = get(url + path, **how)
                assert status == 401 and "a token is needed" in text and "het_" not in text, (path, how)
            wanted = 404 if path == "nothing" else 200
            for how in ({"token": TOKEN}, {"user": "me", "token": TOKEN}):
                assert get(url + path, **how)[0] == wanted, (path, how)
        assert get(url, Authorization="Basic %%%")[0] == 401
        for path in ("static/../server.py", "static/index.html", "../../etc/passwd", "static/%2e%2e/cli.py"):
            assert get(url + path, token=TOKEN)[0] == 404, path
        request = urllib.request.Request(url + "api/state", data=b"{}", method="POST")
        request.add_header("Authorization", f"Bearer {TOKEN}")
        with pytest.raises(urllib.error.HTTPError, match="501"):
            urllib.request.urlopen(request, timeout=30)
        assert TOKEN not in (tmp_path / "log").read_text()


def test_a_server_that_goes_is_said(tmp_path):
    """Old figures of a dead server as if they were new."""
    with redis_lib.running(tmp_path / "own") as server:
        het_tf.init(ps=server.address)
        train(1)
        with exporting(server, tmp_path / "log") as url:
            assert get(url + "metrics")[0] == 200
            reporting.stop()
            server.kill()
            status, text = get(url + "metrics")
            assert status == 503 and "no server answers" in text
            server.start()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium; `apt-get install chromium`")
def test_chromium_shows_the_job(server, tmp_path):
    """A script of the page that fails, or a table's name that becomes HTML."""
    het_tf.init(ps=server.address)
    train()
    redis_lib.counter(name="<b>bold")(np.arange(3))
    with exporting(server, tmp_path / "log") as url:
        until(lambda: state_with(url, '"points": [{'))
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000",
                   f"--user-data-dir={tmp_path}/chromium", "--dump-dom", url]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    page = done.stdout
    assert page.count("<canvas") == 7, "a chart each"
    for text in ("Hit rate of caches", "Age of served rows", "Servers", "Ranks", "64", "&lt;b&gt;bold"):
        assert text in page, text
    assert "<b>" not in page and 'class="bad"' not in page
