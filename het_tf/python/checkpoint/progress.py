"""A bar on the terminal while a checkpoint is written or read."""

from __future__ import annotations

from typing import Any


class Progress:
    """Counts rows and bytes; shows them with the rate if it is to be shown.

    Args:
      show: Whether to show anything.
      what: "save" or "restore", with the name of the checkpoint.
      size: Bytes that there will be, as far as one can tell.
    """

    def __init__(self, show: bool, what: str, size: int) -> None:
        self._bar: Any = None
        self._rows = self._bytes = 0
        if show:
            from rich import progress

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.TextColumn("{task.fields[rows]:,} rows"),
                progress.DownloadColumn(),
                progress.TransferSpeedColumn(),
                progress.TimeElapsedColumn(),
            )
            self._task = self._bar.add_task(what, total=size, rows=0)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def add(self, rows: int, size: int) -> None:
        """Counts `rows` more, and `size` bytes."""
        self._rows += rows
        self._bytes += size
        if self._bar is not None:
            self._bar.update(self._task, completed=self._bytes, rows=self._rows)
