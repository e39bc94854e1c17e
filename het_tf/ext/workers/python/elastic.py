"""Elastic training: workers come and go while a job runs (public in `het_tf.horovod`).

    model = build(); model.compile(...); model.build(...)
    state = het_tf.horovod.ElasticState(model, step=0)

    @het_tf.horovod.run_elastic
    def train(state):
        while state.step < STEPS:
            model.train_on_batch(*batch(state.step))
            state.step += 1
            if state.step % 100 == 0:
                state.commit()

    train(state)

Needs a parameter server that outlives the workers: HET_PS, or `het_tf.init(ps=...)`.
"""

import functools
from collections.abc import Callable
from typing import Any

from horovod.common.elastic import ObjectState
from horovod.common.exceptions import HorovodInternalError

from het_tf.ext.workers.python.horovod_workers import Horovod
from het_tf.python.session import native, settings
from het_tf.python.session.native import tf
from het_tf.python.table import dense_optimizer, layer_state, registry

# Messages of a failed collective: Horovod's own text, or the name of the op that waited for it.
_FAILED = ("horovod", "het_tf.", "het_tf_")
_LOST = (tf.errors.UnknownError, tf.errors.AbortedError, tf.errors.CancelledError)


def _horovod() -> Any:
    workers = settings.workers()
    if not isinstance(workers, Horovod):
        raise RuntimeError(
            "an elastic job needs Horovod; call het_tf.init() first, in a program that horovodrun --min-np "
            "has started"
        )
    return workers.hvd


class ElasticState(ObjectState):
    """The state with which a job continues after a worker has died, left or joined.

    It has dense weights, the state of the optimizer, the steps of the tables' learning-rate schedules, and
    your own values. Rows of tables are not in it: they stay at the parameter server. So a restart
    resets the dense part to the last commit, while rows keep the training of later steps:
    they are somewhat ahead of the dense part, as with any bounded staleness. Unsent updates of a
    dead worker, at most `push_bound` of a row, are lost.

    Horovod's own TensorFlowKerasState does not support Keras 3 (whose `optimizer.variables` is no function).

    Args:
      model: A built Keras model. All workers must build it alike.
      optimizer: Keras optimizer; None: the model's compiled one, if any.
      **scalars: Further attributes of the state: epoch, step, ... Their values must
        pickle.

    Raises:
      ValueError: The model is not built, or `model` or `optimizer` has another type.
      RuntimeError: `het_tf.init` was not called, or not under Horovod.
    """

    def __init__(self, model: Any, optimizer: Any = None, **scalars: Any) -> None:
        hvd = _horovod()
        if not isinstance(model, tf.keras.Model) or not model.built:
            raise ValueError(
                f"model is {model!r}, which is not a Keras model, or is not built, so that it has no weights "
                "yet; give it an Input, call model.build(input_shape), or call it once"
            )
        self._het_model = model
        self._het_optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
        if self._het_optimizer is not None:
            self._het_optimizer.build(model.trainable_variables)
        self._het_values: list[Any] = []
        self._het_applies: dict[tuple[str, str], int] = {}
        super().__init__(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, **scalars)
        self._remember()

    def save(self) -> None:
        """Records the present state; sends pending updates of caches to the parameter server first.

        Part of `commit`, which also looks for new and lost hosts.

        Raises:
          ConnectionError, TimeoutError: The parameter server does not answer. The last commit stays.
        """
        for namespace in registry.namespaces():
            native.call("HetFlushRemote", namespace, 0)
        self._remember()
        super().save()

    def restore(self) -> None:
        """Restores the last commit; rows do not change."""
        for variable, value in zip(self._variables(), self._het_values, strict=True):
            variable.assign(value)
        self._set_applies()
        super().restore()

    def sync(self) -> None:
        """Broadcasts the state of rank 0.

        Raises:
          RuntimeError: This worker's variables differ from rank 0's.
        """
        hvd = _horovod()
        mine = [(tuple(variable.shape), variable.dtype.name) for variable in self._variables()]
        first = hvd.broadcast_object(mine, root_rank=0, name="het_tf.variables")
        if mine != first:  # a broadcast of these would wait forever
            raise RuntimeError(
                f"this worker's model and optimizer have {len(mine)} variables, those of rank 0 have "
                f"{len(first)}, or other shapes; build and compile the same model on every worker before "
                "ElasticState is made"
            )
        hvd.broadcast_variables(self._variables(), root_rank=0)
        self._het_applies = hvd.broadcast_object(self._applies(), root_rank=0, name="het_tf.updates")
        self._set_applies()
        self._remember()
        super().sync()

    def reset(self) -> None:
        """Adapts to a changed number of workers."""
        registry.follow_workers()
        # Traced for another number of workers; a worker that joins traces anew, too.
        self._het_model.train_function = None
        super().reset()

    def _variables(self) -> list[Any]:
        """Returns tf.Variables of the model and its optimizer, in an order that all workers share.

        Leaves out metrics, which a worker that has trained has, but a new one lacks, and
        the anchors of tables, which are 0.
        """
        found: dict[int, Any] = {}
        apart = {id(one) for one in self._het_model.metrics_variables}
        apart |= {id(one) for one in layer_state.variables_of(self._het_model)}
        model = [one for one in self._het_model.variables if id(one) not in apart]
        for one in [*model, *dense_optimizer.variables_of(self._het_optimizer)]:
            found.setdefault(id(one), one.value)
        return [variable for variable in found.values() if variable.dtype != tf.string]

    def _remember(self) -> None:
        self._het_values = [variable.numpy() for variable in self._variables()]
        self._het_applies = self._applies()

    @staticmethod
    def _applies() -> dict[tuple[str, str], int]:
        return {key: native.call_int("HetApplies", *key) for key in registry.keys()}

    def _set_applies(self) -> None:
        for (namespace, table), applies in self._het_applies.items():
            if registry.find(namespace, table) is not None:
                native.call("HetSetApplies", namespace, table, applies)


def run_elastic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function whose first argument is an ElasticState: `hvd.elastic.run` for het_tf.

    When a worker is lost, the others leave the function, restore the last commit, and call it again. When
    a worker joins, all continue from rank 0's state. It also recognises failed collectives of
    het_tf; Horovod's own decorator recognises only three ops by name. In your own loop make the
    `tf.function` of a step inside the decorated function: a worker that joins traces it anew, and a graph
    traced earlier may name its collectives differently. The state renews Keras' own function.
    """

    @functools.wraps(function)
    def caught(state: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(state, *args, **kwargs)
        except tf.errors.OpError as error:
            text = str(error).lower()
            if isinstance(error, _LOST) and any(word in text for word in _FAILED):
                raise HorovodInternalError(error) from error
            raise

    run: Callable[..., Any] = _horovod().elastic.run(caught)
    return run
