"""The cheapest changes that would help a job: forecasts the job with and without each on part of the sample.

Both forecasts share the part, and so its errors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from het_tf.ext.sizing.python.forecast import Advance, Forecast, Request, forecast
from het_tf.ext.sizing.python.stats import Stats

WINDOW = 32  # of het_tf.lookahead
_ENTRIES = 400_000
_LEAST = 0.03  # share of a step's time or bytes that a change must save


@dataclasses.dataclass(frozen=True)
class Change:
    """A change and its effect on a step.

    Attributes:
      text: What to do.
      seconds, bytes: Of a step, as a fraction of today's.
    """

    text: str
    seconds: float
    bytes: float


def changes(request: Request, cache_bytes: int) -> Iterator[tuple[str, Request]]:
    """Yields possible changes, the cheapest first: code, then accuracy, then memory, then machines."""
    job = request.job
    if job.window == 0:
        yield (
            "plan the lookups: het_tf.lookahead(dataset, layer)",
            dataclasses.replace(request, job=dataclasses.replace(job, window=WINDOW)),
        )
    if request.cache.get("wire") in ("float32", "float16", "int8"):
        kept = {name: value for name, value in request.cache.items() if name != "wire"}
        yield (
            "leave wire= out: rows travel as int8, updates as int4",
            dataclasses.replace(request, cache=kept),
        )
    if request.cache.get("staleness") == 0:
        synchronous = {**request.cache, "staleness": "synchronous"}
        yield (
            'staleness="synchronous": exact clocks, rounded rows',
            dataclasses.replace(request, cache=synchronous),
        )
    yield (
        f"twice the caches: Cache(bytes={2 * cache_bytes:_})",
        dataclasses.replace(request, cache_bytes=2 * cache_bytes),
    )
    yield (
        f"twice the servers: {2 * job.shards}",
        dataclasses.replace(request, job=dataclasses.replace(job, shards=2 * job.shards)),
    )


def advise(
    stats: Stats,
    now: Forecast,
    most: int = 2,
    advance: Advance = lambda _: None,
    run: Callable[..., Forecast] = forecast,
) -> list[Change]:
    """Returns the first changes that save 3 % of a step's time or bytes without raising the other."""
    few = dataclasses.replace(now.request, entries=_ENTRIES, cache_bytes=now.cache_bytes)
    base = run(stats, few, advance)
    found: list[Change] = []
    for text, request in changes(few, now.cache_bytes):
        changed = run(stats, request, advance)
        seconds = changed.step.seconds / max(1e-12, base.step.seconds)
        size = changed.traffic.bytes / max(1e-12, base.traffic.bytes)
        if min(seconds, size) <= 1 - _LEAST and max(seconds, size) <= 1 + _LEAST:
            found.append(Change(text, seconds, size))
        if len(found) == most:
            break
    return found
