"""Checks which package of het_tf/python imports which: imports point downward only, those in functions too.

    python tools/arrows_python.py [ROOT]

ORDER has the packages, the lowest first; a module belongs to the longest name that it begins with. Prints
file:line of every import that goes up; the exit status is their presence.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

ORDER = [
    "het_tf._version",
    "het_tf.python.show",  # numbers and sizes for people
    "het_tf.python.ps",  # servers; no TensorFlow
    "het_tf.python.session",  # the native library, settings, connection, scopes, collectives
    "het_tf.python.table",  # what tables are, and how they are cached; no Keras
    "het_tf.python.checkpoint",  # files, and rows between them and tables
    "het_tf.python.checkpoint.cli",  # het-ckpt
    "het_tf.python.checkpoint.keras",  # how Keras and TensorFlow save tables
    "het_tf.python.layer",  # the Keras layers
    "het_tf.python.horovod",  # several workers
    "het_tf.python.checkpoint.model",  # checkpoints of whole models
    "het_tf.python.export",
    "het_tf.python.data",
    "het_tf.python.models",
    "het_tf",  # the public names
]


def rank(module: str) -> int:
    """Where in ORDER a module stands."""
    names = [module.rsplit(".", parts)[0] for parts in range(module.count(".") + 1)]
    return next((ORDER.index(name) for name in names if name in ORDER), -1)


def module_of(path: Path, root: Path) -> str:
    """The name under which a file is imported."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST, root: Path) -> Iterator[tuple[int, str]]:
    """Lines and modules of het_tf that a file imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = root.joinpath(*node.module.split("."), alias.name)
                is_module = inner.is_dir() or inner.with_suffix(".py").exists()
                yield node.lineno, f"{node.module}.{alias.name}" if is_module else node.module


def main(root: Path = ROOT) -> int:
    """Prints one line for each import that goes up; the exit status is their presence."""
    faults, count = [], 0
    for path in sorted((root / "het_tf").rglob("*.py")):
        source = module_of(path, root)
        for line, target in imports(ast.parse(path.read_text()), root):
            if target.split(".")[0] != "het_tf" or source == "het_tf":
                continue  # het_tf/__init__.py names everything, and imports it when it is used
            count += 1
            if -1 in (rank(source), rank(target)) or rank(target) > rank(source):
                place = f"{path.relative_to(root)}:{line}"
                faults.append(f"{place}: {source} imports {target}, which is above it")
    print("\n".join(faults) or f"{count} imports of Python: all point downward")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(*[Path(argument) for argument in sys.argv[1:2]]))
