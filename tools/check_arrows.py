"""Checks which folder includes, or imports, which: arrows of the tree point downward only.

    python tools/check_arrows.py [ROOT]

C++: ops, capi -> kernels -> ext/ps/client -> core <- ext/ps/module, and within core each folder includes
those that stand before it in CORE; inputs -> core/base. Python: each package imports those that stand
before it in PYTHON, in functions too. Prints file:line and the rule of everything that goes up; the exit
status is its presence.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = {".h", ".cc", ".cu"}
INCLUDE = re.compile(r'\s*#\s*include\s+"(het_tf/[^"]+)"')

CORE = "base row wire store cache client plan checkpoint device engine replay serve follow".split()

# What the files of a folder may include beside those of the folder itself; "core" stands for all of core.
# A folder that is not named here belongs to the longest one above it that is.
ALLOWED = {
    **{f"core/{folder}": [f"core/{lower}" for lower in CORE[:i]] for i, folder in enumerate(CORE)},
    "ps": ["core"],
    "ext/ps/client": ["core", "ps"],
    "ext/ps/module": ["core", "ps"],
    "kernels": ["core", "ps", "ext/ps/client", "kernels/tf"],
    "kernels/cuda": ["core/base", "ext/gpu/cc", "core/wire"],
    "kernels/gpu": ["kernels"],
    "capi": ["core", "ps", "ext/ps/client", "kernels"],
    "kernels/tf": ["core/base"],
    "ops": [],
    "inputs": ["core/base", "kernels/tf", "ops"],
}
# The packages of Python, lowest first. A module belongs to the longest name that its own begins with.
PYTHON = [
    "het_tf._version",
    "het_tf.python.show",  # numbers and sizes for people
    "het_tf.python.cli",  # the command het; it loads the module of the group that is called
    "het_tf.python.files",  # files that may come from anywhere
    "het_tf.python.quoting",  # names in messages
    "het_tf.python.versions",  # what was built, and which library this CPU takes; loads nothing
    "het_tf.python.calling",  # how a native library is called, without TensorFlow
    "het_tf.python.library",  # TensorFlow, and how it loads a native library
    "het_tf.python.hashing",  # the hashes of ids, in numpy
    "het_tf.python.ids",  # ids that a user feeds
    "het_tf.python.metrics",  # states of metrics, which workers exchange
    "het_tf.inputs.python",  # readers of Criteo text, of tables and of graphs
    "het_tf.ext.sizing.python.place",  # arithmetic of budgets, which tables' caches may ask too
    "het_tf.ext.ps.python",  # servers, without TensorFlow
    "het_tf.python.session",  # the plugin, settings, the connection, scopes, collectives
    "het_tf.python.table",  # what tables are and how they are cached, without Keras
    "het_tf.ext.checkpoint.python",  # checkpoints: files, rows between them and tables, whole models, het ckpt
    "het_tf.ext.checkpoint.python.saving",  # how Keras and TensorFlow save tables
    "het_tf.ext.placement.python",  # which worker takes a sample; `cli` is het data
    "het_tf.python.layer",  # the Keras layers
    "het_tf.ext.workers.python",  # several workers
    "het_tf.ext.monitor.python",  # windows of metrics, figures in TensorBoard, traces
    "het_tf.ext.serving.python.publishing",  # versions of a model at the server
    "het_tf.ext.serving.python.following",  # a served model follows them, without TensorFlow; het serve
    "het_tf.python.callbacks",  # checkpoints and versions while `fit` runs
    "het_tf.ext.serving.python.export",
    "het_tf.ext.serving.python.releasing",  # which version they serve; het publish
    "het_tf.ext.convert.python",  # models of Keras, and rows in files of others
    "het_tf.ext.sizing.python",  # what a job will cost, before it runs; het plan
    "het_tf.inputs",
    "het_tf.zoo",  # models, data sets, ranking metrics
    "het_tf",  # the public names
]
# The zoo imports public names (het_tf, het_tf.keras, ...) and these; only the public modules import it.
ZOO = "het_tf.zoo"
OPEN_TO_ZOO = {f"het_tf.python.{name}" for name in ("show", "files", "quoting", "hashing", "ids", "metrics")}
OPEN_TO_ZOO |= {ZOO, "het_tf", "het_tf.inputs.python"}


def folder_of(name: str) -> str | None:
    """The folder of ALLOWED that a file of het_tf/ belongs to; name: relative to it."""
    for parent in Path(name).parents:
        if parent.as_posix() in ALLOWED:
            return parent.as_posix()
    return None


def fault(name: str, included: str) -> str | None:
    """What is wrong with an include of one file of het_tf/ by another."""
    source, target = folder_of(name), folder_of(included)
    if source is None or target is None:
        place = name if source is None else included
        return f"{Path(place).parent} is no folder that tools/check_arrows.py knows; add it to ALLOWED"
    allowed = ALLOWED[source]
    if target in (source, *allowed) or (target.startswith("core/") and "core" in allowed):
        return None
    return f"{source} may include {', '.join(allowed) or 'nothing'} of het_tf, and {target} is none of it"


def includes(root: Path) -> Iterator[tuple[str, str | None]]:
    """Every include of one file of het_tf/ by another: place and text, and what is wrong with it."""
    tree = root / "het_tf"
    for path in sorted(p for p in tree.rglob("*") if p.suffix in SUFFIXES):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if found := INCLUDE.match(line):
                wrong = fault(path.relative_to(tree).as_posix(), found[1].removeprefix("het_tf/"))
                yield f"{path.relative_to(root)}:{number}: includes {found[1]}", wrong


# It builds files of core with a compiler and nothing else: no file that they include needs a library.
BUILDER = "tools/gpu_check.sh"
FOREIGN = re.compile(r"\s*#\s*include\s+<((?:nlohmann|boost|tensorflow)/[^>]+)>")


def foreign_includes(root: Path) -> Iterator[tuple[str, str | None]]:
    """Of all files that BUILDER's own include, however far: what needs a library."""
    script = root / BUILDER
    left = re.findall(r"het_tf/core/[a-z_/]+\.cc", script.read_text()) if script.exists() else []
    seen = set()
    while left:
        name = left.pop()
        seen.add(name)
        for number, line in enumerate((root / name).read_text().splitlines(), start=1):
            if (found := INCLUDE.match(line)) and found[1] not in seen:
                left.append(found[1])
            if found := FOREIGN.match(line):
                yield (
                    f"{name}:{number}: includes {found[1]}",
                    f"{BUILDER} builds it without libraries",
                )


def package_of(module: str) -> str | None:
    """The package of PYTHON that a module, or a name in one, belongs to."""
    while module and module not in PYTHON:
        module = module.rpartition(".")[0]
    return module or None


def names_of(node: ast.AST) -> list[str]:
    """What of het_tf an import names, if the node is one."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        names = []
    return [name for name in names if name.split(".")[0] == "het_tf"]


def wrong_import(module: str, source: str, name: str, target: str) -> str | None:
    """What is wrong with an import of `name`, of package `target`, by `module`, of package `source`."""
    for imported, package in ((module, source), (name, target)):
        if package == "het_tf" and imported.startswith(("het_tf.python.", "het_tf.inputs.", "het_tf.zoo.")):
            return f"the package of {imported} is not in PYTHON of tools/check_arrows.py; add it"
    if source == ZOO:
        return None if target in OPEN_TO_ZOO else f"the zoo imports public names only; {target} is private"
    if PYTHON.index(target) > PYTHON.index(source):
        return f"{target} stands above {source} in PYTHON"
    return None


def imports(root: Path) -> Iterator[tuple[str, str | None]]:
    """As `includes`, of Python. het_tf/__init__.py is left out: it imports nothing before it is asked to."""
    for path in sorted((root / "het_tf").rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        source = package_of(module)
        for node in ast.walk(ast.parse(path.read_text())) if module != "het_tf" else ():
            for name in names_of(node):
                target = package_of(name)
                wrong = wrong_import(module, str(source), name, str(target))
                yield f"{path.relative_to(root)}:{node.lineno}: imports {name}", wrong


def main(root: Path = ROOT) -> int:
    """Prints one line for each fault; the exit status is their presence."""
    found = [*includes(root), *foreign_includes(root), *imports(root)]
    faults = [f"{place}: {wrong}" for place, wrong in found if wrong]
    print("\n".join(faults) or f"{len(found)} includes and imports: all point downward")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(*[Path(argument) for argument in sys.argv[1:2]]))
