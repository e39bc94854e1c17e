"""The parts of slow_link: what is launched, and what is measured of it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from benchmarks import report
from benchmarks.slow_link import jobs
from benchmarks.slow_link import network as networks
from benchmarks.slow_link.job import Job
from benchmarks.slow_link.session import (
    QUICK,
    SYSTEMS,
    Figures,
    Link,
    Scale,
    Session,
    calibrate,
    line,
    say,
    share_compute,
    shown,
    summary,
)
from benchmarks.traffic.run import distinct_rows
from benchmarks.traffic.streams import make_stream
from het_tf._version import __version__
from het_tf.ext.ps.python.programs import find_server

STREAMS = {"wide_deep": "criteo_scaled", "graphsage": "graph"}
"""The stream of ids of each model."""
EPOCH = 524_288
SEED = 1
BATCH = 128
HIDDEN = (64, 32)
RATIO = 12.0


def machine() -> Figures:
    """Returns the machine and the versions of this run."""
    found = {each.metadata["Name"].lower(): each.version for each in metadata.distributions()}
    installed = {name.replace("_", "-"): version for name, version in found.items()}
    tensorflow = installed.get("tensorflow-cpu") or installed.get("tensorflow")
    shard = subprocess.run([find_server(), "--version"], capture_output=True, text=True).stdout.split()
    versions = [f"het_tf {__version__}", f"TensorFlow {tensorflow}", f"Horovod {installed.get('horovod')}"]
    return {
        **report.machine(),
        "versions": ", ".join([*versions, " ".join(shard[:3])]),
    }


class Program:
    """The parts of this benchmark, over one network."""

    def __init__(self, workers: int, scale: Scale, streams: Path) -> None:
        self.scale = scale
        self.place = jobs.Place(networks.Network(workers), workers)
        self.streams = streams

    def stream(self, model: str) -> tuple[Path, int]:
        """The file of a model's ids, and how many distinct ones it has."""
        path = make_stream(self.streams, STREAMS[model], self.scale.samples, SEED)
        return path, distinct_rows(path)

    def job(self, model: str, ps: str) -> Job:
        """The launch of a model at a server."""
        stream, distinct = self.stream(model)
        rows = round(0.1 * distinct)
        return Job(
            model=model,
            control=str(self.place.folder / "control"),
            stream=str(stream),
            ps=ps,
            workers=self.place.workers,
            systems={
                name: {**options, "cache": {"rows": rows, **options["cache"]}}
                if "cache" in options
                else options
                for name, options in SYSTEMS.items()
            },
            dim=self.scale.dim,
            hidden=HIDDEN,
            batch=BATCH,
        )

    @contextlib.contextmanager
    def session(self, model: str) -> Iterator[Session]:
        """A launch of a model under horovodrun at an empty server."""
        begin = time.monotonic()
        job = self.job(model, f"redis://{networks.SERVER}:{jobs.PORT}")
        with jobs.server(self.place), jobs.horovod(self.place, job) as workers:
            yield Session(self.place, workers, self.scale)
        say(f"  {time.monotonic() - begin:.0f} s")

    def model(self, model: str) -> Figures:
        """Every system at RATIO : 1, with the dense part apart and not, and at ten times that rate."""
        say(f"{model}: every system")
        with self.session(model) as session:
            systems = self.scale.systems
            session.make(systems)
            het = [name for name in systems if SYSTEMS[name]["kind"] == "het"]
            found = session.scale.given or calibrate(session, RATIO)
            if found["rate"] is None:
                reached = f"even without a limit it is {found['reached']:.1f} : 1"
                raise RuntimeError(
                    f"{model}: no rate gives {RATIO:g} : 1, {reached}; the machine is too busy"
                )
            say(f"  the rate is {shown(found['rate'])}")
            result: Figures = {
                "distinct": self.stream(model)[1],
                "dense_bytes": session.dense_bytes,
                "calibration": found,
                "settings": {},
            }
            for name, factor in self.scale.settings.items():
                dense = name == "all"
                link = Link(factor * found["rate"], dense)
                entry = summary(session.measure(systems if dense else het, link), link)
                result["settings"][name] = {"factor": factor, **entry}
                say(f"  {shown(link.rate)}{', dense too' if dense else ''}: {line(entry)}")
            share_compute(list(result["settings"].values()))
        return result

    def close(self) -> None:
        self.place.close()


# (model, what, system, setting, at least)
GOALS = (
    ("wide_deep", "communication", "default", "rows", 16),
    ("wide_deep", "communication", "s=100", "rows", 8.2),
    ("wide_deep", "communication", "s=10", "rows", 2.9),
    ("wide_deep", "step", "s=100", "rows", 5.1),
    ("wide_deep", "communication", "s=100", "rows, 10x", 1.8),
    ("graphsage", "communication", "default", "rows", 8),
    ("graphsage", "step", "default", "rows", 4.5),
)


def goals(models: dict[str, Figures]) -> list[Figures]:
    """What a system must gain over no cache."""
    found = []
    for model, what, system, setting, limit in GOALS:
        entry = models.get(model, {"settings": {}})["settings"].get(setting)
        if entry and system in entry["systems"]:
            at = f"{model}, {entry['ratio']:.1f} : 1, {what}: no cache over {system}"
            found.append(report.goal(at, entry["systems"][system]["gain"][what], ">=", limit))
    return found


def run(parts: Sequence[str], out: Path, workers: int, quick: bool, streams: Path) -> None:
    """Measures parts, and writes each into the JSON as it is done; of the others what is there is kept.

    Args:
      parts: see `slow_link.PARTS`.
      out: the JSON.
      workers: N.
      quick: few steps.
      streams: the folder of streams.

    Raises:
      ValueError: `out` is of other settings.
    """
    program = Program(workers, QUICK if quick else Scale(), streams)
    try:
        settings: Figures = {
            "command": "python benchmarks/slow_link/run.py" + (" --quick" if quick else ""),
            "workers": workers,
            "dim": program.scale.dim,
            "hidden": list(HIDDEN),
            "batch": BATCH,
            "epoch": EPOCH,
        }
        kept = out.exists() and set(parts) != set(STREAMS)
        result: Figures = json.loads(out.read_text()) if kept else {}
        others = [name for name, value in settings.items() if result.get(name, value) != value]
        if others:
            names = ", ".join(others)
            raise ValueError(f"{out} is of other {names}; measure all parts, or give another --out")
        result |= {**settings, "machine": machine()}
        models = result.setdefault("models", {})
        for part in parts:
            models[part] = program.model(part)
            result["goals"] = goals(models)
            report.write(result, out)
    finally:
        program.close()
    report.finish(result, out, __file__)
