"""Writes board.json, a board of Grafana on the metrics of `het ps exporter`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("board.json")
LOSSES = 'sum by (fate) (increase(het_pushes_total{fate=~"repaired|lost"}[$__rate_interval]))'
# Title, unit, and of each line its query and label.
PANELS: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("Servers that answer", "short", [("sum(het_server_up)", "up"), ("count(het_server_up)", "all")]),
    ("Ranks that report", "short", [
        ("count(het_worker_last_seen_seconds < 30)", "seen"), ("het_workers", "all")]),
    ("Hit rate", "percentunit", [
        ("sum by (table) (rate(het_cache_hits_total[$__rate_interval]))"
         " / sum by (table) (rate(het_cache_reads_total[$__rate_interval]))", "{{table}}")]),
    ("Lag, 99 %", "short", [
        ("histogram_quantile(0.99, sum by (table, le) (rate(het_row_lag_ticks_bucket[$__rate_interval])))",
         "{{table}}"),
        ("max(het_staleness_bound_ticks)", "largest bound")]),
    ("Bytes by kind", "Bps", [
        ("sum by (kind) (rate(het_network_bytes_total[$__rate_interval]))", "{{kind}}")]),
    ("Rows pulled, by reason", "short", [
        ("sum by (reason) (rate(het_cache_pulled_rows_total[$__rate_interval]))", "{{reason}}")]),
    ("Rows pushed, by reason", "short", [
        ("sum by (reason) (rate(het_cache_pushed_rows_total[$__rate_interval]))", "{{reason}}")]),
    ("Time by part, of a second", "percentunit", [
        ("avg by (part) (rate(het_step_seconds_sum[$__rate_interval]))", "{{part}}")]),
    ("Steps a second", "short", [
        ("max by (rank) (rate(het_table_updates_total[$__rate_interval]))", "rank {{rank}}")]),
    ("Busy servers", "percentunit", [
        ("rate(het_server_busy_seconds_total[$__rate_interval])", "{{server}}")]),
    ("Memory of servers", "bytes", [
        ("het_server_memory_bytes", "{{server}}"), ("min(het_server_memory_limit_bytes)", "limit")]),
    ("Rows of tables", "short", [("het_table_rows", "{{table}}")]),
    ("Age of served rows", "s", [
        ("het_served_age_seconds", "{{follower}}"), ("min(het_served_age_bound_seconds)", "bound")]),
    ("Updates repaired and lost", "short", [(LOSSES, "{{fate}}")]),
]  # fmt: skip


def panel(number: int, title: str, unit: str, lines: list[tuple[str, str]]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": source,
        "gridPos": {"w": 12, "h": 8, "x": 12 * (number % 2), "y": 8 * (number // 2)},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": source, "expr": query, "legendFormat": label}
            for at, (query, label) in enumerate(lines)
        ],
    }


def board() -> dict[str, Any]:
    return {
        "title": "het_tf job",
        "uid": "het-tf-job",
        "schemaVersion": 39,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}]
        },
        "panels": [panel(number, *one) for number, one in enumerate(PANELS)],
    }


def text() -> str:
    return json.dumps(board(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
