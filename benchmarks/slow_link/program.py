"""The parts of slow_link: what is launched, and what is measured of it."""

from __future__ import annotations

import contextlib
import dataclasses
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
from het_tf.python.ps.programs import find_server

STREAMS = {**dict.fromkeys(("wide_deep", "deepfm", "dcn"), "criteo_scaled"), "graphsage": "graph"}
"""The stream of ids of each model."""
EPOCH = 524_288
SEED = 1
BATCH = 128
HIDDEN = (64, 32)
RATIO = 12.0
RATIOS = (1.0, 3.0, 30.0, 100.0)


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
            cross_rank=8,
            batch=BATCH,
        )

    @contextlib.contextmanager
    def session(self, model: str, rounds: int | None = None) -> Iterator[Session]:
        """A launch of a model under horovodrun at an empty server."""
        scale = dataclasses.replace(self.scale, rounds=rounds or self.scale.rounds)
        begin = time.monotonic()
        job = self.job(model, f"redis://{networks.SERVER}:{jobs.PORT}")
        with jobs.server(self.place), jobs.horovod(self.place, job) as workers:
            yield Session(self.place, workers, scale)
        say(f"  {time.monotonic() - begin:.0f} s")

    def model(self, model: str) -> Figures:
        """Every system at RATIO : 1 and at ten times that rate, with the dense part apart and not."""
        say(f"{model}: every system")
        rounds = self.scale.rounds if model == "wide_deep" else min(2, self.scale.rounds)
        with self.session(model, rounds=rounds) as session:
            made = session.make(self.scale.systems)
            het = [name for name in made if SYSTEMS[name]["kind"] == "het"]
            unlimited = summary(session.measure(made, Link()), Link())
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
                "missing": session.missing,
                "calibration": found,
                "unlimited": unlimited,
                "settings": {},
            }
            for factor in self.scale.factors:
                for dense in (False, True):
                    link = Link(factor * found["rate"], dense)
                    entry = summary(session.measure(made if dense else het, link), link)
                    name = ("all" if dense else "rows") + (f", {factor}x" if factor > 1 else "")
                    result["settings"][name] = {"factor": factor, **entry}
                    say(f"  {shown(link.rate)}{', dense too' if dense else ''}: {line(entry)}")
            share_compute([unlimited, *result["settings"].values()])
        return result

    def ratios(self) -> Figures:
        """Wide & Deep without cache and with, at rates from fast to slow."""
        say("ratios")
        names = ["local", "no cache", "s=0", "s=10", "s=100", "default", "default, float32"]
        # Steps at a low rate are long; two turns of them have to do.
        with self.session("wide_deep", rounds=min(2, self.scale.rounds)) as session:
            made = session.make(names)
            settings = [summary(session.measure(made[1:], Link()), Link())]
            for ratio in RATIOS:
                found = calibrate(session, ratio)
                if found["rate"] is None:
                    say(f"  {ratio:g} : 1 is not reached: without a limit it is {found['reached']:.1f} : 1")
                    continue
                link = Link(found["rate"])
                settings.append(summary(session.measure(made[1:], link), link))
                say(f"  {shown(link.rate)}: {line(settings[-1])}")
            share_compute(settings)
            by_ratio = {f"{entry['ratio']:.1f} : 1": entry for entry in settings}
            return {"settings": by_ratio, "missing": session.missing}

    def close(self) -> None:
        self.place.close()


# (model, what, system, setting, at least)
GOALS = (
    ("wide_deep", "communication", "default", "rows", 12),
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
        for name in (system, f"{system}, planned") if entry else ():
            if name in entry["systems"]:
                at = f"{model}, {entry['ratio']:.1f} : 1, {what}: no cache over {name}"
                found.append(report.goal(at, entry["systems"][name]["gain"][what], ">=", limit))
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
        every = {*STREAMS, "ratios"}
        kept = out.exists() and set(parts) != every
        result: Figures = json.loads(out.read_text()) if kept else {}
        others = [name for name, value in settings.items() if result.get(name, value) != value]
        if others:
            names = ", ".join(others)
            raise ValueError(f"{out} is of other {names}; measure all parts, or give another --out")
        result |= {**settings, "machine": machine()}
        models = result.setdefault("models", {})
        for part in parts:
            if part in STREAMS:
                models[part] = program.model(part)
            else:
                result["ratios"] = program.ratios()
            result["goals"] = goals(models)
            report.write(result, out)
    finally:
        program.close()
    report.finish(result, out, __file__)
