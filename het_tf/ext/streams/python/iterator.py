"""`het_tf.lookahead` on PyTorch and JAX: announces the lookups of the next batches of an iterator.

    loader ──► batch, which waits among `window` others ──► model
                 └► a thread: ids ──► HetCallPlan: sorted; the lookup begins early if tables are at a server

The loader itself runs in the thread that asks for batches, so its random numbers come in their order.
"""

import collections
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from het_tf.ext.streams.python import matching
from het_tf.python.layer import lookups_keras
from het_tf.python.layer.backends import engine
from het_tf.python.table import layer_state


def planned(batches: Any, layer: Any, window: int, inputs: Callable[..., Any] | None) -> Any:
    """Returns the batches, whose lookups are announced; arguments and errors as in `lookahead`."""
    find = Lookups(layer, inputs)

    def plan(batch: Any) -> None:
        for one, ids, masks in find(batch):
            engine.call_of(layer_state.of(one).call.specs).plan(ids, masks, window)

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(batches, torch.utils.data.DataLoader):
        from het_tf.ext.streams.python.loader import AheadLoader

        return AheadLoader(batches, lambda: _ahead(iter(batches), plan, window))
    if isinstance(batches, Iterator):
        return _ahead(batches, plan, window)
    raise TypeError(
        f"dataset is a {type(batches).__name__}; give a torch.utils.data.DataLoader, or an iterator of "
        "batches such as a generator"
    )


class Lookups:
    """Finds the lookups in a batch. Arguments and errors as in `lookahead`.

    Args:
      layer: The model, layer or layers.
      inputs: None, or the function that selects ids.
    """

    def __init__(self, layer: Any, inputs: Callable[..., Any] | None) -> None:
        self._layer, self._inputs = layer, inputs
        self._finders = {id(each): lookups_keras.Finder(each) for each in matching.layers_in(layer)}

    def __call__(self, batch: Any) -> list[lookups_keras.Lookup]:
        """Returns the lookups in a batch: inputs, or a tuple or list (inputs, ...)."""
        element = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
        calls = matching.calls(self._layer, self._inputs, element)
        return [found for each, x in calls for found in self._finders[id(each)](x)]


def _ahead(batches: Iterable[Any], plan: Callable[[Any], None], window: int) -> Iterator[Any]:
    """Yields the batches; `window` of them are announced, or being so, when one comes."""
    waiting: collections.deque[tuple[Any, Future[None]]] = collections.deque()
    thread = ThreadPoolExecutor(1, "het_lookahead")
    try:
        for batch in batches:
            waiting.append((batch, thread.submit(plan, batch)))
            if len(waiting) > window:
                yield _next(waiting)
        while waiting:
            yield _next(waiting)
    finally:
        thread.shutdown(cancel_futures=True)


def _next(waiting: collections.deque[tuple[Any, Future[None]]]) -> Any:
    batch, announced = waiting.popleft()
    announced.result()
    return batch
