"""The tables that update_docs.py makes of benchmarks/results/traffic.json, and the goals judged there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Figures = dict[str, Any]

# What HET reaches in a model of its traffic (8 workers, 128 floats, cache of 10 %), if one step is one tick
# and the policy is LFU: percent of rows saved.
HET_ROWS = {"10": 67.9, "100": 86.9, "unbounded": 89.7}
HET_CACHE = {0.01: 80.6, 0.03: 84.8, 0.05: 85.8, 0.1: 86.9, 0.15: 87.4}
HET_WORKERS = {2: 82.5, 8: 67.9}
HET_WORKERS_ALL = {2: 87.0, 8: 73.7}
HET_BYTES = {16: 72.9}
CLASSES = ("miss_pull", "update_pull", "bound_push", "evict_push")
ACROSS = 20
"""Batches after which the hit rate is to be back."""


def find(runs: list[Figures], **wanted: object) -> Figures:
    """Returns the run with these settings."""
    for run in runs:
        if all(run[name] == value for name, value in wanted.items()):
            return run
    raise KeyError(f"no run has {wanted}")


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def table(head: list[str], rows: list[list[str]], words: int = 1) -> list[str]:
    """Returns the lines of a table whose first `words` columns are words, and the others numbers."""
    marks = ["---"] * words + ["--:"] * (len(head) - words)
    return ["| " + " | ".join(cells) + " |" for cells in (head, marks, *rows)]


def missed_at_most(run: Figures) -> int | None:
    """Returns I3's bound: foreign ticks that a read may miss; None: there is none."""
    if run["bound"] == "unbounded":
        return None
    bound = int(run["bound"])
    return int(bound + (run["workers"] - 1) * (bound + 1))


def steady_rate(rates: list[float]) -> float:
    """Returns the mean hit rate of the last batches before the change, which is in the middle."""
    before = rates[: len(rates) // 2][-ACROSS:]
    return sum(before) / len(before)


def back_after(rates: list[float]) -> tuple[int | None, int | None]:
    """Returns the steps until the hit rate is at 90 % of steady: of an empty cache, and after the change."""
    middle = len(rates) // 2
    steady = steady_rate(rates)

    def first(part: list[float]) -> int | None:
        return next((step for step, rate in enumerate(part) if rate >= 0.9 * steady), None)

    return first(rates[:middle]), first(rates[middle:])


def goals(result: Figures) -> list[Figures]:
    """Returns what is judged: {goal, limit, value, met, het}, in percent, points, bytes or batches."""
    sweeps = result["sweeps"]
    entries: list[Figures] = []

    def judge(goal: str, value: float, limit: float, at_least: bool = True, het: float | None = None) -> None:
        met = value >= limit if at_least else value <= limit
        entries.append(
            {"goal": goal, "value": value, "limit": limit, "at_least": at_least, "met": met, "het": het}
        )

    dims, workers = sweeps["dims"], sweeps.get("workers", [])
    for bound, limit in (("10", 66), ("100", 88)):
        run = find(dims, bound=bound, dim=128)
        judge(f"rows saved, s={bound}, %", 100 * run["rows_saved"], limit, het=HET_ROWS[bound])
    for dim, limit in ((16, 90), (128, 93)):
        run = find(dims, bound="100", dim=dim)
        judge(f"bytes saved, s=100, {dim} floats, %", 100 * run["bytes_saved"], limit, het=HET_BYTES.get(dim))
    for count in (2, 8) if workers else ():
        own, limit_run = (find(workers, workers=count, cache=cache) for cache in (0.1, 1))
        gap = 100 * (limit_run["rows_saved"] - own["rows_saved"])
        of_het = HET_WORKERS_ALL[count] - HET_WORKERS[count]
        judge(f"s=10, N={count}: below a cache of all rows, points", gap, 4, at_least=False, het=of_het)
    run = find(dims, bound="100", dim=16)
    judge("bytes of a checked key", run["bytes_a_check"], 6, at_least=False, het=16)
    judge("bytes of keys, clocks and ticks, a row", run["key_bytes_a_row"], 8, at_least=False, het=16)
    for run in sweeps.get("changed", []):
        if run["admit"] != 1:
            continue
        _, back = back_after(run["hit_rates"])
        after = len(run["hit_rates"]) // 2 if back is None else back
        judge(f"{run['policy']}: batches to 90 % of the hit rate", after, ACROSS, at_least=False)
    return entries


def goal_table(result: Figures) -> list[str]:
    rows = []
    for entry in goals(result):
        sign = "at least" if entry["at_least"] else "at most"
        het = "-" if entry["het"] is None else f"{entry['het']:.1f}"
        mark = "met" if entry["met"] else "**missed**"
        rows.append([mark, f"{entry['goal']}: {sign} {entry['limit']}", f"{entry['value']:.1f}", het])
    return [*table(["", "goal", "measured", "HET"], rows, words=2), *footer(result)]


def footer(result: Figures) -> list[str]:
    base = result["sweeps"]["dims"][0]
    return [
        "",
        f"`{result['command']}`: {result['samples']:,} samples of stream {result['seed']}, "
        f"{base['distinct']:,} distinct rows, {base['unique_ids']:.0f} unique ids in a batch of "
        f"{result['batch']}.",
    ]


def staleness(result: Figures) -> list[str]:
    runs = result["sweeps"]["staleness"]
    head = ["s", "rows saved", "all rows cached", "bytes saved", "miss pull", "update pull", "bound push"]
    head += ["evict push", "checks", "missed: mean", "p99", "max", "allowed (I3)", "round trips"]
    lines = []
    for run in runs:
        if run["cache"] == 1:
            continue
        best = [percent(of["rows_saved"]) for of in runs if of["cache"] == 1 and of["bound"] == run["bound"]]
        seen, allowed = run["staleness"], missed_at_most(run)
        classes = [f"{run['rows_by_class'][name]:.0f}" for name in CLASSES]
        lines.append(
            [
                run["bound"],
                percent(run["rows_saved"]),
                *(best or ["-"]),
                percent(run["bytes_saved"]),
                *classes,
                f"{run['checks']:.0f}",
                f"{seen['mean']:.1f}",
                f"{seen['p99']}",
                f"{seen['max']}",
                "-" if allowed is None else f"{allowed}",
                f"{run['round_trips']:.2f}",
            ]
        )
    return table(head, lines)


def byte_classes(result: Figures) -> list[str]:
    names = [*CLASSES, "keys", "checks", "heads"]
    kind = {"stream": "criteo_scaled", "samples": result["samples"], "dim": 16, "partitions": 64}
    without = find(result["baselines"], **kind)
    runs = [run for run in result["sweeps"]["staleness"] if run["cache"] == 0.1]
    lines = []
    for label, run in [("no cache", without), *((f"s={run['bound']}", run) for run in runs)]:
        of = run["bytes_by_class"]
        free = (0, of["heads"], of["heads"] + of["checks"])
        saved = [percent(1 - (run["bytes"] - less) / without["bytes"]) for less in free]
        lines.append([label, f"{run['bytes']:,.0f}", *(f"{of[name]:,.0f}" for name in names), *saved])
    head = [
        "",
        "all",
        *(name.replace("_", " ") for name in CLASSES),
        "keys, clocks, ticks",
        "checks",
        "heads",
    ]
    return table([*head, "saved", "if heads were free", "and checks"], lines)


def dims(result: Figures) -> list[str]:
    runs = result["sweeps"]["dims"]
    sizes = list(dict.fromkeys(run["dim"] for run in runs))
    lines = []
    for bound in ("10", "100"):
        cells = [percent(find(runs, bound=bound, dim=dim)["bytes_saved"]) for dim in sizes]
        lines.append([f"s={bound}", percent(find(runs, bound=bound, dim=sizes[0])["rows_saved"]), *cells])
    return table(["", "rows saved", *(f"bytes, {dim} floats" for dim in sizes)], lines)


def workers(result: Figures) -> list[str]:
    runs = result["sweeps"]["workers"]
    lines = []
    for run in runs:
        if run["cache"] == 1:
            continue
        best = find(runs, workers=run["workers"], cache=1)
        seen = run["staleness"]
        lines.append(
            [str(run["workers"]), percent(run["rows_saved"]), percent(best["rows_saved"])]
            + [percent(best["rows_saved"] - run["rows_saved"])]
            + [f"{of.get(run['workers'], '-')}" for of in (HET_WORKERS, HET_WORKERS_ALL)]
            + [percent(run["bytes_saved"]), f"{seen['mean']:.1f}", f"{seen['p99']}", f"{seen['max']}"]
        )
    head = [
        "N",
        "rows saved",
        "all rows cached",
        "points below",
        "HET",
        "HET, all rows cached",
        "bytes saved",
    ]
    return table([*head, "missed: mean", "p99", "max"], lines)


def cache(result: Figures) -> list[str]:
    runs = result["sweeps"]["cache"]
    shares = list(dict.fromkeys(run["cache"] for run in runs))
    lines = []
    for policy in dict.fromkeys(run["policy"] for run in runs):
        of = {run["cache"]: percent(run["rows_saved"]) for run in runs if run["policy"] == policy}
        lines.append([policy, *(of.get(share, "-") for share in shares)])
    admitted = {run["admit"] for run in result["sweeps"].get("admission", [])} - {1}
    for admit in sorted(admitted):
        of = {
            r["cache"]: percent(r["rows_saved"]) for r in result["sweeps"]["admission"] if r["admit"] == admit
        }
        lines.append([f"lfu, admitted at step {admit}", *(of.get(share, "-") for share in shares)])
    static = result["best_static"]
    lines.append(["best static cache, s unbounded", *(percent(static[str(share)]) for share in shares)])
    lines.append(["HET, lfu", *(f"{HET_CACHE[share]}" for share in shares)])
    return table(["rows saved at s=100", *(f"{100 * share:.0f} %" for share in shares)], lines)


def partitions(result: Figures) -> list[str]:
    lines = []
    for run in result["sweeps"].get("partitions", []):
        lines.append(
            [
                str(run["partitions"]),
                percent(run["bytes_saved"]),
                f"{run['bytes']:,.0f}",
                f"{run['bytes_by_class']['heads']:,.0f}",
                f"{run['frames'] / 2:.1f}",
            ]
        )
    return table(["partitions", "bytes saved", "bytes a step", "of these heads", "requests a step"], lines)


def unscaled(result: Figures) -> list[str]:
    lines = []
    for run in [*result["sweeps"].get("unscaled", []), find(result["sweeps"]["dims"], bound="100", dim=16)]:
        classes = [f"{run['rows_by_class'][name]:.0f}" for name in ("miss_pull", "evict_push")]
        lines.append(
            [
                run["stream"],
                f"{run['samples']:,}",
                f"{run['distinct']:,}",
                percent(run["rows_saved"]),
                percent(run["bytes_saved"]),
                *classes,
            ]
        )
    head = ["stream", "samples", "distinct rows", "rows saved", "bytes saved", "miss pull", "evict push"]
    return table(head, lines)


def real(result: Figures) -> list[str]:
    lines = []
    for name in ("census", "movielens"):
        for run in result["sweeps"].get(name, []):
            seen = run["staleness"]
            lines.append(
                [
                    name,
                    run["bound"],
                    percent(run["rows_saved"]),
                    percent(run["bytes_saved"]),
                    percent(run["hit_rate"]),
                    f"{seen['mean']:.1f}",
                    f"{seen['p99']}",
                    f"{seen['max']}",
                ]
            )
    head = ["stream", "s", "rows saved", "bytes saved", "hit rate", "missed: mean", "p99", "max"]
    return table(head, lines)


def changed(result: Figures) -> list[str]:
    lines = []
    for run in result["sweeps"].get("changed", []):
        rates = run["hit_rates"]
        middle = len(rates) // 2
        empty, after = back_after(rates)
        lines.append(
            [run["policy"], str(run["admit"]), percent(steady_rate(rates))]
            + [percent(part[min(ACROSS, middle - 1)]) for part in (rates[:middle], rates[middle:])]
            + [f"{'never' if step is None else step}" for step in (empty, after)]
        )
    head = ["policy", "admitted at step", "before the change", f"empty cache, batch {ACROSS}"]
    head += [f"batch {ACROSS} after the change", "90 % from empty, batches", "90 % after the change, batches"]
    return table(head, lines)


# The sweep that each table needs, and its figures: {name in docs/img/traffic_NAME.png: what it shows}.
NEEDS: dict[str, tuple[Callable[[Figures], list[str]], str, dict[str, str]]] = {
    "goals": (goal_table, "dims", {}),
    "staleness": (
        staleness,
        "staleness",
        {
            "staleness": "rows and bytes saved, by bound",
            "observed": "updates that reads missed, by bound",
        },
    ),
    "bytes": (byte_classes, "staleness", {"bytes": "bytes of a step by class, by bound"}),
    "dims": (dims, "dims", {"dims": "rows and bytes saved, by floats a row"}),
    "workers": (workers, "workers", {"workers": "rows saved, by number of workers"}),
    "cache": (cache, "cache", {"cache": "rows saved, by size of the cache"}),
    "partitions": (partitions, "partitions", {}),
    "unscaled": (unscaled, "unscaled", {}),
    "real": (real, "movielens", {"real": "rows and bytes saved on real streams, by bound"}),
    "changed": (changed, "changed", {"changed": "hit rate around a change of all ids"}),
}


def writer(name: str) -> Callable[[Figures], list[str]]:
    """Returns what writes the table `name` and links its figures, or says how to run what is missing."""
    write, sweep, figures = NEEDS[name]

    def lines(result: Figures) -> list[str]:
        if sweep not in result["sweeps"]:
            return [f"Not run yet: `python benchmarks/traffic.py --only {sweep}`."]
        images = [f"![{text}](img/traffic_{image}.png)" for image, text in figures.items()]
        return [*write(result), *([""] if images else []), *images]

    return lines


WRITERS = {name: writer(name) for name in NEEDS}
