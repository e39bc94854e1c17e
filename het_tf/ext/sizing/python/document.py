"""The JSON of `het plan show --json`."""

from __future__ import annotations

from typing import Any

from het_tf.ext.sizing.python.accuracy import cost
from het_tf.ext.sizing.python.forecast import Forecast, TableForecast


def class_bytes(table: TableForecast) -> dict[str, float]:
    """Bytes of a worker's step for a table by class: all rows in have one size, and all updates out."""
    one = table.one
    coming, going = one.bytes_in, one.bytes - one.bytes_in
    pulled, pushed = max(1e-9, one.miss + one.update), max(1e-9, one.push + one.evict)
    return {
        "miss": coming * one.miss / pulled,
        "update": coming * one.update / pulled,
        "push": going * one.push / pushed,
        "evict": going * one.evict / pushed,
    }


def plan(made: Forecast) -> dict[str, Any]:
    """Returns the document of a forecast."""
    request, step = made.request, made.step
    job = request.job
    return {
        "workers": job.workers,
        "batch": job.batch,
        "window": job.window,
        "cache": dict(request.cache),
        "wire": made.wire,
        "servers": {"shards": job.shards, "replicas": request.replicas, "maxmemory": request.ram or 0},
        "tables": [
            {
                "name": table.stats.name,
                "dim": table.stats.dim,
                "cache_rows": table.one.capacity,
                "rows": table.stats.rows,
                "rows_at_end": [round(rows) for rows in table.rows_at_end],
                "hot_rows": table.hot,
                "server_bytes": round(table.server_bytes),
                "forecast": {
                    "uses": table.one.uses,
                    "hit_rate": table.one.hits / max(1e-9, table.one.uses),
                    "bytes": table.one.bytes,
                    **{f"{name}_bytes": size for name, size in class_bytes(table).items()},
                    "miss_pull": table.one.miss,
                    "update_pull": table.one.update,
                    "bound_push": table.one.push,
                    "evict_push": table.one.evict,
                },
                "curve": [list(point) for point in table.curve],
            }
            for table in made.tables
        ],
        "forecast": {
            "bytes": made.traffic.bytes,
            "bytes_in": made.traffic.bytes_in,
            "head_bytes": made.traffic.head_bytes,
            "round_trips": made.traffic.waits,
            "hit_rate": made.hit_rate,
            "server_bytes": made.server_bytes,
            "cache_bytes": made.cache_bytes,
            "step_seconds": step.seconds,
            "parts": step.parts,
            "bound": step.bound,
            "samples_a_second": made.samples_a_second,
            "auc": cost(request.cache, request.optimizer, job.workers, job.batch, job.window > 0),
        },
        "not_filled": made.not_filled,
    }
