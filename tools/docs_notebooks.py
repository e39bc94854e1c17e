"""Notebooks as pages of Markdown, for the site: text, code, and the outputs that they have stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def page(path: Path) -> str:
    """The Markdown of a notebook; pictures are inside of the page."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            parts += [fenced(source, "python"), *map(output, cell["outputs"])]
    return "\n\n".join(part for part in parts if part) + "\n"


def output(of_cell: dict[str, Any]) -> str:
    """What a cell has printed, or drawn."""
    data = of_cell.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).strip()
        return f'<img alt="What the code above draws" src="data:image/png;base64,{picture}">'
    text = "".join(of_cell.get("text", data.get("text/plain", ""))).rstrip()
    return fenced(text, "text") if text else ""


def fenced(text: str, language: str) -> str:
    """A block of code, whatever is in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
