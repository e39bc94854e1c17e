"""Turns of systems on links of a given rate, and what is made of their times."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.slow_link import jobs
from benchmarks.slow_link.control import Workers

Figures = dict[str, Any]


def het(bound: int) -> dict[str, Any]:
    """HET's own setting: one bound for all rows, whose clocks are asked, and which travel as they are."""
    cache = {"staleness": {"pull": bound, "push": bound}, "wire": "float32", "checks": "asked"}
    return {"kind": "het", "cache": cache}


SYSTEMS: dict[str, dict[str, Any]] = {
    "local": {"kind": "local"},
    "allgather": {"kind": "allgather"},
    "no cache": {"kind": "het", "cache": {"staleness": 0, "rows": 0}},
    "s=10": het(10),
    "s=100": het(100),
    "default": {"kind": "het", "cache": {}},
    "adagrad": {"kind": "het", "cache": {}, "adagrad": True},
}
# Steps of one turn. Rows of every batch are pushed every s steps or s + 1: a turn is a whole period or more.
STEPS = {"s=10": 33, "s=100": 101, "default": 62, "adagrad": 62}
FEW = 8
SETTLE = 3


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much is measured.

    Attributes:
      warm: steps that fill caches.
      rounds: turns of each system in a setting.
      dim: floats of a row.
      samples: of the stream.
      steps: what the steps of a turn are multiplied by.
      settings: of the models' part: what the rate is multiplied by; in "all", dense gradients share the link.
      systems: those of the models' part.
      given: in place of what `calibrate` finds.
    """

    warm: int = 400
    rounds: int = 2
    dim: int = 128
    samples: int = 524_288
    steps: float = 1.0
    settings: dict[str, int] = dataclasses.field(
        default_factory=lambda: {"rows": 1, "all": 1, "rows, 10x": 10}
    )
    systems: tuple[str, ...] = tuple(SYSTEMS)
    given: Figures | None = None

    def turn(self, system: str) -> int:
        return max(3, round(self.steps * STEPS.get(system, FEW)))


QUICK = Scale(
    warm=12,
    rounds=1,
    dim=16,
    samples=65_536,
    steps=0.2,
    settings={"rows": 1, "all": 1},
    systems=("local", "allgather", "no cache", "s=100"),
    given={"rate": 2e6},
)


@dataclasses.dataclass(frozen=True)
class Link:
    """A setting of the links.

    Attributes:
      rate: bytes a second, each way; None: not limited.
      dense: whether the all-reduce of dense gradients passes over them, too.
    """

    rate: float | None = None
    dense: bool = False


class Session:
    """The workers of one launch, and the links around them."""

    def __init__(self, place: jobs.Place, workers: Workers, scale: Scale) -> None:
        self.place, self.workers, self.scale = place, workers, scale
        self.dense_bytes = 0
        self._link: Link | None = None

    def make(self, systems: Sequence[str]) -> None:
        """Builds systems and warms them up on an unlimited link."""
        self.set(Link())
        for system in systems:
            answer = self.workers.ask({"do": "make", "system": system}, timeout=120)[0]
            self.dense_bytes = answer["dense_bytes"]
            cached = SYSTEMS.get(system, {}).get("cache", {"rows": 0}).get("rows") != 0
            warm = self.scale.warm if cached else min(10, self.scale.warm)
            self.workers.ask({"do": "run", "system": system, "steps": warm}, timeout=300)

    def set(self, link: Link) -> None:
        if link == self._link:
            return
        self.place.network.set_rate(link.rate, link.dense)
        self._link = link

    def bytes(self) -> tuple[int, int]:
        """Bytes on all links between hosts and switch, each once, and those on the server's link."""
        counted = self.place.network.bytes()
        return sum(sent for sent, _ in counted.values()), sum(counted["server"])

    def turn(self, system: str, link: Link, steps: int | None = None) -> Figures:
        """Runs some steps of a system: seconds of one, mean and median, and bytes of one of all workers."""
        steps = steps or self.scale.turn(system)
        if link != self._link:
            # Routes and what TCP knows of a path are new: these steps are not those of the setting.
            self.set(link)
            self.workers.ask({"do": "run", "system": system, "steps": SETTLE}, timeout=120)
        before = self.bytes()
        answers = self.workers.ask({"do": "run", "system": system, "steps": steps}, timeout=60 + 10 * steps)
        after = self.bytes()
        if not all(math.isfinite(answer["loss"]) for answer in answers):
            raise RuntimeError(f"{system}: the loss is {answers}; its workers do not train")
        return {
            "step": max(answer["seconds"] for answer in answers) / steps,
            "median_step": max(answer.get("median", answer["seconds"] / steps) for answer in answers),
            "bytes": (after[0] - before[0]) / steps,
            "server_bytes": (after[1] - before[1]) / steps,
        }

    def measure(self, systems: Sequence[str], link: Link) -> dict[str, Figures]:
        """Turns of systems by turns; medians of all rounds. "compute" is local's step on unlimited links."""
        turns: dict[str, list[Figures]] = {}
        for _ in range(self.scale.rounds):
            for name, of, at in (
                ("compute", "local", Link()),
                *((system, system, link) for system in systems),
            ):
                steps = None if of != "local" else 3 * FEW
                turns.setdefault(name, []).append(self.turn(of, at, steps))
        return {name: medians(each) for name, each in turns.items()}


def medians(turns: list[Figures]) -> Figures:
    return {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}


def say(text: str) -> None:
    print(text, flush=True)


def summary(measured: dict[str, Figures], link: Link) -> Figures:
    """The figures of one setting: communication is what a step takes beyond its computing."""
    compute = measured["compute"]["step"]
    systems = {}
    for name, figures in measured.items():
        if name != "compute":
            systems[name] = {**figures, "communication": figures["step"] - compute}
    result: Figures = {**dataclasses.asdict(link), "compute": compute, "systems": systems}
    if "no cache" in systems:
        result["ratio"] = systems["no cache"]["communication"] / compute
    return result


def share_compute(settings: Sequence[Figures]) -> None:
    """Gives summaries of one launch the median of their computing, which is the same at every link.

    The few turns of one setting may all fall into a moment in which the machine is busy with something else.
    """
    compute = statistics.median(entry["compute"] for entry in settings)
    for entry in settings:
        entry["compute_here"], entry["compute"] = entry["compute"], compute
        for figures in entry["systems"].values():
            figures["communication"] = figures["step"] - compute
        if "no cache" in entry["systems"]:
            without = entry["systems"]["no cache"]
            entry["ratio"] = without["communication"] / compute
            for figures in entry["systems"].values():
                figures["gain"] = {what: without[what] / figures[what] for what in ("communication", "step")}
                if figures["communication"] < 0.1 * compute:  # turns of computing differ by as much
                    figures["gain"]["communication"] = None


def calibrate(session: Session, ratio: float) -> Figures:
    """Finds the rate at which communication without cache takes `ratio` times the computing.

    Communication at a rate R is o + B / R: o is what it costs on an unlimited link (processors, kernel), B
    the bytes that go one after the other. Both are measured here, B at a first guess of R.

    Returns:
      rate (None: even an unlimited link gives a larger ratio), compute, unlimited (o), and reached: the
      ratio at that rate.
    """
    free = session.measure(["no cache"], Link())
    compute = free["compute"]["step"]
    unlimited = free["no cache"]["step"] - compute
    wanted = ratio * compute - unlimited
    if wanted <= 0:
        return {"rate": None, "compute": compute, "unlimited": unlimited, "reached": unlimited / compute}
    rate = free["no cache"]["server_bytes"] / wanted

    def communication() -> float:
        turns = [session.turn("no cache", Link(rate)) for _ in range(session.scale.rounds)]
        return float(medians(turns)["step"] - compute)

    for _ in range(2):
        # Other processes of the machine disturb a turn; the bytes alone say where the rate is, by and large.
        rate *= min(2.0, max(0.5, (communication() - unlimited) / wanted))
    reached = communication() / compute
    return {"rate": rate, "compute": compute, "unlimited": unlimited, "reached": reached}


def shown(rate: float | None) -> str:
    return "no limit" if rate is None else f"{8e-6 * rate:.0f} Mb/s"


def line(entry: Figures) -> str:
    cells = (f"{name} {1e3 * figures['step']:.1f}" for name, figures in entry["systems"].items())
    return (
        f"ratio {entry.get('ratio', float('nan')):.1f}; ms a step: compute {1e3 * entry['compute']:.1f}, "
        + ", ".join(cells)
    )
