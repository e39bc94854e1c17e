"""The function `het_tf.serving.stats`: what the loaded SavedModels of this process count."""

import json
from typing import Any

from het_tf.python.session import native


def stats() -> dict[str, list[dict[str, Any]]]:
    """Returns the counters of the exports that this process has loaded.

    Portable exports have none.

    Returns:
      "follow": for each native export, "model" (its directory), "version" in force (0: the export's),
      "trained_through" of the version (seconds since 1970, or None), "age" of its rows in seconds (None:
      unknown), "max_age" (None: no limit), "skew" (seconds by which rows may be ahead of the dense weights;
      None: unknown), "max_skew" (None: no limit), and the numbers of "lookups" and of "stale" ones, beyond
      max_age.

      "online": for each namespace and server that online exports read, "namespace", "at" (the address), the
      numbers of rows served "fresh" (without asking), "confirmed" (asked, unchanged), "refreshed" (asked,
      changed), "fetched" (not in the cache) and "stale" (beyond the bound, since the server did not answer),
      "failures" (exchanges without an answer in time), "emptied" (the cache was dropped after a load or a
      restart of a server), and "tables": rows, bytes and evicted rows of each table in the cache.
    """
    return {
        "follow": json.loads(native.call("HetFollowStats")),
        "online": json.loads(native.call("HetOnlineStats")),
    }
