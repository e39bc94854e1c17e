"""Fetches data files that ship inside Debian packages, into the cache of wheels.py.

A package is downloaded and unpacked, never installed. A file is taken from the installed package, else from
the cache, else from `apt-get download`; it is accepted only with the SHA-256 that is
recorded here.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from het_tf.zoo.data.wheels import cache_dir, has_sha256, writing


@dataclasses.dataclass(frozen=True)
class PackageFile:
    """A file inside a Debian package: the package, its version, the file's path in it, and SHA-256 in hex."""

    package: str
    version: str
    member: str
    sha256: str

    @property
    def cached(self) -> Path:
        """Path of the file in the cache."""
        return cache_dir() / f"{self.package}-{self.version}" / Path(self.member).name


GENE_PAPERS = PackageFile(
    "r-bioc-org.hs.eg.db",
    "3.16.0-1",
    "usr/lib/R/site-library/org.Hs.eg.db/extdata/org.Hs.eg.sqlite",
    "bba36057dd3100a099e8054511b34d831349761971829a72b84859d2efe34605",
)


def fetch_package(file: PackageFile) -> Path:
    """Returns the path of a verified copy of `file` on this machine, downloading its package if needed.

    Raises:
      RuntimeError: if the package cannot be downloaded, lacks the file, or has another one in its place.
    """
    for candidate in (Path("/") / file.member, file.cached):
        if has_sha256(candidate, file.sha256):
            return candidate
    # Several workers may fetch at once: each has its own directory, and the last rename wins.
    with writing(file.cached), tempfile.TemporaryDirectory(dir=file.cached.parent) as directory:
        os.replace(_download(file, Path(directory)), file.cached)
    return file.cached


def _download(file: PackageFile, directory: Path) -> Path:
    """Returns the verified file inside `directory`."""
    remedy = (
        f"On a Debian 12 machine with a network run `apt-get download {file.package} && dpkg-deb -x "
        f"{file.package}_*.deb . && mv {file.member} {file.cached}`"
    )
    tools = [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]
    if tools:
        raise RuntimeError(f"cannot get {file.member}: there is no {' and no '.join(tools)} here. {remedy}.")
    os.chmod(directory, 0o755)  # apt downloads as another user
    for command in (
        ["apt-get", "download", "-q", f"{file.package}={file.version}"],
        ["dpkg-deb", "-x", f"{file.package}_{file.version}_all.deb", "."],
    ):
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"{command[0]} printed nothing"])[-1]
            raise RuntimeError(
                f"cannot get {file.member}: {' '.join(command)} failed ({reason}). If the package is not "
                f"known, run `apt-get update` first. {remedy}."
            )
    unpacked = directory / file.member
    if not has_sha256(unpacked, file.sha256):
        raise RuntimeError(
            f"{file.package} {file.version} has another {file.member} than expected: the archive served "
            "another package. Check apt's sources (apt-cache policy)."
        )
    return unpacked
