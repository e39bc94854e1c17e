"""A plan as one HTML page with plots: rows of the tables, bytes by the size of caches, time by part."""

from __future__ import annotations

import html as escaping
import io
from collections.abc import Mapping
from typing import Any

from het_tf.ext.sizing.python.show import lines, short

_MOST, _WIDEST = 20, 24  # tables in a plot, and characters of a name
_STYLE = (
    "body{font:16px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "svg{width:100%;max-width:44em;height:auto}pre{overflow-x:auto}"
)


def html(plan: Mapping[str, Any], source: str, samples: int) -> str:
    """Returns the page, which loads no other files. ValueError: matplotlib is not installed."""
    try:
        import matplotlib

        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError as error:
        raise ValueError(f"--html needs matplotlib ({error}); run: pip install 'het_tf[planner]'") from None
    tables = sorted(plan["tables"], key=lambda table: -table["forecast"]["bytes"])[:_MOST]
    names = {table["name"]: short(table["name"], _WIDEST) for table in tables}

    def rows(axes: Any) -> None:
        most = [table["rows_at_end"][1] for table in tables]
        axes.barh(list(names), most, color="#c6dbef", label="at the end, most")
        axes.barh(list(names), [table["rows"] for table in tables], color="#6baed6", label="now")
        axes.barh(list(names), [table["cache_rows"] for table in tables], color="#08519c", label="cached")
        axes.set_yticks(range(len(names)), list(names.values()))
        axes.set_xscale("log")
        axes.set_xlabel("rows")
        axes.invert_yaxis()

    def curves(axes: Any) -> None:
        for table in tables[:8]:
            points = [point for point in table["curve"] if point[0] > 0]
            axes.plot(*zip(*points, strict=True), marker="o", label=names[table["name"]])
        axes.set_xscale("log")
        axes.set_xlabel("cached rows")
        axes.set_ylabel("bytes of a step")
        axes.set_ylim(bottom=0)

    def parts(axes: Any) -> None:
        found = plan["forecast"]["parts"]
        axes.barh(list(found), [1e3 * seconds for seconds in found.values()], color="#6baed6")
        axes.axvline(1e3 * plan["forecast"]["step_seconds"], color="black", linestyle="--", label="step")
        axes.set_xlabel("ms of a step")
        axes.invert_yaxis()

    body = [f"<h1>{escaping.escape(source)}</h1>"]
    for title, draw in (
        ("Rows of the tables", rows),
        ("Bytes against the size of the cache, one worker", curves),
        ("Time of a step by part", parts),
    ):
        height = 0.28 * len(tables) + 1.7 if draw is rows else 3.8
        figure, axes = pyplot.subplots(figsize=(6, height), layout="constrained")
        draw(axes)
        columns = 3 if max(map(len, names.values())) <= 14 else 2
        figure.legend(loc="outside upper left", ncols=columns, frameon=False)  # not over the bars
        picture = io.StringIO()
        figure.savefig(picture, format="svg")
        pyplot.close(figure)
        text = picture.getvalue()
        body.append(f"<h2>{title}</h2>{text[text.index('<svg') :]}")
    body.append(f"<pre>{escaping.escape(chr(10).join(lines(plan, source, samples)))}</pre>")
    head = "<meta charset=utf-8><meta name=viewport content='width=device-width'><title>het plan</title>"
    return f"<!doctype html><html lang=en>{head}<style>{_STYLE}</style><body>{''.join(body)}</body></html>\n"
