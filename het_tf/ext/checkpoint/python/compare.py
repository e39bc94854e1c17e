"""Matches the tables of a checkpoint with the live ones.

Fields that define a stored row (dim, optimizer and its parameters) and a row that was never stored
(initializer, seed) must be equal. l2, max_norm, the limits and the format of stored rows may differ: further
training follows the live table.
"""

import json
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from het_tf.ext.checkpoint.python.manifest import Manifest
from het_tf.python.table.notes import HetWarning

_FREE = ("name", "drawn_as", "l2", "max_norm", "stored")  # fields of a spec that may differ
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
    here: dict[str, Any] | None = None,
) -> Match:
    """Matches the tables of a checkpoint with the live ones that they load into.

    Args:
      manifest: The checkpoint's.
      live: "spec" and "slots" (names and floats) by table.
      strict: Both sides must have the same tables.
      slots: Whether to load the optimizers' slots.
      here: The result of `model.order.of_model`. The model's tables are matched by the order of its layers.
        Other tables of layers without a name are loaded only if both sides have the same ones.

    Raises:
      ValueError: The tables differ (`strict`), none is on both sides, a table of a layer without a name is
        only on one side, or a field of a table that must be equal differs.

    Warns:
      HetWarning: A table is stored in another format here: its rows are rounded to it.
    """
    there = manifest.tables
    common: dict[str, str] = {}
    aside = set[str]()  # tables that a name does not identify
    apart = [] if here is None else here["apart"]
    if here is not None and here["tables"] is not None and manifest.dense is not None:
        saved, mine = manifest.dense["tables"], [one for one in here["tables"] if one["table"] in live]
        common = _by_layers(saved, mine)
        _require_model(manifest, saved, mine, common, strict)
        aside = {one["table"] for one in saved + mine}
        if manifest.dense["apart"] != apart:
            aside.update(manifest.dense["apart"], apart)
        apart = []
    common |= {name: name for name in there if name in live and name not in aside}
    only_there = tuple(name for name in there if name not in common)
    only_here = tuple(name for name in live if name not in common.values())
    unnamed = [name for name in common if name in apart]
    if {*only_there, *only_here} - aside and (strict or unnamed or not common):
        make = "make the layers that use them first, with the same names" if only_there else ""
        load = "give strict=False to load those that both have" if common else ""
        remedy = ", or ".join(filter(None, (make, load)))
        if unnamed:
            remedy = f"{_names(unnamed)} of layers without a name may be others there: restore with the model"
        raise _differ(manifest, "this process", only_there, only_here, remedy)
    problems = [_problem(name, there[name], live[other], slots) for name, other in common.items()]
    text = "\n".join(problem for problem in problems if problem)
    if text:
        raise ValueError(f"the checkpoint {manifest.path} does not fit the live tables\n{text}")
    for name, other in common.items():
        was, will = (spec.get("stored", "float32") for spec in (there[name]["spec"], live[other]["spec"]))
        if was != will:
            warnings.warn(
                f"table {name!r} of the checkpoint was stored as {was}, and is stored as {will} here",
                HetWarning,
                stacklevel=2,
            )
    return Match(common, only_there, only_here)


def _by_layers(saved: list[dict[str, Any]], live: list[dict[str, Any]]) -> dict[str, str]:
    """Pairs the tables of a saved model with those of a live one: by name, else by the order of the layers.

    Tables without a name have pairs only if both models have the same number of them.
    """
    there, here = _keyed(saved), _keyed(live)
    same = sum(one["name"] is None for one in saved) == sum(one["name"] is None for one in live)
    found = {there[key]: here[key] for key in there if key in here and (key[0] is not None or same)}
    # A layer may have been given the name that its table has in the checkpoint.
    for table in there.values():
        if table not in found and (table, 0) in here and here[table, 0] not in found.values():
            found[table] = here[table, 0]
    return found


def _keyed(side: list[dict[str, Any]]) -> dict[tuple[Any, int], str]:
    """Name and occurrence -> table: a copy of a layer has a table of its own with the same name."""
    found: dict[tuple[Any, int], str] = {}
    for one in side:
        found[one["name"], sum(name == one["name"] for name, _ in found)] = one["table"]
    return found


def _require_model(
    manifest: Manifest, saved: list[Any], live: list[Any], pairs: dict[str, str], strict: bool
) -> None:
    """Raises ValueError if the model's tables are not those of the saved model."""
    unused = [one["table"] for one in saved if one["table"] not in pairs]
    missing = [one["table"] for one in live if one["table"] not in pairs.values()]
    unnamed = [one["table"] for one in live if one["table"] in missing and one["name"] is None]
    remedy = "build the model that was saved"
    if unnamed:
        remedy += (
            f"; {_names(unnamed)} of layers without a name are found by the order of the layers. Or give the "
            f"layers the names of the checkpoint's tables, Embedding(..., table={(unused or ['item'])[0]!r})"
        )
    elif pairs:
        remedy += ", or give strict=False to restore what both have"
    if unnamed or (missing and not pairs) or (strict and (missing or unused)):
        raise _differ(manifest, "the model", unused, missing, remedy)


def _differ(
    manifest: Manifest, other: str, there: Iterable[str], here: Iterable[str], remedy: str
) -> ValueError:
    return ValueError(
        f"the checkpoint {manifest.path} and {other} do not have the same tables: only the checkpoint has "
        f"{_names(there)}, only {other} has {_names(here)}; {remedy}"
    )


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
