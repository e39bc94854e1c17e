"""`het_tf.publish`: a version of a model from what training has reached, in two halves.

`Publisher.take` runs on all ranks between steps: it flushes and copies the dense weights. `Publisher.write`
is the rest, which needs no other rank and no pause: it reads the positions of the partitions, stores the
dense weights, and appends the version. So the cut may have later changes of rows than `take` saw, never
fewer, and a publisher that dies before the append leaves the versions before it as they were.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from het_tf.ext.checkpoint.python import tensors
from het_tf.ext.checkpoint.python.directory import path_of
from het_tf.ext.checkpoint.python.model import dense
from het_tf.ext.checkpoint.python.ranks import Ranks
from het_tf.ext.ps.python import address as addresses
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.node import Unreachable
from het_tf.ext.ps.python.partitions import positions
from het_tf.ext.serving.python.publishing.dense_store import AtServer, DenseStore, InDirectory
from het_tf.ext.serving.python.publishing.versions import MOST_KEPT, MOST_TEXT, Version, Versions
from het_tf.python.checks import whole
from het_tf.python.session import settings
from het_tf.python.table import layer_state
from het_tf.python.table.table import flush

Directory = str | os.PathLike[str] | None


def publish(
    model: Any,
    *,
    trained_through: Any = None,
    keep: int = 10,
    directory: Directory = None,
    release: bool = True,
) -> Version | None:
    """Publishes a version of a model that is being trained, for the processes that serve it.

        version = het_tf.publish(model)

    It sends pending updates of caches, and appends the dense weights and the position that the rows have
    reached to the namespace's versions at the parameter server. A follower serves the weights once it has the
    rows up to that position. A namespace has one publisher: of two, the later one is refused. Under
    Horovod every rank must call it, with the same arguments; rank 0 writes. Call it between steps;
    `het_tf.callbacks.Publish` calls it while `fit` runs.

    Args:
      model: A built Keras model whose tables are at a parameter server, in one namespace.
      trained_through: How far training has come, such as the time of the newest sample: a JSON value of at
        most 64 kB, for readers of the version. None: the time now, in seconds since 1970. Rank 0's counts.
      keep: The number of versions to keep, this one included, 1 to 1000, besides the one that is in force.
        Each holds a copy of the dense weights; equal ones share it.
      directory: A directory for the dense weights, at the same path on every host that serves; made if it is
        missing. None: the parameter server, which takes at most 64 MiB.
      release: False: the version is a candidate, which followers serve only after `het publish release`.

    Returns:
      The version; None on other ranks than 0.

    Raises:
      TypeError: `model` is not a Keras model, or has a weight of a type that cannot be published.
      ValueError: The model has no tables, its tables are in this process or in several
        namespaces, an argument is out of range, or the dense weights are too large.
      ConnectionError, TimeoutError: The parameter server does not answer.
      RuntimeError: The model has no weights yet, the server refuses a command, such as for missing rights
        (examples/deploy/users.conf), or another process has published in this namespace meanwhile.
      OSError: The directory cannot be written.
      Under Horovod an error of one rank is raised on all.
    """
    ranks = Ranks()
    publisher: Publisher | None = None
    version: Version | None = None

    def begin() -> None:
        nonlocal publisher
        publisher = Publisher(model, keep, directory, release)

    def write() -> None:
        nonlocal version
        assert publisher is not None
        version = publisher.write(taken) if taken is not None else None

    ranks.together("begin to publish", begin)
    assert publisher is not None
    try:
        taken = publisher.take(ranks, None if trained_through is None else lambda: trained_through)
        ranks.together("publish", write)
    finally:
        publisher.close()
    return version


@dataclass(frozen=True)
class Taken:
    """What rank 0 takes between two steps: copies of the dense weights, and how far training had come."""

    arrays: dict[str, tensors.Array]
    trained_through: Any


class Publisher:
    """Writes versions of one model. Every rank makes one, and only rank 0's writes.

    Args:
      model, keep, directory, release: As of `publish`.

    Raises:
      TypeError, ValueError: As `publish`.
    """

    def __init__(self, model: Any, keep: int, directory: Directory, release: bool = True) -> None:
        check_arguments(keep, directory)
        size = sum(math.prod(one.shape) * np.dtype(one.dtype).itemsize for one in dense.weights_of(model))
        namespace = _namespace_of(model)
        self._model = model
        self._keep = keep
        self._kind = "version" if release else "candidate"
        self._client = Client(addresses.parse(settings.parameter_server(), settings.ask_password()))
        self._versions = Versions(self._client, namespace)
        self._store: DenseStore = (
            AtServer(self._client, namespace)
            if directory is None
            else InDirectory(path_of("directory", directory))
        )
        self._store.check(size)

    def take(self, ranks: Ranks, through: Callable[[], Any] | None) -> Taken | None:
        """Flushes, and copies the dense weights. Every rank must call it, between steps.

        Args:
          ranks: All ranks.
          through: Called on rank 0; returns `trained_through`. None: the time before the flush.

        Returns:
          What `write` takes; None on other ranks than 0.

        Raises:
          ValueError: `through` returns no JSON value.
          ConnectionError, TimeoutError: As `het_tf.flush`.
        """
        taken: Taken | None = None
        begin = time.time()
        flush(all_ranks=True)

        def copy() -> None:
            nonlocal taken
            if ranks.rank == 0:
                value = begin if through is None else _checked_json(through())
                taken = Taken(dense.values(dense.weights_of(self._model)), value)

        ranks.together("copy its weights", copy)
        return taken

    def write(self, taken: Taken) -> Version:
        """Publishes what was taken. In any thread, one call at a time.

        Raises:
          ConnectionError: The parameter server does not answer.
          RuntimeError: It refuses a command, or another process publishes in this namespace.
          OSError: The directory cannot be written.
        """
        try:
            return self._write(taken)
        except Unreachable as error:
            raise ConnectionError(str(error)) from None
        except ServerError as error:
            raise RuntimeError(str(error)) from None

    def _write(self, taken: Taken) -> Version:
        history = self._versions.history()
        cut = positions(self._client, self._versions.namespace)
        content = tensors.pack(taken.arrays)
        sha256 = hashlib.sha256(content).hexdigest()
        version = Version(
            number=history.newest + 1,
            dense=self._store.put(sha256, content),
            sha256=sha256,
            bytes=len(content),
            signature=tensors.signature(
                (name, one.shape, one.dtype.name) for name, one in taken.arrays.items()
            ),
            cut=cut,
            trained_through=taken.trained_through,
            time=time.time(),
            kind=self._kind,
        )
        self._versions.append(version)
        history.add(version)
        entries, gone = history.forget(self._keep)
        self._versions.remove(entries)
        named = {one.sha256 for one in history.versions.values()}
        self._store.clean(named, {one.sha256 for one in gone})
        return version

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()


def check_arguments(keep: Any, directory: Any) -> None:
    """Checks two arguments of `publish`, which the callback has too.

    Raises:
      TypeError: `directory` is not a path.
      ValueError: `keep` is out of range.
    """
    whole("keep", keep, 1, MOST_KEPT, "a number of versions")
    if directory is not None:
        path_of("directory", directory)


def check_server(model: Any) -> None:
    """ValueError: the tables of a model are in this process."""
    if not settings.parameter_server():
        raise ValueError(
            f"model is {model.name!r}, whose tables are in this process, where no follower can read them; "
            "start a parameter server (`het ps up`), and give its address by HET_PS or het_tf.init(ps=...)"
        )


def _namespace_of(model: Any) -> str:
    found = list(dict.fromkeys(layer.namespace for layer in layer_state.layers_of(model)))
    if not found:
        raise ValueError(
            f"model {model.name!r} has no layers of het_tf, so there are no rows to follow; export it by "
            "Keras' model.export(path)"
        )
    if len(found) > 1:
        raise ValueError(
            f"the tables of model {model.name!r} are in the namespaces {', '.join(map(repr, found))}, but a "
            "version has rows of one; make all its layers in one het_tf.namespace()"
        )
    check_server(model)
    return str(found[0])


def _checked_json(value: Any) -> Any:
    """Returns `trained_through` as readers of the version will see it."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"trained_through is {value!r:.200}: {error}; give a JSON value") from None
    if len(text) > MOST_TEXT:
        raise ValueError(f"trained_through has {len(text)} bytes as JSON; give at most {MOST_TEXT}")
    return json.loads(text)
