"""Formats a plan for people in 80 columns: a table of the tables, then servers, steps and accuracy."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from het_tf.python.show import number, size

_WIDEST = 12
_MOST = 40  # tables to show
_BAR = 24
_STREAMS = {"clicks": "Criteo-like clicks", "rare": "pairs with a long tail of rare rows"}  # accuracy.py
_CLASSES = ("miss", "update", "push", "evict")

Plan = Mapping[str, Any]


def lines(plan: Plan, source: str, samples: int) -> list[str]:
    """Returns the text of a plan."""
    tables = sorted(plan["tables"], key=lambda table: -table["forecast"]["bytes"])
    head = (
        f"{source}: {samples:,} samples, {len(tables)} tables. {plan['workers']} workers of"
        f" {plan['batch']:,} samples in a step, {plan['servers']['shards']} server(s), caches of"
        f" {size(plan['forecast']['cache_bytes'])} a worker, wire {plan['wire']}."
    )
    found = [*textwrap.wrap(head, 80), "", *_tables(tables)]
    if len(tables) > _MOST:
        found.append(f"and {len(tables) - _MOST} tables of fewer bytes; --json has all")
    found += ["", *_wrapped(_traffic(plan)), *_wrapped(_servers(plan))]
    if plan["not_filled"]:
        found += _wrapped(
            f"The sample could not fill the caches of {_some(plan['not_filled'])}: their figures are those"
            " of caches that are not full. Profile more samples."
        )
    return [*found, "", *_step(plan["forecast"]), "", *_wrapped(_accuracy(plan))]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 80)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _tables(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    wide = min(_WIDEST, max(5, *(len(table["name"]) for table in tables)))
    found = [
        f"{'':{wide}} {'rows':>6} {'at the end':>12} {'hot':>6} {'cache':>6} {'hits':>5} "
        f"{'bytes of a worker-step':>27}",
        f"{'table':{wide}} {'now':>6} {'':>12} {'rows':>6} {'rows':>6} {'%':>5} "
        + " ".join(f"{name:>6}" for name in _CLASSES),
    ]
    for table in tables[:_MOST]:
        name = table["name"] if len(table["name"]) <= wide else table["name"][: wide - 2] + ".."
        least, most = (number(rows) for rows in table["rows_at_end"])
        of = table["forecast"]
        found.append(
            f"{name:{wide}} {number(table['rows']):>6} {least if least == most else f'{least}-{most}':>12}"
            f" {number(table['hot_rows']):>6} {number(table['cache_rows']):>6} {100 * of['hit_rate']:>5.1f} "
            + " ".join(f"{number(of[f'{kind}_bytes']):>6}" for kind in _CLASSES)
        )
    return found


def _traffic(plan: Plan) -> str:
    of = plan["forecast"]
    return (
        f"A worker's step takes {size(of['bytes'])} ({size(of['bytes_in'])} in, heads of frames"
        f" {size(of['head_bytes'])}) and waits for {of['round_trips']:.2f} round trips; hits"
        f" {100 * of['hit_rate']:.1f} %."
    )


def _servers(plan: Plan) -> str:
    of, servers = plan["forecast"], plan["servers"]
    replicas = f", like each of its {servers['replicas']} replica(s)" if servers["replicas"] else ""
    busy = of["parts"]["server CPU"] / max(1e-12, of["step_seconds"])
    link = max(of["parts"]["rows in"], of["parts"]["updates out"]) / max(1e-12, of["step_seconds"])
    return (
        f"A server has {size(of['server_bytes'])} at the end{replicas}, up to twice that during a snapshot."
        f" Its CPU is {100 * busy:.0f} % busy, its link {100 * link:.0f} %."
    )


def _step(of: Mapping[str, Any]) -> list[str]:
    longest = max(1e-12, *of["parts"].values())
    found = [f"A step takes {1e3 * of['step_seconds']:.1f} ms, {number(of['samples_a_second'])} samples a"
             f" second; the longest part is {of['bound']}."]  # fmt: skip
    for name, seconds in of["parts"].items():
        found.append(f"  {name:<12} {1e3 * seconds:>8.2f} ms  {'#' * round(_BAR * seconds / longest)}")
    if not of["parts"]["compute"]:
        found.append("  (compute is not known: give --compute, a step without lookups)")
    return found


def _accuracy(plan: Plan) -> str:
    measured = plan["forecast"]["auc"]
    if "any" in measured:
        return "AUC: that of exact training, with these bounds."
    found = [
        f"{case['auc']:+.4f} ± {case['half']:.4f} on {_STREAMS[stream]} ({case['workers']} workers, steps of"
        f" {case['batch']}, {case['seeds']} seeds)"
        for stream, case in measured.items()
    ]
    found += [f"not measured on {words}" for stream, words in _STREAMS.items() if stream not in measured]
    return f"AUC of these bounds and this optimizer, less that of exact training: {'; '.join(found)}."
