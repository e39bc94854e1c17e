"""The tables that update_docs.py makes of benchmarks/results/traffic.json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from traffic_goals import (
    ACROSS,
    CLASSES,
    HET_CACHE,
    HET_WORKERS,
    HET_WORKERS_ALL,
    alike,
    back_after,
    find,
    goals,
    limit_of,
    missed_at_most,
    no_cache,
    steady_rate,
)

Figures = dict[str, Any]


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def table(head: list[str], rows: list[list[str]], words: int = 1) -> list[str]:
    """Returns the lines of a table whose first `words` columns are words, and the others numbers."""
    marks = ["---"] * words + ["--:"] * (len(head) - words)
    return ["| " + " | ".join(cells) + " |" for cells in (head, marks, *rows)]


def goal_table(result: Figures) -> list[str]:
    rows = []
    for entry in goals(result):
        sign = "at least" if entry["at_least"] else "at most"
        others = [number(entry[name]) for name in ("best", "het")]
        mark = "met" if entry["met"] else "**missed**"
        rows.append([mark, f"{entry['goal']}: {sign} {entry['limit']}", f"{entry['value']:.1f}", *others])
    return [*table(["", "goal", "measured", "possible", "HET"], rows, words=2), *footer(result)]


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
    head = ["bound", "rows saved", "possible", "all rows cached", "bytes saved", "miss pull", "update pull"]
    head += ["bound push"]
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
                number(limit_of(result, run)),
                *(best or ["-"]),
                percent(run["bytes_saved"]),
                *classes,
                f"{run['checked']:.0f}",
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
    without = no_cache(result)
    runs = [run for run in result["sweeps"]["staleness"] if run["cache"] == 0.1]
    lines = []
    for label, run in [("no cache", without), *((run["bound"], run) for run in runs)]:
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
    for bound in ("10/10", "100/100"):
        cells = [percent(find(runs, bound=bound, dim=dim)["bytes_saved"]) for dim in sizes]
        lines.append([bound, percent(find(runs, bound=bound, dim=sizes[0])["rows_saved"]), *cells])
    return table(["", "rows saved", *(f"bytes, {dim} floats" for dim in sizes)], lines)


def workers(result: Figures) -> list[str]:
    runs = result["sweeps"]["workers"]
    lines = []
    for run in runs:
        if run["cache"] == 1:
            continue
        best = find(runs, workers=run["workers"], cache=1)
        seen, possible = run["staleness"], limit_of(result, run)
        least = None if possible is None else 100 * best["rows_saved"] - possible
        lines.append(
            [str(run["workers"]), percent(run["rows_saved"]), percent(best["rows_saved"])]
            + [percent(best["rows_saved"] - run["rows_saved"]), number(least)]
            + [f"{of.get(run['workers'], '-')}" for of in (HET_WORKERS, HET_WORKERS_ALL)]
            + [percent(run["bytes_saved"]), f"{seen['mean']:.1f}", f"{seen['p99']}", f"{seen['max']}"]
        )
    head = [
        "N",
        "rows saved",
        "all rows cached",
        "points below",
        "least possible",
        "HET",
        "HET, all rows cached",
        "bytes saved",
    ]
    return table([*head, "missed: mean", "p99", "max"], lines)


def share(result: Figures) -> list[str]:
    def cells(run: Figures | None) -> list[str]:
        if run is None:
            return ["-"] * 4
        seen = run["staleness"]
        saved = [percent(run["rows_saved"]), percent(run["bytes_saved"])]
        return [*saved, f"{seen['mean']:.1f}", f"{seen['max']}"]

    lines = []
    for run in result["sweeps"]["share"]:
        own = alike(result, run, share=1, cache=0.1)
        both = zip(cells(own), cells(run), strict=True)
        size = f"{100 * run['cache']:.0f} %"
        settings = [str(run["workers"]), str(run["share"]), run["bound"], size]
        lines.append([*settings, *(cell for pair in both for cell in pair)])
    head = ["N", "workers a host", "bound", "cache of a host"]
    for what in ("rows saved", "bytes saved", "missed: mean", "missed: max"):
        head += [f"{what}, own caches", "shared"]
    return table(head, lines)


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
    base = find(runs, policy="lfu", cache=shares[0])
    possible = [number(limit_of(result, base | {"cache": share})) for share in shares]
    lines.append(["a cache that knows the future", *possible])
    lines.append(["HET, lfu", *(f"{HET_CACHE[share]}" for share in shares)])
    return table(["rows saved at 100/100", *(f"{100 * share:.0f} %" for share in shares)], lines)


def window(result: Figures) -> list[str]:
    """What caches send that know the next batches."""
    runs = result["sweeps"]["window"]
    windows = list(dict.fromkeys(run["window"] for run in runs))
    lines = []
    for stream, share in dict.fromkeys((run["stream"], run["cache"]) for run in runs):
        of = [run for run in runs if (run["stream"], run["cache"]) == (stream, share)]
        cells = []
        for bound, what in (("100/100", "rows_saved"), ("30", "bytes")):
            found = {run["window"]: run[what] for run in of if run["bound"] == bound}
            show = percent if what == "rows_saved" else "{:,.0f}".format
            cells += [show(found[size]) if size in found else "-" for size in windows]
        name = "graph" if stream == "graph" else "click stream"
        lines.append([f"{name}, {100 * share:.0f} %", *cells])
    head = [f"window {size}" if size else "no window" for size in windows]
    return table(
        [
            "cache",
            *(f"rows saved at 100/100, {of}" for of in head),
            *(f"bytes of the default, {of}" for of in head),
        ],
        lines,
    )


def wire(result: Figures) -> list[str]:
    lines = []
    runs = result["sweeps"]["wire"]
    formats = ["float32", *dict.fromkeys(run["wire"] for run in runs)]
    for dim, bound in dict.fromkeys((run["dim"], run["bound"]) for run in runs):
        one = find(runs, dim=dim, bound=bound)
        of = [alike(result, one, wire=name) for name in formats]
        cells = [
            number(None if run is None else 100 * run[what])
            for what in ("rows_saved", "bytes_saved")
            for run in of
        ]
        lines.append([str(dim), bound, *cells])
    head = [f"{what}, {name}" for what in ("rows saved", "bytes saved") for name in formats]
    return table(["floats", "bound", *head], lines)


def told(result: Figures) -> list[str]:
    lines = []
    for run in result["sweeps"]["told"]:
        for of in (alike(result, run, checks="asked"), run):
            if of is None:
                continue
            by_class, seen = of["bytes_by_class"], of["staleness"]
            rows = [f"{of['checked']:.0f}", f"{of['rows_by_class']['update_pull']:.0f}"]
            lines.append(
                [
                    str(of["dim"]),
                    of["bound"],
                    of["wire"],
                    of["checks"],
                    percent(of["bytes_saved"]),
                    *(f"{size:,.0f}" for size in (of["bytes"], by_class["checks"], by_class["heads"])),
                    *rows,
                    f"{of['round_trips']:.2f}",
                    number(seen["mean"]),
                    "-" if seen["max"] is None else f"{seen['max']}",
                ]
            )
    head = ["floats", "bound", "rows", "checks", "bytes saved", "bytes a step", "of these checks", "heads"]
    head += ["checked rows", "update pull", "round trips", "missed: mean", "max"]
    return table(head, lines, words=4)


def placed(result: Figures) -> list[str]:
    as_they_come = [run for run in result["sweeps"].get("staleness", []) if run["cache"] == 0.1]
    lines = []
    for run in result["sweeps"].get("placed", []):
        others = [of for of in as_they_come if of["bound"] == run["bound"]]
        for of in [*others, run] if run["placed"] == result["sweeps"]["placed"][0]["placed"] else [run]:
            lines.append(
                [
                    of["bound"],
                    of.get("placed") or "-",
                    percent(of["rows_saved"]),
                    percent(of["bytes_saved"]),
                    f"{of['unique_ids']:.0f}",
                    *(f"{of['rows_by_class'][name]:.0f}" for name in CLASSES),
                    f"{of['staleness']['mean']:.1f}",
                ]
            )
    head = ["bound", "placed by", "rows saved", "bytes saved", "unique ids", "miss pull", "update pull"]
    head += ["bound push", "evict push", "missed: mean"]
    return table(head, sorted(lines, key=lambda cells: int(cells[0].split("/")[0])), words=2)


def default(result: Figures) -> list[str]:
    lines = [
        [
            str(of["workers"]),
            str(of["dim"]),
            of["bound"],
            of["wire"],
            of["placed"] or "-",
            percent(of["bytes_saved"]),
            percent(of["rows_saved"]),
            f"{of['bytes']:,.0f}",
            f"{of['bytes_by_class']['heads']:,.0f}",
            *(f"{of['rows_by_class'][name]:.0f}" for name in CLASSES),
        ]
        for of in result["sweeps"]["default"]
    ]
    head = ["workers", "floats", "bound", "rows", "placed by", "bytes saved", "rows saved", "bytes a step"]
    head += ["heads", "miss pull", "update pull", "bound push", "evict push"]
    return table(head, lines, words=5)


def pairs_on_demand(result: Figures) -> list[tuple[Figures, Figures]]:
    """Returns the runs of the sweep with rows sent always, each with that on demand."""
    runs = result["sweeps"]["on_demand"]
    names = ("stream", "workers", "dim", "bound", "wire", "optimizer", "placed", "window")
    return [
        (of, other)
        for of in runs
        for other in runs
        if of["sync"] == "always"
        and other["sync"] == "on_demand"
        and all(of[name] == other[name] for name in names)
    ]


def on_demand(result: Figures) -> list[str]:
    lines = []
    for pair in pairs_on_demand(result):
        of = pair[0]
        missed = [run["staleness"]["mean"] for run in pair]
        lines.append(
            [
                of["stream"],
                str(of["workers"]),
                f"s={of['bound']}",
                of["wire"],
                of["placed"] or "-",
                *(f"{sum(run['rows_by_class'].values()):,.0f}" for run in pair),
                *(f"{run['rows_by_class']['bound_push']:,.0f}" for run in pair),
                *(f"{run['bytes']:,.0f}" for run in pair),
                *(percent(run["bytes_saved"]) for run in pair),
                *("-" if mean is None else f"{mean:.1f}" for mean in missed),
            ]
        )
    head = ["stream", "workers", "bound", "wire", "placed by"]
    head += [
        f"{what}: {how}"
        for what in ("rows", "bound push", "bytes", "bytes saved", "missed")
        for how in ("always", "on demand")
    ]
    return table(head, lines, words=5)


def on_demand_short(result: Figures) -> list[str]:
    kinds = {
        ("0", "float32"): "`staleness=0`",
        ("0", "int4"): '`staleness="synchronous"`',
        ("30", "int4"): "`het_tf.Cache()`",
    }
    lines = []
    for pair in pairs_on_demand(result):
        of = pair[0]
        kind = kinds.get((of["bound"], of["wire"]))
        if kind and of["workers"] == 8 and of["placed"]:
            where = f"{of['stream']}, placed by {of['placed']}"
            lines.append([where, kind, *(percent(run["bytes_saved"]) for run in pair)])
    head = ["8 workers, bytes saved", "cache", '`sync="always"`', '`sync="on_demand"`']
    return table(head, lines, words=2)


def partitions(result: Figures) -> list[str]:
    lines = []
    for run in result["sweeps"].get("partitions", []):
        lines.append(
            [
                str(run["partitions"]),
                str(run["shards"]),
                percent(run["bytes_saved"]),
                f"{run['bytes']:,.0f}",
                f"{run['bytes_by_class']['heads']:,.0f}",
                f"{run['frames'] / 2:.1f}",
                f"{run['parts'] / 2:.1f}",
            ]
        )
    head = ["partitions", "shards", "bytes saved", "bytes a step", "of these heads", "frames", "parts"]
    return table(head, lines)


def unscaled(result: Figures) -> list[str]:
    lines = []
    for run in [
        *result["sweeps"].get("unscaled", []),
        find(result["sweeps"]["dims"], bound="100/100", dim=16),
    ]:
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
    head = ["stream", "bound", "rows saved", "bytes saved", "hit rate", "missed: mean", "p99", "max"]
    return table(head, lines)


def graph(result: Figures) -> list[str]:
    lines = []
    for run in result["sweeps"].get("graph", []):
        lines.append(
            [
                str(run["workers"]),
                str(run["dim"]),
                f"{100 * run['cache']:.0f} %",
                run["bound"],
                run["wire"],
                percent(run["rows_saved"]),
                percent(run["bytes_saved"]),
                f"{run['unique_ids']:,.0f}",
                *(f"{run['rows_by_class'][name]:,.0f}" for name in ("miss_pull", "update_pull")),
                *(f"{run['rows_by_class'][name]:,.0f}" for name in ("bound_push", "evict_push")),
            ]
        )
    head = ["workers", "floats", "cache", "bound", "rows", "rows saved"]
    head += ["bytes saved", "unique ids", "miss pull", "update pull", "bound push", "evict push"]
    return table(head, lines, words=5)


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
    "share": (share, "share", {}),
    "cache": (cache, "cache", {"cache": "rows saved, by size of the cache"}),
    "window": (window, "window", {}),
    "wire": (wire, "wire", {}),
    "told": (told, "told", {}),
    "default": (default, "default", {}),
    "placed": (placed, "placed", {}),
    "on_demand": (on_demand, "on_demand", {}),
    "on_demand short": (on_demand_short, "on_demand", {}),
    "partitions": (partitions, "partitions", {}),
    "unscaled": (unscaled, "unscaled", {}),
    "graph": (graph, "graph", {}),
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
