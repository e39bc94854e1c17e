"""The tables of benchmarks/family.py: what it prints, and what update_docs.py makes of its JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from traffic_goals import CLASSES
from traffic_tables import percent, table

Figures = dict[str, Any]

HEAD = ("", "miss", "upd", "push", "evict", "rows", "%", "kB", "others", "%", "rtt", "lag", "max")
WIDTHS = (30, 5, 5, 5, 6, 5, 5, 6, 7, 8, 4, 6, 4)
SHORT = {"rounded": "~"}


def cells(line: Figures) -> list[str]:
    """Returns a line of the table, "-" for what the system has not."""
    if "rows_by_class" not in line:
        return [line["system"], *["-"] * 13]
    lag = line["lag"]
    return [
        line["system"],
        *(f"{line['rows_by_class'][name]:.0f}" for name in CLASSES),
        f"{line['rows']:.0f}",
        percent(line["rows_saved"]),
        f"{line['bytes'] / 1000:.1f}",
        f"{line['between_bytes'] / 1000:.1f}" if line["between_bytes"] else "-",
        percent(line["bytes_saved"]),
        f"{line['waits']:.1f}",
        *([f"{lag['mean']:.1f}", f"{lag['max']}"] if lag and lag["max"] is not None else ["-", "-"]),
        line["exact"],
    ]


def head_of(trace: Figures) -> str:
    """Returns what the lines of a trace are of."""
    return (
        f"{trace['stream']}, {trace['samples']:,} samples, {trace['distinct']:,} rows: "
        f"{trace['workers']} workers of {trace['batch']} samples a step, caches of {trace['cache']:,} rows"
    )


def printed(trace: Figures) -> list[str]:
    """Returns the table for a terminal of 100 columns."""

    def row(words: list[str]) -> str:
        numbers = (word.rjust(width) for word, width in zip(words[1:13], WIDTHS[1:], strict=True))
        return words[0].ljust(WIDTHS[0]) + "".join(numbers) + f" {SHORT.get(words[13], words[13])}"

    lines = [head_of(trace), row([*HEAD, "ex."])]
    kind = ""
    for line in trace["lines"]:
        if line["kind"] != kind:
            kind = line["kind"]
            lines.append({"client": "-- the real client", "model": "-- simulated"}[kind])
        lines.append(row(cells(line)))
    return lines


def find(result: Figures, **wanted: object) -> Figures:
    """Returns the trace of these settings that has most samples."""
    of = [trace for trace in result["traces"] if wanted.items() <= trace.items()]
    if not of:
        raise KeyError(f"no trace has {wanted}")
    return max(of, key=lambda trace: int(trace["samples"]))


def systems(stream: str, workers: int) -> Callable[[Figures], list[str]]:
    """Returns what writes the table of a trace."""

    def lines(result: Figures) -> list[str]:
        try:
            trace = find(result, stream=stream, workers=workers)
        except KeyError:
            return [f"Not run yet: `python benchmarks/family.py --stream {stream} --workers {workers}`."]
        head = [
            "system",
            "",
            "miss pull",
            "update pull",
            "bound push",
            "evict push",
            "rows",
            "rows saved",
            "kB",
        ]
        head += ["kB between workers", "bytes saved", "waits", "missed: mean", "max", "exact"]
        rows = [[name, line["kind"], *of] for line in trace["lines"] for name, *of in [cells(line)]]
        formula = trace["formula"]
        off = formula["rows_times_row_bytes"] / formula["measured_without_checks"] - 1
        units = f"Rows and bytes are of a worker in a step; bytes by the formula are {off:+.1%} at s=0."
        return [f"{head_of(trace)}. {units}", "", *table(head, rows, words=2)]

    return lines


def claims(result: Figures) -> list[str]:
    """What papers say of their systems, and what the trace of most figures says."""
    try:
        trace = find(result, stream="criteo_scaled", workers=8)
    except KeyError:
        return ["Not run yet: `python benchmarks/family.py`."]
    of = {line["system"]: line for line in trace["lines"]}
    bag, part, six = of["BagPipe, replicated"], of["BagPipe, partitioned"], of["ScratchPipe"]["more"]
    hot = [line for name, line in of.items() if name.startswith("FAE")]
    naive = of["HET, s=0"]["rows"]
    fewer = {name: percent(1 - of[name]["rows"] / naive) for name in ("on demand", *HERALD)}
    ours = {
        "HET": f"{percent(of['HET, s=100']['rows_saved'])} % of the rows saved at s=100",
        "Herald": f"rows, less than a cache at s=0 has: {fewer[HERALD[0]]} % by the greedy,"
        f" {fewer[HERALD[1]]} % by regret; on demand as samples come {fewer['on demand']} %",
        "BagPipe": f"{percent(bag['rows_saved'])} % of the servers' rows saved; with what workers send"
        f" each other {1 - bag['bytes_saved']:.1f} times the bytes of no cache, and"
        f" {1 - part['bytes_saved']:.1f} times where the cache is partitioned",
        "ScratchPipe": f"six batches have at most {six['most']:,.0f} rows, the cache {trace['cache']:,}:"
        f" {percent(six['stalls'])} % of the steps stall",
        "FAE": "inputs that are all hot, out of sample: "
        + ", ".join(f"{percent(line['more']['hot_inputs'])} %" for line in hot)
        + " with 1, 5 and 10 % of the rows hot; bytes saved "
        + ", ".join(f"{percent(line['bytes_saved'])} %" for line in hot),
    }
    rows = [[f"[{name}]({link})", claim, ours[name]] for name, (link, claim) in CLAIMS.items()]
    return table(["system", "its paper", "here"], rows, words=3)


HERALD = ("Herald, greedy", "Herald, by regret")
CLAIMS = {
    "HET": ("https://arxiv.org/abs/2112.07221", "up to 88 % less embedding communication"),
    "Herald": (
        "https://www.usenix.org/conference/nsdi24/presentation/zeng",
        "48 to 89 % fewer embedding transmissions; in its first version 39 to 54 % less than a naive cache",
    ),
    "BagPipe": ("https://arxiv.org/abs/2202.12429", "up to 5.6 times the speed, synchronous training"),
    "ScratchPipe": ("https://arxiv.org/abs/2205.04702", "the cache always holds the active working set"),
    "FAE": ("https://arxiv.org/abs/2103.00686", "2.3 and 1.52 times the speed of XDL (CPU, CPU with GPU)"),
}
"""From the abstracts."""
WRITERS = {
    "8": systems("criteo_scaled", 8),
    "2": systems("criteo_scaled", 2),
    "graph": systems("graph", 8),
    "claims": claims,
}
