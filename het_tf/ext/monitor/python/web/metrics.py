"""Every metric of `het ps exporter`: its name, kind, labels, help and where its value is.

Names follow Prometheus' conventions: base units, `_total` on counters, no unbounded label. Alert rules and
the board of examples/deploy use these names, and a test compares.
"""

from collections.abc import Mapping
from typing import NamedTuple

# What has figures, and the labels that tell one from another (collector.py, `figures`).
LABELS: dict[str, tuple[str, ...]] = {
    "exporter": (),
    "job": (),
    "server": ("server",),
    "table": ("table",),
    "cache": ("table", "rank"),
    "worker": ("rank",),
    "phase": ("rank", "part"),
    "follower": ("follower",),
}


class Metric(NamedTuple):
    """A metric.

    Attributes:
      of: What has it, of LABELS.
      kind: gauge, counter, histogram or info.
      help: What it says, in a sentence.
      field: Where its value is among the figures; of an info the labels. With `by`: for each of its values.
      by: A further label.
    """

    of: str
    kind: str
    help: str
    field: str | Mapping[str, str]
    by: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its labels, in order."""
        return LABELS[self.of] + ((self.by,) if self.by else ())


_REFUSED = (
    "gap",
    "epoch",
    "no_table",
    "wrong_partition",
    "bad_frame",
    "out_of_memory",
    "elsewhere",
    "loading",
)
_REMOVED = {
    "ttl": "het_swept_ttl",
    "min_count": "het_swept_min_count",
    "max_rows": "het_swept_max_rows",
    "user": "het_rows_removed",
}

METRICS: dict[str, Metric] = {
    "het_build_info": Metric("exporter", "info", "The version of the exporter.", "version"),
    "het_scrape_seconds": Metric("exporter", "gauge", "Time that asking the servers took.", "seconds"),
    "het_faults": Metric("job", "gauge", "Faults that `het ps status` shows.", "faults"),
    "het_workers": Metric("job", "gauge", "Ranks of the job, as its workers say.", "size"),
    # Servers, from INFO.
    "het_server_up": Metric("server", "gauge", "1 if the server answers and is ready, else 0.", "up"),
    "het_server_partitions": Metric("server", "gauge", "Partitions at the server.", "het_partitions"),
    "het_server_rows": Metric("server", "gauge", "Rows at the server.", "het_rows"),
    "het_server_partition_bytes": Metric("server", "gauge", "Memory of its partitions.", "het_bytes"),
    "het_server_memory_bytes": Metric("server", "gauge", "Memory that the server counts.", "used_memory"),
    "het_server_memory_limit_bytes": Metric("server", "gauge", "Its maxmemory; 0: no limit.", "maxmemory"),
    "het_server_pushes_applied_total": Metric(
        "server", "counter", "Frames whose push was applied.", "het_pushes_applied"
    ),
    "het_server_rows_pulled_total": Metric("server", "counter", "Rows in its replies.", "het_rows_pulled"),
    "het_server_network_bytes_total": Metric(
        "server", "counter", "Bytes of frames.", {"in": "het_bytes_in", "out": "het_bytes_out"}, "direction"
    ),
    "het_server_feed_bytes_total": Metric(
        "server", "counter", "Bytes of changed rows that followers have read.", "het_changes_bytes"
    ),
    "het_server_busy_seconds_total": Metric(
        "server", "counter", "Time of its main thread in frames.", "busy_seconds"
    ),
    "het_server_refused_frames_total": Metric(
        "server", "counter", "Parts of frames that were refused.",
        {reason: f"het_refused_{reason}" for reason in _REFUSED}, "reason",
    ),
    "het_server_removed_rows_total": Metric(
        "server", "counter", "Rows that were removed, by a limit of their table or by a user.",
        _REMOVED, "reason",
    ),
    # Tables, from HET.STAT.
    "het_table_rows": Metric("table", "gauge", "Rows of the table in the store.", "rows"),
    "het_table_bytes": Metric("table", "gauge", "Memory of the table in the store.", "bytes"),
    "het_table_limit_rows": Metric("table", "gauge", "max_rows of the table.", "limit_rows"),
    # Caches, from the reports of ranks (core/cache/counters.h).
    "het_cache_rows": Metric("cache", "gauge", "Rows in the rank's cache.", "rows"),
    "het_cache_limit_rows": Metric("cache", "gauge", "Rows for which the cache has room.", "capacity"),
    "het_cache_bytes": Metric("cache", "gauge", "Memory of the cache.", "bytes"),
    "het_cache_unsent_rows": Metric("cache", "gauge", "Rows whose updates the store lacks.", "unsent_rows"),
    "het_staleness_bound_ticks": Metric(
        "cache", "gauge", "Ticks that a read row may lack; by age, the most.", "bound"
    ),
    "het_cache_reads_total": Metric("cache", "counter", "Unique keys that lookups asked for.", "reads"),
    "het_cache_hits_total": Metric("cache", "counter", "Of these, those in the cache.", "hits"),
    "het_cache_pulled_rows_total": Metric(
        "cache", "counter", "Rows fetched, as they were missing or too stale.",
        {"missing": "miss_pull", "stale": "update_pull"}, "reason",
    ),
    "het_cache_pushed_rows_total": Metric(
        "cache", "counter", "Rows sent, as their bound or age was reached or they left the cache.",
        {"bound": "bound_push", "age": "age_push", "evicted": "evict_push"}, "reason",
    ),
    "het_network_bytes_total": Metric(
        "cache", "counter", "Bytes between the rank and the servers, of rows and of all else.",
        {"rows_in": "row_bytes_in", "rows_out": "row_bytes_out",
         "metadata_in": "metadata_bytes_in", "metadata_out": "metadata_bytes_out"}, "kind",
    ),
    "het_requests_total": Metric("cache", "counter", "Frames that the rank has sent.", "requests"),
    "het_table_updates_total": Metric("cache", "counter", "Steps that have updated the table.", "updates"),
    "het_pushes_total": Metric(
        "cache", "counter", "Pushes that failed: sent again, repaired after a server lost them, or lost.",
        {"resent": "resends", "repaired": "repaired", "lost": "lost_pushes"}, "fate",
    ),
    "het_row_lag_ticks": Metric(
        "cache", "histogram", "Ticks that cached rows lacked when they were checked.", "lag"
    ),
    # Ranks.
    "het_worker_info": Metric("worker", "info", "Where a rank runs.", "host"),
    "het_worker_last_seen_seconds": Metric("worker", "gauge", "Time since the rank's last report.", "seen"),
    "het_step_seconds": Metric(
        "phase", "histogram", "Time of the calls lookup and update of a rank's steps, and of their parts.",
        "length",
    ),
    # Followers.
    "het_served_age_seconds": Metric("follower", "gauge", "How old served rows may be.", "age"),
    "het_served_age_bound_seconds": Metric("follower", "gauge", "max_age of the export.", "max_age"),
    "het_served_skew_seconds": Metric(
        "follower", "gauge", "By how much rows may be newer than the dense weights.", "skew"
    ),
    "het_served_version": Metric("follower", "gauge", "The version in force; 0: the export.", "version"),
    "het_served_rows": Metric("follower", "gauge", "Rows that are served.", "rows"),
    "het_follower_last_seen_seconds": Metric(
        "follower", "gauge", "Time since the follower's last report.", "seen"
    ),
}  # fmt: skip
