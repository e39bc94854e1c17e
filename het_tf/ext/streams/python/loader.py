"""A DataLoader of PyTorch whose lookups are announced."""

from collections.abc import Callable, Iterator
from typing import Any

import torch


class AheadLoader(torch.utils.data.DataLoader[Any]):
    """A DataLoader, as trainers ask for one: it has the attributes of another one, and its batches.

    Args:
      loader: The other one.
      ahead: Returns an iterator of its batches.
    """

    def __init__(self, loader: Any, ahead: Callable[[], Iterator[Any]]) -> None:
        self.__dict__.update(loader.__dict__)
        self.__dict__.update(_het_loader=loader, _het_ahead=ahead)

    def __iter__(self) -> Any:
        return self._het_ahead()

    def __len__(self) -> int:
        return len(self._het_loader)
