"""The tables that update_docs.py makes of benchmarks/results/slow_link.json, and the goals judged there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from traffic_tables import table

Figures = dict[str, Any]

NAMES = {"wide_deep": "Wide & Deep", "deepfm": "DeepFM", "dcn": "DCN", "graphsage": "GraphSAGE"}
SYSTEM_NAMES = {
    "local": "rows not exchanged",
    "allgather": "Horovod all-gather",
    "strategy": "ParameterServerStrategy",
}
# (model, what, system, factor of the rate, at least, of HET)
GOALS: tuple[tuple[str, str, str, int, float, float | None], ...] = (
    ("wide_deep", "communication", "default", 1, 12, None),
    ("wide_deep", "communication", "s=100", 1, 8.2, 8.2),
    ("wide_deep", "communication", "s=10", 1, 2.9, 2.9),
    ("wide_deep", "step", "s=100", 1, 5.1, 5.14),
    ("wide_deep", "communication", "s=100", 10, 1.8, 1.8),
    ("graphsage", "communication", "default", 1, 8, None),
    ("graphsage", "step", "default", 1, 4.5, 4.71),
)
HET_OVER_PARALLAX = 20.68


def setting(model: Figures, factor: int, dense: bool) -> Figures | None:
    """Returns what was measured of a model at a rate; None if it was not."""
    for entry in model["settings"]:
        if entry["factor"] == factor and entry["dense"] == dense:
            return dict(entry)
    return None


def gain(entry: Figures, system: str, what: str) -> float:
    """Returns how many times the "communication" (or "step") of a system is in that of no cache."""
    systems = entry["systems"]
    return float(systems["no cache"][what] / systems[system][what])


def gain_text(entry: Figures, system: str, what: str) -> str:
    """Returns the gain; "-" where communication is less than what turns of computing differ by."""
    small = entry["systems"][system]["communication"] < 0.1 * entry["compute"]
    return "-" if what == "communication" and small else f"{gain(entry, system, what):.2f}"


def goals(result: Figures) -> list[Figures]:
    """Returns what is judged: {goal, limit, value, met, het}."""
    entries: list[Figures] = []
    for model, what, system, factor, limit, het in GOALS:
        of_model = result.get("models", {}).get(model)
        entry = setting(of_model, factor, dense=False) if of_model else None
        if entry is None:
            continue
        for name in (system, f"{system}, look-ahead", f"{system}, planned"):
            if name not in entry["systems"]:
                continue
            value = gain(entry, name, what)
            text = "communication" if what == "communication" else "end to end"
            at = f"at {entry['ratio']:.1f} : 1"
            goal = (
                f"{NAMES[model]}, {at}{', 10x the rate' if factor == 10 else ''}: {text}, no cache / {name}"
            )
            entries.append({"goal": goal, "limit": limit, "value": value, "met": value >= limit, "het": het})
    for name, trips in (hit_round_trips(result) or {}).items():
        if name.startswith(("s=1", "default")):
            goal = f"round trips that an all-hit step waits for (a tenth is the clock's), {name}"
            entries.append({"goal": goal, "limit": 1.1, "value": trips, "met": trips <= 1.1, "het": None})
    return entries


def hit_round_trips(result: Figures) -> dict[str, float] | None:
    """Returns how many round trips a step waits for when all its rows are cached, by system.

    That is by how much the median step gets longer, over the latency that is added to a round trip. (Steps
    that push all rows at once, one of s, are not the median.)
    """
    latency = result.get("latency")
    if not latency:
        return None
    first, last = latency["settings"][0], latency["settings"][-1]
    added = last["round_trip"] - first["round_trip"]
    return {
        name: (figures["median_step"] - first["hits"][name]["median_step"]) / added
        for name, figures in last["hits"].items()
    }


def goal_table(result: Figures) -> list[str]:
    rows = []
    for entry in goals(result):
        mark = "met" if entry["met"] else "**missed**"
        het = "-" if entry["het"] is None else f"{entry['het']:.1f}"
        sign = "at most" if entry["goal"].startswith("round trips") else "at least"
        rows.append([mark, f"{entry['goal']}: {sign} {entry['limit']}", f"{entry['value']:.2f}", het])
    return [*table(["", "goal", "measured", "HET"], rows, words=2), *footer(result)]


def footer(result: Figures) -> list[str]:
    machine = result["machine"]
    return [
        "",
        f"`{result['command']}`: {result['workers']} workers and a shard on {machine['processor']}, "
        f"{machine['cores']} cores; {result['dim']} floats a row, batches of {result['batch']}, perceptron "
        f"{tuple(result['hidden'])}, caches of 10 % of "
        + " or ".join(
            f"{rows:,}" for rows in dict.fromkeys(of["distinct"] for of in result["models"].values())
        )
        + f" rows. {machine['versions']}.",
        *([] if not result["relay"] else ["", f"Through the user-space relay: {result['relay']}."]),
    ]


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.1f}"


def hours(result: Figures, step: float) -> str:
    """Returns the time of an epoch of the stream."""
    return f"{step * result['epoch'] / result['batch'] / result['workers'] / 60:.1f}"


def megabits(rate: float | None) -> str:
    return "no limit" if rate is None else f"{8e-6 * rate:.0f}"


def models(result: Figures) -> list[str]:
    head = [
        "model",
        "Mb/s",
        "",
        "step, ms",
        "communication, ms",
        "of computing",
        "no cache / it",
        "end to end",
    ]
    head += ["kB a step", "epoch, minutes"]
    rows = []
    for model, of in result["models"].items():
        for factor in (1, 10):
            entry = setting(of, factor, dense=False)
            for name, figures in (entry or {"systems": {}})["systems"].items():
                assert entry is not None
                share = figures["communication"] / entry["compute"]
                rows.append([
                    NAMES[model], megabits(entry["rate"]), name, milliseconds(figures["step"]),
                    milliseconds(figures["communication"]), f"{share:.1f}",
                    gain_text(entry, name, "communication"), gain_text(entry, name, "step"),
                    f"{1e-3 * figures['server_bytes']:,.0f}", hours(result, figures["step"]),
                ])  # fmt: skip
    return table(head, rows, words=3)


def with_strategy(result: Figures, model: str, entry: Figures) -> Figures:
    """Returns the systems of a setting, and with them ParameterServerStrategy at the same rate."""
    systems = dict(entry["systems"])
    for peer in result.get("strategy", {}).get(model, []):
        if peer["rate"] == entry["rate"]:
            systems["strategy"] = {**peer, "communication": peer["step"] - entry["compute"]}
    return systems


def peers(result: Figures) -> list[str]:
    head = ["model", "Mb/s", "", "step, ms", "its step / s=100's", "kB a step, all links", "20.68x at, Mb/s"]
    rows = []
    for model, of in result["models"].items():
        both = [entry for entry in (setting(of, factor, dense=True) for factor in (1, 10)) if entry]
        for entry in both:
            systems = with_strategy(result, model, entry)
            for name, figures in systems.items():
                at = "-"
                if name in ("allgather", "strategy") and len(both) == 2:
                    at = reached_at(*(with_strategy(result, model, each) for each in both), name, both)
                rows.append([
                    NAMES[model], megabits(entry["rate"]), SYSTEM_NAMES.get(name, name),
                    milliseconds(figures["step"]), f"{figures['step'] / systems['s=100']['step']:.2f}",
                    f"{1e-3 * figures['bytes']:,.0f}", at,
                ])  # fmt: skip
    if not rows:
        return [f"Not measured: peers need network namespaces ({result['relay']})."]
    return table(head, rows, words=3)


def reached_at(slow: Figures, fast: Figures, peer: str, at: list[Figures]) -> str:
    """Returns the rate at which a peer's step is 20.68 times that of s=100, by lines through two rates.

    A step takes a + b / rate. The ratio of two such lines grows towards b / b' as the rate falls.
    """
    if peer not in slow or peer not in fast:
        return "-"
    inverse = [1 / entry["rate"] for entry in at]

    def line(name: str) -> tuple[float, float]:
        b = (slow[name]["step"] - fast[name]["step"]) / (inverse[0] - inverse[1])
        return fast[name]["step"] - b * inverse[1], b

    (a, b), (own_a, own_b) = line(peer), line("s=100")
    if own_b <= 0 or b / own_b <= HET_OVER_PARALLAX:
        return f"never; at most {b / own_b:.1f}x" if own_b > 0 else "never"
    return f"{8e-6 * (b - HET_OVER_PARALLAX * own_b) / (HET_OVER_PARALLAX * own_a - a):.1f}"


def ratios(result: Figures) -> list[str]:
    settings = sorted(ratio_settings(result), key=lambda entry: float(entry["ratio"]))
    every = dict.fromkeys(name for entry in settings for name in entry["systems"])
    names = [name for name in every if name not in ("local", "no cache", "allgather")]
    head = ["communication : computing, no cache", "Mb/s", "computing, ms (then)"]
    head += [f"communication, / {name}" for name in names] + [f"end to end, / {name}" for name in names]
    rows = []
    for entry in settings:
        cells = [
            gain_text(entry, name, what) if name in entry["systems"] else "-"
            for what in ("communication", "step")
            for name in names
        ]
        compute = entry["compute"]
        times = f"{1e3 * compute:.1f} ({1e3 * entry.get('compute_here', compute):.1f})"
        rows.append([f"{entry['ratio']:.1f} : 1", megabits(entry["rate"]), times, *cells])
    figure = "![communication and step time against no cache, by ratio](img/slow_link_ratios.png)"
    return [*table(head, rows), "", figure]


def ratio_settings(result: Figures) -> list[Figures]:
    """Returns all settings of Wide & Deep with the dense part apart."""
    found = list(result["ratios"]["settings"])
    model = result.get("models", {}).get("wide_deep", {"settings": []})
    return found + [entry for entry in model["settings"] if not entry["dense"]]


def latency(result: Figures) -> list[str]:
    settings = result["latency"]["settings"]
    head = ["", *(f"step, +{1e3 * entry['round_trip']:g} ms" for entry in settings)]
    head += ["round trips", *(f"all hits, +{1e3 * entry['round_trip']:g} ms" for entry in settings)]
    head += ["round trips", "bytes a step"]
    first, last = settings[0], settings[-1]
    added = last["round_trip"] - first["round_trip"]
    hit_trips = hit_round_trips(result) or {}
    rows = []
    for name, figures in last["systems"].items():
        trips = (figures["step"] - first["systems"][name]["step"]) / added
        cells = [milliseconds(entry["systems"][name]["step"]) for entry in settings] + [f"{trips:.1f}"]
        if name in last["hits"]:
            cells += [milliseconds(entry["hits"][name]["median_step"]) for entry in settings]
            cells += [f"{hit_trips[name]:.1f}", f"{last['hits'][name]['server_bytes']:,.0f}"]
        else:
            cells += ["-"] * (len(settings) + 2)
        rows.append([name, *cells])
    return table(head, rows)


# A table needs this part of the result; else it says so.
NEEDS = {
    "goals": "models", "models": "models", "peers": "models", "ratios": "ratios", "latency": "latency",
}  # fmt: skip


def unless_missing(name: str, write: Callable[[Figures], list[str]]) -> Callable[[Figures], list[str]]:
    def checked(result: Figures) -> list[str]:
        if not result.get(NEEDS[name]):
            return ["Not run yet: `python benchmarks/slow_link.py`."]
        return write(result)

    return checked


WRITERS = {
    name: unless_missing(name, write)
    for name, write in (
        ("goals", goal_table),
        ("models", models),
        ("peers", peers),
        ("ratios", ratios),
        ("latency", latency),
    )
}
