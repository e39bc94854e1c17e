"""The tables of benchmarks/family.py: what it prints, and what update_docs.py makes of its JSON."""

from __future__ import annotations

from typing import Any

from traffic_goals import CLASSES
from traffic_tables import percent

Figures = dict[str, Any]

HEAD = ("", "miss", "upd", "push", "evict", "rows", "saved", "kB", "ring", "saved", "waits", "lag", "max")
WIDTHS = (30, 5, 5, 5, 6, 6, 6, 7, 7, 7, 6, 6, 5)
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
        f"{line['reduced_bytes'] / 1000:.1f}" if line["reduced_bytes"] else "-",
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
