"""Where blobs of dense weights are: at the parameter server, or in a directory. Each is named by its sha256.

    redis:het:NAMESPACE:dense:SHA256     a string; het:NAMESPACE:dense has the time when each was stored
    file:DIRECTORY/SHA256.safetensors

Both stores have the same three methods. A publisher that dies after `put` leaves a blob that no version
names; `clean` removes it an hour later, so that the blob of another publisher's next version stays.
Nothing here imports TensorFlow.
"""

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from het_tf.ext.checkpoint.python import tensors
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.partitions import meta_key
from het_tf.ext.serving.python.publishing.versions import Version
from het_tf.python import show
from het_tf.python.files import read_bytes, replaced

LIMIT = 64 << 20
"""The most bytes of a blob at the parameter server, whose one thread copies it for every reader."""
_ABANDONED_SECONDS = 3600.0
_FILE = re.compile(r"(\.het_tf-[0-9a-f]{16}-)?([0-9a-f]{64})\.safetensors")  # being written, or whole


class DenseStore(Protocol):
    """A place for blobs."""

    def check(self, size: int) -> None:
        """Raises ValueError if a blob of `size` bytes cannot be here."""

    def put(self, sha256: str, content: bytes) -> str:
        """Stores a blob, whole or not at all. Returns `Version.dense`."""

    def clean(self, named: Collection[str], gone: Collection[str]) -> None:
        """Removes the blobs of `gone`, and abandoned ones, unless they are in `named`; all are sha256."""


class AtServer:
    """Blobs at the parameter server, of at most LIMIT bytes.

    Args:
      client: The parameter server.
      namespace: The namespace of the model's tables.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._times = f"{meta_key(namespace)}:dense"

    def check(self, size: int) -> None:
        """As `DenseStore.check`."""
        if size > LIMIT:
            raise ValueError(
                f"the dense weights have {show.size(size)}, and the parameter server takes "
                f"{show.size(LIMIT)}; give directory=, a directory that every serving host sees"
            )

    def put(self, sha256: str, content: bytes) -> str:
        """As `DenseStore.put`."""
        key = f"{self._times}:{sha256}"
        self._client.ask(self._times, "ZADD", self._times, repr(time.time()), sha256)
        self._client.ask(key, "SET", key, content)
        return f"redis:{key}"

    def clean(self, named: Collection[str], gone: Collection[str]) -> None:
        """As `DenseStore.clean`."""
        end = repr(time.time() - _ABANDONED_SECONDS)
        old = self._client.ask(self._times, "ZRANGEBYSCORE", self._times, "-inf", end)
        for sha256 in {*gone, *old}.difference(named):
            key = f"{self._times}:{sha256}"
            self._client.ask(key, "UNLINK", key)
            self._client.ask(self._times, "ZREM", self._times, sha256)


class InDirectory:
    """Blobs as files of one directory, which is made if it is missing.

    Args:
      directory: An absolute path, which publisher and followers share.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def check(self, size: int) -> None:
        """As `DenseStore.check`."""

    def put(self, sha256: str, content: bytes) -> str:
        """As `DenseStore.put`."""
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{sha256}.safetensors"
        with replaced(path) as beside:
            beside.write_bytes(content)
        return f"file:{path}"

    def clean(self, named: Collection[str], gone: Collection[str]) -> None:
        """As `DenseStore.clean`; also removes what interrupted writes have left."""
        end = time.time() - _ABANDONED_SECONDS
        for file in list(os.scandir(self._directory)):
            if not (found := _FILE.fullmatch(file.name)):
                continue
            sha256 = "" if found[1] else found[2]
            with contextlib.suppress(FileNotFoundError):
                if sha256 not in named and (sha256 in gone or file.stat().st_mtime < end):
                    os.unlink(file.path)


def fetch(client: Client, version: Version) -> bytes:
    """Reads the dense weights of a version, and compares them with its sha256 and signature.

    Raises:
      LookupError: They are gone: later versions have replaced it.
      ValueError: They are not those that were published; `version.dense` is no regular file, or larger than
        `version.bytes`.
      OSError: The file cannot be read.
      Unreachable, Refused: As `Client.ask`.
    """
    kind, _, where = version.dense.partition(":")
    content: bytes | None
    if kind == "redis":
        content = client.ask(where, "GET", where, raw=True)
    else:
        try:
            content = read_bytes(where, version.bytes)
        except FileNotFoundError:
            content = None
    which = f"the dense weights of version {version.number}, {version.dense}"
    if content is None:
        raise LookupError(f"{which}, are gone; take a later version")
    found = hashlib.sha256(content).hexdigest()
    if found != version.sha256:
        raise ValueError(
            f"{which}, are damaged: their sha256 is {found}, and the version says {version.sha256}"
        )
    try:
        signature = tensors.signature(tensors.specs_of(content))
    except ValueError as error:
        raise ValueError(f"{which}, are damaged: {error}") from None
    if signature != version.signature:
        raise ValueError(f"{which}, have the signature {signature}, and the version says {version.signature}")
    return content
