"""`het data shard`: writes one file a worker; their k-th batches together are the k-th global batch."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import xxhash

from het_tf.ext.checkpoint.python import directory
from het_tf.ext.checkpoint.python.manifest import naming
from het_tf.ext.placement.python.cli.rules import ByField, ByLocation, rule_of
from het_tf.ext.placement.python.cli.samples import Samples, Writer
from het_tf.ext.placement.python.pieces import Pieces
from het_tf.ext.placement.python.placement import Placement


def split(samples: Samples[Any], placement: Placement, out: Path, advance: Callable[[int], None]) -> Pieces:
    """Writes a directory that appears when all of it is on disk.

    Args:
      samples: The samples to place.
      placement: The rule.
      out: The directory; must not exist.
      advance: Called with the `Samples.units` of each block.

    Raises:
      ValueError: The rule cannot place the samples, they are fewer than a global batch, or a file is damaged
        or has changed meanwhile. After any error the directory does not exist.
      OSError: A file cannot be read or written.
    """
    rule = rule_of(samples, placement)
    temporary = directory.beside(out)
    writers: list[Writer[Any]] = []
    try:
        with _named(temporary, out):
            names = [
                f"part-{worker:05d}-of-{placement.workers:05d}{samples.suffix}"
                for worker in range(placement.workers)
            ]
            for name in names:
                writers.append(samples.writer(temporary / name))
            try:
                pieces = _write(samples, rule, placement, out, writers, advance)
            finally:  # also after an error of the samples: the file may be half-written
                samples.require_unchanged()
            directory.sync(pieces.write(temporary))
            directory.publish(temporary, out)
    except BaseException:
        for writer in writers:
            with contextlib.suppress(Exception):
                writer.finish()
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return pieces


def _write(
    samples: Samples[Any],
    rule: ByField | ByLocation,
    placement: Placement,
    out: Path,
    writers: list[Writer[Any]],
    advance: Callable[[int], None],
) -> Pieces:
    digest, batches, left = xxhash.xxh3_64(), 0, 0
    for rows in samples.blocks(placement.samples):
        words = rule.words(samples.columns(rows, rule.names))
        if len(words) < placement.samples:
            left = len(words)
            break
        order = placement.order(rule.owners(words))
        for writer, mine in zip(writers, order, strict=True):
            with naming(writer.path):
                writer.append(samples.take(rows, mine))
        digest.update(words.tobytes())
        batches += 1
        advance(samples.units(rows))
    if not batches:
        raise ValueError(
            f"there are {left} samples, but a global batch of {placement.workers} workers has "
            f"{placement.samples}; give a smaller --batch, or fewer --workers"
        )
    files = []
    for writer in writers:
        with naming(writer.path):
            files.append((writer.path.name, writer.close()))
    return Pieces(
        out, placement, digest.hexdigest(), batches * placement.samples, left,
        [path.name for path in samples.paths], files,
    )  # fmt: skip


@contextlib.contextmanager
def _named(temporary: Path, out: Path) -> Iterator[None]:
    """Makes errors of the disk name the requested directory instead of the temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        name = str(error.filename or out).replace(str(temporary), str(out))
        what = f"{error.strerror}; nothing is left of {out}"
        raise type(error)(error.errno, what, name) from error
