"""Matches the tables of a checkpoint with the live ones.

Fields that define a stored row (dim, optimizer and its parameters) and a row that was never stored
(initializer, seed) must be equal. l2, max_norm and the limits may differ: they define further training, which
follows the live table.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from het_tf.python.checkpoint.manifest import Manifest

_FREE = ("name", "drawn_as", "l2", "max_norm")  # fields of a spec that may differ
# FTRL computes values from slots: without slots the first update would discard the values.
_DERIVED = "ftrl"


@dataclass(frozen=True)
class Match:
    """Tables to load with their live counterparts, and the names that only one side has."""

    tables: dict[str, str]
    only_in_checkpoint: tuple[str, ...] = ()
    only_live: tuple[str, ...] = ()


def differences(there: dict[str, Any], here: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Fields that must be equal but differ between two specs: name, and both values as text."""
    first, second = _flat(there), _flat(here)
    return [
        (name, first.get(name, "-"), second.get(name, "-"))
        for name in dict.fromkeys([*first, *second])
        if name not in _FREE and first.get(name) != second.get(name)
    ]


def _flat(spec: dict[str, Any], before: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in spec.items():
        if isinstance(value, dict):
            found.update(_flat(value, f"{before}{name}."))
        else:
            found[before + name] = json.dumps(value)
    return found


def match(
    manifest: Manifest,
    live: dict[str, dict[str, Any]],
    strict: bool = True,
    slots: bool = True,
) -> Match:
    """Matches the tables of a checkpoint with the live ones that they load into.

    Args:
      manifest: The checkpoint's.
      live: "spec" and "slots" (names and floats) by table.
      strict: Both sides must have the same tables.
      slots: Whether to load the optimizers' slots.

    Raises:
      ValueError: The tables differ (`strict`), or a field of a table that must be equal does.
    """
    there = manifest.tables
    common = _pairs(there, live)
    only_there = tuple(name for name in there if name not in common)
    only_here = tuple(name for name in live if name not in common.values())
    if strict and (only_there or only_here):
        make = "make the layers that use them first, with the same names, or " if only_there else ""
        raise ValueError(
            f"the checkpoint {manifest.path} and this process do not have the same tables: only the "
            f"checkpoint has {_names(only_there)}, only this process has {_names(only_here)}; "
            f"{make}give strict=False to load those that both have"
        )
    problems = [_problem(name, there[name], live[other], slots) for name, other in common.items()]
    text = "\n".join(problem for problem in problems if problem)
    if text:
        raise ValueError(f"the checkpoint {manifest.path} does not fit the live tables\n{text}")
    return Match(common, only_there, only_here)


def _pairs(there: dict[str, dict[str, Any]], live: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Pairs tables by name, or by the name without the number that Keras adds for unnamed layers."""
    pairs = {name: name for name in there if name in live}
    rest = [
        {name: one["spec"].get("drawn_as", name) for name, one in side.items() if name not in pairs}
        for side in (there, live)
    ]
    for name, base in rest[0].items():
        others = [other for other, of_other in rest[1].items() if of_other == base]
        if len(others) == 1 and list(rest[0].values()).count(base) == 1:
            pairs[name] = others[0]
    return pairs


def _problem(name: str, there: dict[str, Any], live: dict[str, Any], slots: bool) -> str:
    """Returns why a table cannot be loaded, with a remedy; "" if it can."""
    found = differences(there["spec"], live["spec"])
    if slots and there.get("slots") != live.get("slots") and not found:
        found = [("slots", json.dumps(there.get("slots")), json.dumps(live.get("slots")))]
    of_optimizer = [one for one in found if one[0].startswith("optimizer.")]
    if not slots:
        found = [one for one in found if one not in of_optimizer]
        if live["spec"]["optimizer"]["name"] == _DERIVED:
            return (
                f"table {name!r}: its optimizer FTRL computes the values from the slots, so it needs "
                "those of the checkpoint; give slots=True"
            )
    if not found:
        return ""
    rows = [("field", "checkpoint", "live"), *found]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = "\n".join(f"    {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}" for row in rows)
    if found == of_optimizer:
        remedy = "declare the table as it was saved, or give slots=False to restore only the values"
        if live["spec"]["optimizer"]["name"] == _DERIVED:
            remedy = "declare the table as it was saved"
    else:
        remedy = "declare the table as it was saved"
    return f"  table {name!r}:\n{lines}\n    {remedy}"


def _names(names: Iterable[str]) -> str:
    listed = sorted(names)
    text = ", ".join(repr(name) for name in listed[:20]) or "none"
    return text + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")
