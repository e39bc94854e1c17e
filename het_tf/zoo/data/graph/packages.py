"""The Debian package graph: dependencies of packages, and the section of each, without names."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt

from het_tf.inputs.python.graph.graph import Graph
from het_tf.zoo.data.graph.citations import graph_file
from het_tf.zoo.data.graph.nodes import NodeSet, NodeTask
from het_tf.zoo.data.making import three

_FIELD = re.compile(rb"^(Package|Section|Depends|Pre-Depends|Recommends): (.*)$", re.MULTILINE)
_NAME = re.compile(rb"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]*)")
_REMEDY = "run: apt-get update (on a Debian or Ubuntu system)"


def debian_packages(seed: int = 0) -> NodeTask:
    """Reads the graph of packages from the lists that apt has on this system.

    An edge is a Depends, a Pre-Depends or a Recommends, one for each alternative, without direction; names
    that the lists lack are ignored. The class is the section of the last listed version. Nodes
    are numbered by the hash of the package's name: no name is kept. In an order by `seed`,
    three fifths of the packages train, a tenth is valid, the others test. The cache keeps only the graph of
    the newest lists.

    Args:
      seed: Seed of the split.

    Returns:
      On Debian 12: about 63,000 packages and 58 sections.

    Raises:
      RuntimeError: The system has no apt, or apt no lists; the message has the command that gets them.
    """
    names, edges, section_of = read_requirements()
    sections, labels = np.unique([section_of[name] for name in names], return_inverse=True)
    labels = labels.astype(np.int64)
    order = np.random.RandomState(seed).permutation(len(names))
    training, learning = len(names) * 6 // 10, len(names) * 7 // 10
    train, valid, test = (NodeSet(ids, labels[ids]) for ids in three(order, training, learning))
    graph = _newest(edges, len(names))
    return NodeTask("debian", graph, len(sections), False, train, valid, test, None, "section")


def read_requirements() -> tuple[list[bytes], npt.NDArray[np.int64], dict[bytes, bytes]]:
    """Reads the packages that apt lists, numbered by the hash of their names.

    Returns:
      Names in the order of their numbers; pairs (package, required), int64 [E, 2]; the section of each name.

    Raises:
      RuntimeError: as `debian_packages`.
    """
    requirements, section_of = _parse(available())
    names = sorted(requirements, key=lambda name: hashlib.sha256(name).digest())
    number = {name: at for at, name in enumerate(names)}
    # Sorted: a set of names has another order in every process.
    pairs = [
        (number[name], other)
        for name in names
        for other in sorted(number[required] for required in requirements[name] if required in number)
    ]
    return names, np.array(pairs, np.int64).reshape(-1, 2), section_of


def _newest(edges: npt.NDArray[np.int64], nodes: int) -> Graph:
    """Returns the graph under the digest of its content, and removes the graphs of other lists."""
    digest = hashlib.sha256(np.int64(nodes).tobytes() + edges.tobytes()).hexdigest()[:12]
    graph = graph_file(f"debian-{digest}", edges, nodes)
    path = Path(graph.path)
    for other in path.parent.glob(f"debian-{'[0-9a-f]' * len(digest)}.graph"):
        if other != path:
            with contextlib.suppress(OSError):  # another user's, or gone already
                other.unlink()
    return graph


def available() -> bytes:
    """Returns the output of `apt-cache dumpavail`."""
    apt = shutil.which("apt-cache")
    if apt is None:
        raise RuntimeError(f"the package graph needs apt, but there is no apt-cache; {_REMEDY}")
    done = subprocess.run([apt, "dumpavail"], capture_output=True, check=False)
    if done.returncode or b"Package: " not in done.stdout:
        raise RuntimeError(f"apt-cache dumpavail knows no packages; {_REMEDY}")
    return done.stdout


def _parse(text: bytes) -> tuple[dict[bytes, set[bytes]], dict[bytes, bytes]]:
    """Returns the requirements of each package, and its section."""
    requirements: dict[bytes, set[bytes]] = {}
    section_of: dict[bytes, bytes] = {}
    for stanza in text.split(b"\n\n"):
        fields = dict(_FIELD.findall(stanza))
        name = fields.get(b"Package")
        if name is None:
            continue
        required = requirements.setdefault(name, set())
        for field in (b"Depends", b"Pre-Depends", b"Recommends"):
            required.update(_NAME.findall(fields.get(field, b"")))
        section_of[name] = fields.get(b"Section", b"").rpartition(b"/")[2] or b"none"
    return requirements, section_of
