"""The tables of benchmarks/gene_papers.py in docs/benchmarks.md."""

from __future__ import annotations

from statistics import fmean, stdev

LIMITS = {"none": "none", "ttl": "`ttl`", "min_count": "`min_count=2`"}


def spread(values: list[float]) -> str:
    """Mean and standard error."""
    error = f" ± {stdev(values) / len(values) ** 0.5:.4f}" if len(values) > 1 else ""
    return f"{fmean(values):.4f}{error}"


def footer(result: dict) -> list[str]:
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return ["", f"`{result['command']}` on {machine['processor']}, {machine['cores']} cores. {versions}."]


def drift(result: dict) -> list[str]:
    """Recall of each period before it is trained on: means over seeds."""
    if not result.get("stream"):
        return ["Not run yet: `python benchmarks/gene_papers.py stream`."]
    runs = [run for run in result["stream"]["runs"] if run["limits"] == "none"]
    periods = runs[0]["periods"]
    lines = [f"Recall@100 in each of {periods} periods, means over {len(runs)} seeds:", ""]
    lines += ["| | " + " | ".join(f"{n + 1}" for n in range(1, periods)) + " |"]
    lines += ["|---|" + "--:|" * (periods - 1)]
    for name in runs[0]["curves"]:
        cells = []
        for period in range(1, periods):
            of = [run["curves"][name].get(str(period)) for run in runs]
            cells.append("" if None in of else f"{fmean(of):.3f}")
        lines.append(f"| {words_of(name)} | " + " | ".join(cells) + " |")
    lines.append("")
    for stop in runs[0]["stops"]:
        gaps = [curve_gap(run["curves"], stop, periods - 1) for run in runs]
        lines.append(
            f"In the last period the model that kept training finds {spread(gaps)} more than the one that "
            f"stopped after {stop} periods."
        )
    return lines


def curve_gap(curves: dict, stop: int, period: int) -> float:
    return curves["follows"][str(period)] - curves[f"stopped {stop}"][str(period)]


def words_of(name: str) -> str:
    kind, _, stop = name.partition(" ")
    what = {"follows": "keeps training", "stopped": "trained", "popular": "the hundred most frequent genes"}
    until = f" of periods 1 to {stop}" if kind == "popular" else f" on periods 1 to {stop}"
    return what[kind] + (until if stop else " so far" if kind == "popular" else "")


def limits(result: dict) -> list[str]:
    """Rows and bytes beside recall."""
    if not result.get("stream"):
        return ["Not run yet: `python benchmarks/gene_papers.py stream`."]
    runs = result["stream"]["runs"]
    lines = ["| limit | of a run's seconds | rows at the end | MB | recall@100 | less than none |"]
    lines += ["|---|--:|--:|--:|--:|--:|"]
    free = {run["seed"]: run["recall"] for run in runs if run["limits"] == "none"}
    for name, words in LIMITS.items():
        own = [run for run in runs if run["limits"] == name]
        if not own:
            continue
        seconds = [run.get("ttl", run.get("min_count_ttl", 0)) / run["seconds"] for run in own]
        gaps = [free[run["seed"]] - run["recall"] for run in own if run["seed"] in free]
        cells = [
            f"{fmean(seconds):.0%}" if any(seconds) else "",
            f"{fmean(run['size'] for run in own):,.0f}",
            f"{fmean(run['bytes'] for run in own) / 1e6:.1f}",
            spread([run["recall"] for run in own]),
            spread(gaps) if name != "none" and gaps else "",
        ]
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return lines


def cache(result: dict) -> list[str]:
    """Rows that were read from the cache."""
    if not result.get("cache"):
        return ["Not run yet: `python benchmarks/gene_papers.py cache`."]
    runs = result["cache"]["runs"]
    lines = ["| policy | `admit_after` | read from the cache | pulled | admitted | evicted, updated |"]
    lines += ["|---|--:|--:|--:|--:|--:|"]
    for run in runs:
        lines.append(
            f"| {run['policy']} | {run['admit_after']} | {run['hits'] / run['reads']:.1%} | "
            f"{run['miss_pull']:,} | {run['inserts']:,} | {run['evict_push']:,} |"
        )
    return lines


def sequences(result: dict) -> list[str]:
    """SASRec beside its baselines."""
    if not result.get("sequences"):
        return ["Not run yet: `python benchmarks/gene_papers.py sequences`."]
    runs = result["sequences"]["runs"]
    lines = ["| | recall@10 | recall@100 |", "|---|--:|--:|"]
    for name, words in (
        ("recall", "SASRec"),
        ("own", "the gene's own last partners, then the most frequent"),
        ("popular", "the most frequent partners"),
    ):
        cells = [
            spread([run[f"{name}@{k}"] for run in runs])
            if name == "recall"
            else f"{fmean(run[f'{name}@{k}'] for run in runs):.4f}"
            for k in (10, 100)
        ]
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    one = runs[0]
    lines += [
        "",
        f"{len(runs)} seeds, one pass over {one['samples']:,} samples of the training part; "
        f"{one['asked']:,} of the test part are asked for.",
    ]
    return [*lines, *footer(result)]


WRITERS = {"drift": drift, "limits": limits, "cache": cache, "sequences": sequences}
