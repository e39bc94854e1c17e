"""Writes the tables of benchmarks/results/*.json into documents, between their markers.

    python benchmarks/update_docs.py [traffic accuracy ...]

A marker is `<!-- NAME -->` ... `<!-- end -->`; what stands between is replaced. So no figure there is made by
hand. Figures go into docs/img/.
"""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import accuracy_tables
import defaults_tables
import family_tables
import gene_papers_tables
import models_tables
import planner_tables
import slow_link_tables
import traffic_tables

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
PLANNER = HERE.parent / "het_tf/python/planner/accuracy.json"
DOCUMENTS = tuple(
    DOCS / name
    for name in ("benchmarks.md", "het-plan.md", "planning.md", "horovod.md", "adr/0039-rows-on-demand.md")
)


def goal_lines(goals: list[dict]) -> list[str]:
    lines = ["| | goal | workload | threads | measured |", "|---|---|---|--:|--:|"]
    for goal in goals:
        mark = "met" if goal["met"] else "**missed**"
        lines.append(
            f"| {mark} | {goal['goal']} {goal['sign']} {goal['limit']} | {goal['size']} | {goal['threads']}"
            f" | {goal['value']:.2f} |"
        )
    return lines


def footer(result: dict) -> list[str]:
    machine, versions = result["machine"], result["versions"]
    made = " · ".join(dict.fromkeys(versions.values() if "het_tf" in versions else []))
    load = machine.get("load_after")
    return ["", f"`{result['command']}` on {machine['processor']}, {machine['cores']} cores"
            + (f" (load average {load:.1f} at the end, our own process included)" if load is not None else "")
            + (f". {made}." if made else ".")]  # fmt: skip


def local_step(result: dict) -> list[str]:
    return [*result["table"], "", *memory(result), *footer(result)]


def memory(result: dict) -> list[str]:
    lines = ["Resident memory of the large table over the bytes of its rows and slots:", ""]
    systems = list(dict.fromkeys(system for of in result["memory"].values() for system in of))
    lines += ["| | " + " | ".join(systems) + " |", "|---|" + "--:|" * len(systems)]
    for optimizer, of in result["memory"].items():
        cells = [f"{of[system]:.2f}" if system in of else "-" for system in systems]
        lines.append(f"| {optimizer} | " + " | ".join(cells) + " |")
    return lines


def two_threads(result: dict) -> list[str]:
    lines = ["| workload | step | best against best | median of turns |", "|---|---|--:|--:|"]
    for entry in result["two_threads"]:
        lines.append(f"| {entry['size']} | {entry['step']} | {entry['best']:.2f} | {entry['median']:.2f} |")
    return lines


def small_step(result: dict) -> list[str]:
    versions = result["versions"]
    result = {**result, "versions": {"het_tf": " · ".join(f"{k} {v}" for k, v in versions.items())}}
    return [*result["table"], *footer(result)]


def planned(result: dict) -> list[str]:
    return [*result["table"], *footer(result)]


def criteo_like(result: dict) -> list[str]:
    lines = ["| one thread | M rows/s | of the limit |", "|---|--:|--:|"]
    for name, speed in result["rows_per_second"].items():
        lines.append(f"| {name} | {speed / 1e6:.2f} | {result['ratio_to_limit'][name]:.2f} |")
    lines += ["", "| a second of processor time | M lines |", "|---|--:|"]
    for name, speed in result["rows_read_per_processor_second"].items():
        lines.append(f"| {name} | {speed / 1e6:.2f} |")
    return lines


def criteo_excerpt(result: dict) -> list[str]:
    lines = ["| of 8,192 rows | real | stream | spread | error | |", "|---|--:|--:|--:|--:|---|"]
    for name, of in result["excerpt"].items():
        if of["wanted"] is None and of["met"]:
            continue
        mark = "met" if of["met"] else "**missed**"
        lines.append(
            f"| {name} | {of['wanted']:,} | {of['measured']:,.1f} | {of['spread']:.1f} | {of['error']:+.1f}"
            f" | {mark} |"
        )
    others = [name.split(", ")[1] for name, of in result["excerpt"].items() if of["wanted"] is None]
    lines += ["", f"{', '.join(others)} save less than 5 % in both. Means of {result['excerpts']} excerpts."]
    return lines


def compare_with_keras(result: dict) -> list[str]:
    seeds = sorted({run["seed"] for run in result["runs"]})
    lines = [f"{result['settings']['data']}, seeds {seeds[0]} to {seeds[-1]}:", ""]
    sides = list(next(iter(result["summary"].values()))["mean_test_auc"])
    lines += ["| | " + " | ".join(sides) + " |", "|---|" + "--:|" * len(sides)]
    for model, of in result["summary"].items():
        cells = [f"{of['mean_test_auc']['het']:.4f}"]
        for side in sides[1:]:
            gap = f"{of['het_minus'][side]:+.4f} ± {of['standard_error'][side]:.4f}"
            cells.append(f"{of['mean_test_auc'][side]:.4f} ({gap})")
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return [*lines, "", f"{versions}."]


def ps_goals(result: dict) -> list[str]:
    lines = ["| | goal | measured |", "|---|---|--:|"]
    for goal in result["goals"]:
        mark = "met" if goal["met"] else "**missed**"
        most = goal.get("sign") == "<=" or "memory" in goal["goal"] or "longest" in goal["goal"]
        sign = "at most" if most else "at least"
        lines.append(f"| {mark} | {goal['goal']}: {sign} {goal['limit']} | {goal['value']:.2f} |")
    return lines


def ps_throughput(result: dict) -> list[str]:
    clients = result["clients"]
    return [
        *result["table"],
        "",
        f"Two clients on two shards: {clients['two_on_two'] / 1e6:.2f} M rows/s, one client on one server "
        f"{clients['one_on_one'] / 1e6:.2f} (pulled and pushed, 16 floats; ratio {clients['ratio']:.2f}).",
        "",
        *ps_goals(result),
        *footer(result),
    ]


def table_and_goals(result: dict) -> list[str]:
    return [*result["table"], "", *ps_goals(result)]


def checkpoint(result: dict) -> list[str]:
    one, far = result["increment"], result.get("remote")
    size = result["rows"] * sum(result["row_bytes"].values())
    lines = [f"{result['rows']:,} rows, {size / 1e6:,.0f} MB:", "", *result["table"], ""]
    lines += [
        f"An increment after an update of {one['changed']:.0%} of the rows: {one['seconds']:.2f} s and"
        f" {one['bytes'] / 1e6:.1f} MB, {one['of_full_seconds']:.2f} of the time and"
        f" {one['of_full_bytes']:.3f} of the bytes of a full save; the full one and it are restored in"
        f" {one['restore_seconds']:.2f} s.",
        "",
    ]
    if far:
        lines += [f"At one Redis server, {far['rows']:,} rows:", "", *far["table"], ""]
    lines += ["| | goal | measured |", "|---|---|--:|"]
    for goal in result["goals"]:
        mark = "met" if goal["met"] else "**missed**"
        lines.append(f"| {mark} | {goal['goal']}: at most {goal['limit']} | {goal['value']:.2f} |")
    return [*lines, *footer(result)]


def serving(result: dict) -> list[str]:
    versions = " · ".join(f"{k} {v}" for k, v in result["versions"].items())
    lines = [*result["table"], "", "| | goal | measured |", "|---|---|--:|"]
    for goal in result["goals"]:
        mark = "met" if goal["met"] else "**missed**"
        lines.append(f"| {mark} | {goal['goal']}: at most {goal['limit']} | {goal['value']:.2f} |")
    return [*lines, *footer({**result, "versions": {"het_tf": versions}})]


def graph_sampler(result: dict) -> list[str]:
    lines = [f"{result['nodes']:,} nodes, {result['edges']:,} edges:", ""]
    lines += ["| a second of processor time | M draws | of numpy | of the limit |", "|---|--:|--:|--:|"]
    for name, rate in result["draws_per_processor_second"].items():
        ratios = result["ratio_to_numpy"][name], result["ratio_to_limit"][name]
        lines.append(f"| {name} | {rate / 1e6:.1f} | {ratios[0]:.2f} | {ratios[1]:.2f} |")
    lines += ["", "| | goal | measured |", "|---|---|--:|"]
    for goal in result["goals"]:
        mark = "met" if goal["met"] else "**missed**"
        lines.append(f"| {mark} | {goal['goal']}: at least {goal['limit']} | {goal['value']:.1f} |")
    lines += ["", "The generator, seconds of processor time, and draws from what it has made:", ""]
    lines += ["| nodes | M edges | file, MB | made in, s | memory, MB | M draws a second |"]
    lines += ["|--:|--:|--:|--:|--:|--:|"]
    for of in result["sizes"]:
        cells = [f"{of['nodes']:,}", f"{of['edges'] / 1e6:,.0f}", f"{of['file_bytes'] / 1e6:,.0f}"]
        cells += [f"{of['made_processor_s']:.1f}", f"{of['made_memory_bytes'] / 1e6:,.0f}"]
        lines.append(f"| {' | '.join(cells)} | {of['draws_per_processor_second'] / 1e6:.1f} |")
    return [*lines, *footer({**result, "versions": {}})]


def graph_accuracy(result: dict) -> list[str]:
    sides = list(next(iter(result["summary"].values()))["minus_keras"])
    lines = ["| | | seeds | keras | " + " | ".join(sides) + " |", "|---|---|--:|--:|" + "--:|" * len(sides)]
    for data, of in result["summary"].items():
        cells = [str(of["seeds"]), f"{of['mean']['keras']:.4f}"]
        for side in sides:
            error = of["standard_error"][side]
            spread = f" ± {error:.4f}" if error is not None else ""
            cells.append(f"{of['mean'][side]:.4f} ({of['minus_keras'][side]:+.4f}{spread})")
        lines.append(f"| {data} | {of['metric']} | " + " | ".join(cells) + " |")
    lines += ["", "| | goal | measured |", "|---|---|--:|"]
    for goal in result["goals"]:
        mark = "met" if goal["met"] else "**missed**"
        words = "at most" if goal["sign"] == "<=" else "at least"
        lines.append(f"| {mark} | {goal['goal']}: {words} {goal['limit']} | {goal['value']:.4f} |")
    return [*lines, *footer(result)]


def draw_figures(wanted: Callable[[str], bool]) -> None:
    """Draws figures, where matplotlib is there, and writes what het-plan says of accuracy."""
    try:
        import accuracy_figures
        import frontier_figure
        import slow_link_figures
        import traffic_figures
    except ModuleNotFoundError as error:
        print(f"{error}: the figures stay as they are; pip install 'het-tf[plot]' draws them")
        return
    drawers = {
        "traffic": traffic_figures.draw,
        "accuracy": accuracy_figures.draw,
        "slow_link": slow_link_figures.draw,
        "defaults": defaults_tables.draw,
    }
    for name, draw in drawers.items():
        path = HERE / f"results/{name}.json"
        if wanted(name) and path.exists():
            draw(json.loads(path.read_text()), DOCS / "img")
    if wanted("accuracy"):
        points = accuracy_tables.points(json.loads((HERE / "results/accuracy.json").read_text()))
        PLANNER.write_text("[\n" + ",\n".join(f" {json.dumps(point)}" for point in points) + "\n]\n")
    if wanted("traffic") or wanted("accuracy"):
        accuracy, traffic = (
            json.loads((HERE / f"results/{name}.json").read_text()) for name in ("accuracy", "traffic")
        )
        frontier_figure.draw(accuracy, traffic, DOCS / "img")


WRITERS: dict[str, tuple[str, Callable[[dict], list[str]]]] = {
    "local_step": ("local_step.json", local_step),
    "local_step goals": ("local_step.json", lambda result: goal_lines(result["goals"])),
    "local_step threads": ("local_step.json", two_threads),
    "small_step": ("small_step.json", small_step),
    "criteo_like": ("criteo_like.json", criteo_like),
    "criteo_like excerpt": ("criteo_like.json", criteo_excerpt),
    "graph_sampler": ("graph_sampler.json", graph_sampler),
    "graph_accuracy": ("graph_accuracy.json", graph_accuracy),
    "planned": ("planned.json", planned),
    "ps_throughput": ("ps_throughput.json", ps_throughput),
    "ps_memory": ("ps_memory.json", table_and_goals),
    "ps_sweep": ("ps_sweep.json", table_and_goals),
    "reshard_load": ("reshard_load.json", table_and_goals),
    "checkpoint": ("checkpoint.json", checkpoint),
    "serving": ("serving.json", serving),
    **{f"defaults {name}": ("defaults.json", write) for name, write in defaults_tables.WRITERS.items()},
    "compare census": ("compare_with_keras_census.json", compare_with_keras),
    "compare movielens": ("compare_with_keras_movielens.json", compare_with_keras),
    **{f"models {name}": ("models.json", write) for name, write in models_tables.WRITERS.items()},
    **{f"gene_papers {name}": ("gene_papers.json", of) for name, of in gene_papers_tables.WRITERS.items()},
    **{f"traffic {name}": ("traffic.json", write) for name, write in traffic_tables.WRITERS.items()},
    **{f"family {name}": ("family.json", write) for name, write in family_tables.WRITERS.items()},
    **{f"slow_link {name}": ("slow_link.json", write) for name, write in slow_link_tables.WRITERS.items()},
    "slow_link_four goals": ("slow_link_four.json", slow_link_tables.WRITERS["goals"]),
    "slow_link_four models": ("slow_link_four.json", slow_link_tables.WRITERS["models"]),
    **planner_tables.WRITERS,
    **{f"accuracy {name}": ("accuracy.json", write) for name, write in accuracy_tables.WRITERS.items()},
}


def wrapped(line: str) -> str:
    """Returns a line of running text at the width of the documents; a table's or a picture's as it is."""
    if line.startswith(("|", "!", " ")):
        return line
    return textwrap.fill(line, 100, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    known = sorted({name.split()[0] for name in WRITERS})
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; default all")
    names = parser.parse_args().names
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"there are no tables {', '.join(unknown)}; give some of {', '.join(known)}")

    def wanted(name: str) -> bool:
        return not names or name.split()[0] in names

    draw_figures(wanted)  # first, for a block may link to one
    texts = {path: path.read_text() for path in DOCUMENTS}
    for name, (file, write) in WRITERS.items():
        path = HERE / "results" / file
        if not wanted(name):
            continue
        if not path.exists():
            print(f"{path} is missing; the table {name!r} stays as it is")
            continue
        lines = [wrapped(line) for line in write(json.loads(path.read_text()))]
        block = "\n".join(["", "", *lines, "", ""])
        pattern = re.compile(rf"(<!-- {re.escape(name)} -->).*?(<!-- end -->)", re.DOTALL)
        found = 0
        for document, text in texts.items():
            texts[document], times = pattern.subn(
                lambda match, block=block: match[1] + block + match[2], text
            )
            found += times
        if not found:
            print(f"no document has a marker <!-- {name} -->")
    for document, text in texts.items():
        document.write_text(text)


if __name__ == "__main__":
    main()
