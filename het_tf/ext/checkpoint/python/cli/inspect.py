"""`het ckpt inspect`: shows the contents of a checkpoint, by its manifest and those of its bases."""

from typing import Any

from het_tf.ext.checkpoint.python.cli.view import TableView, View
from het_tf.ext.checkpoint.python.tensors import TensorFile
from het_tf.python.show import date, number, size


def take(view: View) -> dict[str, Any]:
    """Returns what the manifests say of a checkpoint, in the form of --json.

    Raises:
        ValueError: The file of dense weights is damaged.
    """
    document = view.manifest.document
    kept = ("id", "created", "step", "namespace", "base", "store", "version")
    return {
        "path": str(view.manifest.path),
        **{key: document[key] for key in kept},
        "bytes": view.manifest.bytes,
        "chain": [
            {
                "path": str(one.path),
                "id": one.id,
                "step": one.step,
                "bytes": one.bytes,
                "rows": one.rows,
                "removed": sum(of["removed"] for of in one.tables.values()),
            }
            for one in view.chain
        ],
        "tables": [_table(of) for of in view.tables.values()],
        "files": [
            {
                "name": file["name"],
                "bytes": file["bytes"],
                "partitions": sorted(file["partitions"]),
                "rows": sum(of["rows"] for name, of in file["tensors"].items() if name.endswith("/keys")),
            }
            for file in view.manifest.files
        ],
        "dense": _dense(view),
    }


def _dense(view: View) -> dict[str, Any] | None:
    entry = view.manifest.dense
    if entry is None:
        return None
    file = TensorFile(view.manifest.path / entry["name"])
    return {
        "name": entry["name"],
        "bytes": file.bytes,
        "tensors": {one.name: {"dtype": one.code, "shape": list(one.shape)} for one in file.tensors.values()},
    }


def _table(table: TableView) -> dict[str, Any]:
    document = table.document
    kept = ("spec", "slots", "applies", "rows", "removed", "complete", "clock_floor")
    return {
        "name": table.name,
        **{name: document[name] for name in kept},
        "limits": document.get("limits", {}),
        "bytes": document["rows"] * table.row_bytes + 8 * document["removed"],
        "row_bytes": table.row_bytes,
    }


def lines(found: dict[str, Any]) -> list[str]:
    """Formats the result of `take` for people."""
    kind = f"increment on {found['base']['name']}" if found["base"] else "full"
    step = "no step" if found["step"] is None else f"step {found['step']}"
    space = f", namespace {found['namespace']!r}" if found["namespace"] else ""
    text = [
        found["path"],
        f"{kind}, {step}, of {date(found['created'])}{space}",
        f"{size(found['bytes'])} in {len(found['files'])} files of {found['store']['partitions']} partitions",
        f"id {found['id']}",
        "",
    ]
    for one in found["tables"]:
        removed = "" if one["complete"] else f" and {number(one['removed'])} removals on its base"
        optimizer = one["spec"].get("optimizer", {}).get("name", "?")
        text.append(f"{one['name']}: dim {one['spec']['dim']}, {optimizer}")
        text.append(
            f"    {number(one['rows'])} rows{removed}, {size(one['bytes'])}, {one['applies']} applies"
        )
    if found["dense"]:
        dense = found["dense"]
        text.append(f"{dense['name']}: {len(dense['tensors'])} tensors, {size(dense['bytes'])}")
    for one in found["chain"][-2::-1]:
        rows = f"{number(one['rows'])} rows, {number(one['removed'])} removals, {size(one['bytes'])}"
        text.append(f"builds on {one['path'].rpartition('/')[2]}: {rows}")
    return text
