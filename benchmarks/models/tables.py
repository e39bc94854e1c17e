"""The tables of benchmarks/models.py in docs/benchmarks.md."""

from __future__ import annotations

import statistics

NAMES = {"XDeepFM": "xDeepFM", "TwoTower": "two towers"}


def name_of(model: str) -> str:
    return NAMES.get(model, model)


def mark(met: bool) -> str:
    return "met" if met else "**missed**"


def footer(result: dict) -> list[str]:
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return [
        "",
        f"`{result['command']}` on {machine['processor']}, {machine['cores']} cores that others used, too. "
        f"{versions}.",
    ]


def quality(result: dict) -> list[str]:
    part = result["quality"]
    seeds = sorted({run["seed"] for run in part["runs"]})
    lines = [
        f"Means over {len(seeds)} seeds; goal: {result['goals']['quality']} at most between the means.",
        "",
    ]
    lines += [
        "| model | data | passes | metric | het | keras | difference | largest of a seed | "
        "| nothing given | Keras, Adam(0.001) |"
    ]
    lines += ["|---|---|--:|---|--:|--:|--:|--:|---|--:|--:|"]
    for name, of in part["summary"].items():
        passes = " to ".join(str(count) for count in sorted({of["passes"][0], of["passes"][-1]}))
        lines.append(
            f"| {name_of(name)} | {of['data']} | {passes} | {of['metric']} | "
            f"{of['het']:.4f} | {of['keras']:.4f} | {of['difference']:+.4f} | {of['largest']:.4f} | "
            f"{mark(of['met'])} | {written(of, 'het')} | {written(of, 'keras')} |"
        )
    return lines


def written(of: dict, side: str) -> str:
    """What a model as a user writes it reaches, and of how many seeds where they are others."""
    mean, _, seeds = of["written"].get(f"{side}, written", (None, None, 0))
    return f"{mean:.4f} ({seeds} seed{'s' * (seeds > 1)})" if seeds else ""


def cpu(result: dict) -> list[str]:
    goals = result["goals"]
    lines = [
        "CPU milliseconds of a step of 256 samples; goals: at most "
        f"{goals['movielens']} of the twin's on tables "
        f"of MovieLens' size, {goals['huge']} at 1e7 rows.",
        "",
        "| model | MovieLens: het | keras | ratio | | 1e7 rows: het | keras | ratio | |",
        "|---|--:|--:|--:|---|--:|--:|--:|---|",
    ]
    runs = {(run["model"], run["size"]): run for run in result["cpu"]["runs"]}
    for name in dict.fromkeys(run["model"] for run in result["cpu"]["runs"]):
        cells = []
        for size in ("movielens", "huge"):
            of = runs[name, size]
            cells += [f"{of['het']:.1f}", f"{of['keras']:.1f}", f"{of['ratio']:.3f}", mark(of["met"])]
        lines.append(f"| {name_of(name)} | " + " | ".join(cells) + " |")
    return lines


def retrieval(result: dict) -> list[str]:
    runs = result["retrieval"]["runs"]
    lines = ["| rows in | logQ | seeds | recall@100 | of each seed | s |", "|---|---|--:|--:|---|--:|"]
    cases = dict.fromkeys((run["side"], run["logq"]) for run in runs)
    means = {}
    for side, logq in sorted(cases, key=lambda case: (not case[1], case[0])):
        own = [run for run in runs if (run["side"], run["logq"]) == (side, logq)]
        recalls = [run["recall"] for run in sorted(own, key=lambda run: run["seed"])]
        means[side, logq] = statistics.mean(recalls)
        each = ", ".join(f"{one:.4f}" for one in recalls)
        seconds = statistics.mean(run["seconds"] for run in own)
        lines.append(
            f"| {side} | {'with' if logq else 'without'} | {len(own)} | {means[side, logq]:.4f} | {each} | "
            f"{seconds:,.0f} |"
        )
    if {("het", True), ("keras", True)} <= set(means):
        gap = means["het", True] - means["keras", True]
        met = abs(gap) <= result["goals"]["quality"]
        lines += [
            "",
            f"The difference to the twin is {gap:+.4f} in the mean; goal: {result['goals']['quality']} at "
            f"most: {mark(met)}.",
        ]
    index = max(run["index_seconds"] for run in runs)
    search = max(run["search_seconds"] for run in runs)
    lines += [
        "",
        f"The index of 46,898 genes took {index:.1f} s at most, and 100 genes for each of "
        f"{runs[0]['queries']:,} papers {search:.1f} s. The same hundred genes for all, those with the most "
        f"papers, have a recall of {runs[0]['popularity']:.4f}.",
    ]
    return [*lines, *footer(result)]


WRITERS = {"quality": quality, "cpu": cpu, "retrieval": retrieval}
