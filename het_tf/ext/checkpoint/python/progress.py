"""A bar on the terminal while a checkpoint is written or read."""

import contextlib
from collections.abc import Callable, Iterator

Add = Callable[[int, int], None]


@contextlib.contextmanager
def shown(show: bool, what: str, size: int) -> Iterator[Add]:
    """Yields a function that adds numbers of rows and bytes to the bar.

    Args:
      show: Whether to show anything.
      what: "saving" or "restoring", with the name of the checkpoint.
      size: Expected bytes.
    """
    from rich import progress

    columns = ("{task.description}", progress.BarColumn(), "{task.fields[rows]:,} rows",
               progress.DownloadColumn(), progress.TransferSpeedColumn(),
               progress.TimeElapsedColumn())  # fmt: skip
    with progress.Progress(*columns, disable=not show) as bar:
        task = bar.add_task(what, total=size, rows=0)

        def add(rows: int, size: int) -> None:
            bar.update(task, advance=size, rows=bar.tasks[0].fields["rows"] + rows)

        yield add
