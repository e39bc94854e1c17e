"""How do HET and the systems around it compare on one trace: rows, bytes, waits, staleness, exactness?

    make benchmark-tools                       # with build/release/traffic
    python benchmarks/family/run.py [--stream criteo_scaled|criteo_like|graph|FILE] [--samples N]
                                [--workers W] [--quick] [--program FILE] [--out FILE]
    python benchmarks/report.py                # the tables

Lines of the kind "client" are the real client before a store, as benchmarks/traffic runs it. Lines of the
kind "model" are of systems, or parts of them, that het_tf does not offer: systems.py counts their rows
on the same stream. The model's rows are the client's, one by one, where both exist
(tests/python/benchmarks/test_family.py). Bytes of a model are its rows times the bytes of a row without a
cache, its key, clock and part of the heads included. Rows between workers take their floats: an all-reduced
one 4 (W - 1) / W times, in and out of a worker.

FILE: a stream file (benchmarks/traffic/stream.h), or an .npy of int64 keys `[samples, fields]`.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np

from benchmarks import report
from benchmarks.family.herald import by_last_users
from benchmarks.family.systems import WINDOW, Trace, rows_without_cache, systems
from benchmarks.traffic import run as traffic
from benchmarks.traffic.streams import FORMAT, make_stream, read_stream, write_stream
from het_tf.python.data.placement import Placement

Figures = dict[str, Any]

STREAMS = ("criteo_scaled", "criteo_like", "graph")
FIELD = "C24"
LOCATION = "last users"
MODEL = (
    "traffic/simulated_cache",
    "traffic/simulated_sync",
    "family/herald",
    "family/others",
    "family/systems",
)


@dataclasses.dataclass(frozen=True)
class Client:
    """A line of the real client: its settings, whether samples are placed, whether it is exact."""

    setting: dict[str, Any]
    placed: bool = False
    exact: str = "no"


ROUNDED = {"optimizer": traffic.ROWS}
ON_DEMAND = {"sync": "on_demand"}
CLIENTS = {
    "no cache": Client({"bound": "0", "cache": 0.0}, exact="yes"),
    "HET, s=0": Client({"bound": "0"}, exact="yes"),
    "HET, s=10": Client({"bound": "10/10"}),
    "HET, s=100": Client({"bound": "100/100"}),
    "HET, s=0, placed": Client({"bound": "0"}, placed=True, exact="yes"),
    "s=0, int4, placed": Client(traffic.EXACT | ROUNDED, placed=True, exact="rounded"),
    "HET, on demand": Client({"bound": "0"} | ON_DEMAND, exact="yes"),
    "HET, on demand, placed": Client({"bound": "0"} | ON_DEMAND, placed=True, exact="yes"),
    "s=0, int4, on demand, placed": Client(traffic.EXACT | ROUNDED | ON_DEMAND, placed=True, exact="rounded"),
    "default": Client(traffic.DEFAULT | ROUNDED),
    f"default, window {WINDOW}": Client(traffic.DEFAULT | ROUNDED | {"window": WINDOW}),
    "default, placed": Client(traffic.DEFAULT | ROUNDED, placed=True),
    f"default, placed, window {WINDOW}": Client(traffic.DEFAULT | ROUNDED | {"window": WINDOW}, placed=True),
    "default, on demand": Client(traffic.DEFAULT | ROUNDED | ON_DEMAND),
    "default, on demand, placed": Client(traffic.DEFAULT | ROUNDED | ON_DEMAND, placed=True),
}


def stream_file(source: str, samples: int) -> Path:
    """Returns the stream file of a name, or of a file of ids, made if it is not there."""
    if source in STREAMS:
        return make_stream(traffic.PLACE, source, samples, traffic.SEED)
    given = Path(source)
    if given.suffix != ".npy":
        return given
    digest = hashlib.sha256(given.read_bytes()).hexdigest()[:12]
    path = traffic.PLACE / f"{given.stem}-{digest}.bin"
    if not path.exists():
        write_stream(path, np.load(given))
    return path


def placed_file(source: str, trace: Trace, samples: int) -> Path:
    """Returns the stream file in the order that places its samples: by a field, or else by last users."""
    if source.startswith("criteo"):
        placement = Placement(FIELD, trace.workers, trace.batch)
        return make_stream(traffic.PLACE, source, samples, traffic.SEED, placement)
    name = (
        f"{trace.path.stem}-last_users-{trace.workers}-{trace.batch}-{version_of('family/herald')[:12]}.bin"
    )
    path = traffic.PLACE / name
    if not path.exists():
        keys, ids = read_stream(trace.path)
        write_stream(path, keys[ids[by_last_users(trace.stream).ravel()]])
    return path


def version_of(*modules: str) -> str:
    """Returns a hash of the sources of these modules of benchmarks/."""
    files = (ROOT / f"benchmarks/{name}.py" for name in modules)
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


class Family:
    """All lines of one stream and number of workers."""

    def __init__(self, source: str, samples: int, workers: int, program: Path) -> None:
        self.source, self.samples, self._program = source, samples, program
        path = stream_file(source, samples)
        self.trace = Trace(path, path, workers, traffic.BATCH, 0.1, samples // 4)
        self.trace.placed = placed_file(source, self.trace, samples)
        self.placement = FIELD if source.startswith("criteo") else LOCATION
        self._version = f"{hashlib.sha256(program.read_bytes()).hexdigest()} {FORMAT}"
        self._base = traffic.Run(self.trace.path.stem, samples, workers)
        self._without = self._measure(self._base.baseline(), self.trace.path)
        self.rows = rows_without_cache(self.trace)
        self.row_bytes = self._without["bytes"] / self._without["rows"]

    def lines(self) -> list[Figures]:
        """Returns the figures of each system in a step of a worker."""
        result = []
        for name, client in CLIENTS.items():
            result.append(self._client(name, client))
        for name, compute in systems(self.placement).items():
            key = [self.trace.path.name, self.trace.placed.name, self.trace.workers, name, version_of(*MODEL)]
            figures = traffic.kept(key, functools.partial(compute, self.trace))
            result.append(self._model(name, figures))
        return result

    def summary(self, lines: list[Figures]) -> Figures:
        """Returns what the JSON says of the stream."""
        exact = next(line for line in lines if line["system"] == "HET, s=0")
        return {
            "stream": self.source if self.source in STREAMS else self.trace.path.stem,
            "samples": self.samples,
            "workers": self.trace.workers,
            "batch": self.trace.batch,
            "distinct": self.trace.stream.distinct,
            "cache": self.trace.capacity,
            "placed_by": self.placement,
            "rows": self.rows,
            "bytes": self._without["bytes"],
            "row_bytes": self.row_bytes,
            "formula": {
                "of": exact["system"],
                "rows_times_row_bytes": exact["rows"] * self.row_bytes,
                "measured_without_checks": exact["bytes"] - exact["check_bytes"],
            },
            "lines": lines,
        }

    def _measure(self, run: traffic.Run, path: Path) -> Figures:
        result = traffic.measure(run, path, self._program, self._version)
        return traffic.summary(run, result, None)

    def _client(self, name: str, client: Client) -> Figures:
        path = self.trace.placed if client.placed else self.trace.path
        run = dataclasses.replace(self._base, **client.setting)
        without = run.baseline()
        if run.cache == 0:
            run = without  # the same batches, however many workers take them
        of = self._measure(run, path)
        # Rows of SGD in float32 say what reads have missed.
        seen = self._measure(dataclasses.replace(run, wire="float32", optimizer="sgd"), path)["staleness"]
        return {
            "system": name.replace("placed", self.placement),
            "kind": "client",
            **{key: of[key] for key in ("rows_by_class", "rows", "bytes")},
            "check_bytes": of["bytes_by_class"]["checks"],
            "rows_saved": 1 - of["rows"] / self.rows,
            "between_bytes": 0.0,
            "bytes_saved": 1 - of["bytes"] / self._measure(without, self.trace.path)["bytes"],
            "waits": of["round_trips"],
            "lag": {"mean": seen["mean"], "max": seen["max"]},
            "exact": client.exact,
        }

    def _model(self, name: str, figures: Figures) -> Figures:
        line: Figures = {"system": name, "kind": "model", **figures}
        if "rows_by_class" not in figures:
            return line
        rows = sum(figures["rows_by_class"].values())
        size, between = rows * self.row_bytes, figures["between_rows"] * 4 * self._base.dim
        return line | {
            "rows": rows,
            "rows_saved": 1 - rows / self.rows,
            "bytes": size,
            "between_bytes": between,
            "bytes_saved": 1 - (size + between) / self._without["bytes"],
        }


def arguments() -> argparse.Namespace:
    """Returns the command line, or ends with what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--stream", default="criteo_scaled", help=f"{', '.join(STREAMS)}, or a file of ids (.bin, .npy)"
    )
    parser.add_argument("--samples", type=int, help="of a stream by name; default 524,288")
    parser.add_argument("--workers", type=int, default=8, help="default 8")
    parser.add_argument("--quick", action="store_true", help="65,536 samples; a minute")
    parser.add_argument("--program", type=Path, default=traffic.PROGRAM, help="default build/release/traffic")
    parser.add_argument("--out", type=Path, help="the JSON; lines of other streams in it are kept")
    given = parser.parse_args()
    if not given.program.exists():
        parser.error(f"--program: {given.program} is missing; run `make benchmark-tools`")
    if not 1 <= given.workers <= 32:
        parser.error(f"--workers is {given.workers}; give 1 to 32")
    if given.stream in STREAMS:
        given.samples = given.samples or (65_536 if given.quick else 524_288)
    elif not Path(given.stream).is_file():
        parser.error(f"--stream is {given.stream!r}; give {', '.join(STREAMS)}, or a file that exists")
    elif given.samples is not None:
        parser.error("--samples is for streams by name; a file is taken whole")
    else:
        given.samples = len(read_stream(stream_file(given.stream, 0))[1])
    least = 8 * traffic.BATCH * max(8, given.workers)
    if given.samples < least:
        parser.error(
            f"--samples: there are {given.samples:,}; give at least {least:,}, so that steps are left"
        )
    name = traffic.PLACE / "family_quick.json" if given.quick else Path(__file__).with_name("result.json")
    given.out = given.out or name
    return given


def main() -> None:
    """Runs one stream, adds it to the JSON and prints its table."""
    given = arguments()
    family = Family(given.stream, given.samples, given.workers, given.program)
    result = family.summary(family.lines())
    known = json.loads(given.out.read_text()) if given.out.exists() else {"traces": {}}
    traces = known["traces"] | {f"{result['stream']}, {result['workers']} workers": result}
    report.finish({"command": "python benchmarks/family/run.py", "traces": traces}, given.out, __file__)


if __name__ == "__main__":
    main()
