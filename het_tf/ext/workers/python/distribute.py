"""`het_tf.workers.distribute`: makes a Keras model's train_step reduce dense gradients over the ranks."""

from collections.abc import Callable
from functools import partial
from typing import Any

from het_tf.ext.workers.python import callbacks, checks
from het_tf.ext.workers.python.backends import ops
from het_tf.ext.workers.python.gradients import reduce_gradients
from het_tf.python import backend
from het_tf.python.backend import keras
from het_tf.python.layer.backends import ops as layer_backend
from het_tf.python.session import collective, settings


def distribute(model: Any) -> Any:
    """Makes `fit` and `train_on_batch` of a model train one model on all ranks.

        model = het_tf.workers.distribute(model)
        model.compile("adam", ...)
        model.fit(dataset)

    It changes the model in place: its `train_step`, Keras' or yours, runs as
    before, but gradients are averaged before they reach its optimizers. So loss scaling, clipping,
    accumulation, weight decay and moving averages see the averaged gradients, equal on every rank.
    With one rank nothing changes. Call it before or after `compile`; a second call does nothing.

    * Each `fit`, and a first `train_on_batch`, begins with the weights and the optimizer state of rank 0,
      also where the first step makes the weights. (Under `run_eagerly=True` the forward pass of such a step
      runs before.)
    * The logs of an epoch are those of all ranks when callbacks read them: metrics exactly, as in
      `global_metrics`, for training and validation; other numbers averaged. The progress bar shows this
      rank's part, `evaluate` returns it: call `global_metrics` after it.
    * On datasets of unknown length, as after a `filter`, an epoch ends on all ranks with the shortest, as in
      `until_shortest`. A generator needs `steps_per_epoch`.
    * If rows travel on demand (`shard_on_demand`), `fit` flushes on all ranks before, after, and before an
      evaluation.

    Before the first step the ranks compare their models, and refuse to start with different ones.

    A module of plain PyTorch becomes ready for DistributedDataParallel, which averages the gradients of its
    dense part: `model = DistributedDataParallel(het_tf.workers.distribute(model))`.

    Args:
      model: A Keras model, functional, Sequential or subclassed; or a torch.nn.Module with modules of
        `het_tf.torch`.

    Returns:
      `model`.

    Raises:
      TypeError: It is not a model.
      NotImplementedError: On JAX, under a keras.distribution over several processes.
      ValueError: It is a DistributedDataParallel already.
      RuntimeError: `het_tf.init` was not called on every rank, the model is compiled with Horovod's own
        optimizer wrapper, or with `jit_compile=True`. When `fit` begins: the ranks have different numbers of
        batches. At the first step: the models of the ranks differ, or the model's train_step used no
        optimizer that is an attribute of the model.
    """
    if not isinstance(model, keras.Model):
        if backend.NAME == "torch":
            return ops.distribute(model)
        raise TypeError(f"model is {model!r}; give a Keras model")
    collective.require_init()
    if not backend.TENSORFLOW:
        layer_backend.check(model.name)
    if not settings.several_workers() or hasattr(model, "_het_distributed"):
        return model
    _refuse(model)
    step = _Step(model, model.train_step)
    model._het_distributed = step
    # An attribute of the object hides the method of its class; the class, by which Keras saves and
    # clones a model, stays.
    model.train_step = step.run
    model.fit = ops.fits(model, callbacks.fits(model, model.fit))
    if not ops.BEGINS_IN_STEP:
        model.make_train_function = step.before(model.make_train_function)
    model.train_function = None  # a fit before this call has traced the old step
    return model


def _refuse(model: Any) -> None:
    optimizer = getattr(model, "optimizer", None)
    both = (optimizer, getattr(optimizer, "inner_optimizer", None))
    if any(hasattr(one, "_allreduce_grads") for one in both):
        raise RuntimeError(
            "the model is compiled with hvd.DistributedOptimizer, which reduces nothing under Keras 3: "
            "every rank would train a different model without a message. Compile with the Keras optimizer "
            "itself, and call het_tf.workers.distribute(model)"
        )
    # Keras would compute the property of a model that is not compiled yet.
    jit = getattr(model, "_jit_compile", None)
    if jit and ops.NO_JIT and settings.workers().size > 1:
        raise RuntimeError(
            f"the model is compiled with jit_compile=True, but {ops.NO_JIT}; compile with jit_compile=False"
        )


class _Step:
    """The train_step of a distributed model.

    Attributes:
      before_update: Called once, in the first step, when all weights have values and none has changed
        yet (in a traced step, before its graph runs).
    """

    def __init__(self, model: Any, inner: Any) -> None:
        self._model = model
        self._inner = inner
        self._compared = False
        self.before_update: Any = partial(callbacks.broadcast, model)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model's train_step with its optimizers intercepted."""
        _refuse(self._model)
        interception = _Interception(self._model, self._begin if ops.BEGINS_IN_STEP else lambda: None)
        with interception:
            result = self._inner(*args, **kwargs)
        interception.check()
        return result

    def before(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `make`, Keras' maker of a function that it traces, behind what a first update needs."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self._begin()
            return make(*args, **kwargs)

        return run

    def _begin(self) -> None:
        """Prepares an update.

        Weights that the step makes during tracing (in a `build` of the model) may have no values
        yet. TensorFlow sets their values after this trace, and traces the step anew before it runs.
        """
        with ops.outside_graphs():
            if not ops.have_values(self._model.weights):
                return
            if self.before_update is not None:
                action, self.before_update = self.before_update, None
                action()
            if not self._compared:
                checks.compare_ranks(self._model)
                self._compared = True  # only now: compare again after a refusal


# How gradients get to an optimizer, and their place among the arguments. JAX calls the second one.
_APPLIES = {"apply": 0, "stateless_apply": 1}


class _Interception:
    """While open, the optimizers of a model reduce the gradients that they get."""

    def __init__(self, model: Any, before: Any) -> None:
        self._model = model
        self._before = before
        self._optimizers: list[Any] = []
        self._within = False
        self._applied = False

    def __enter__(self) -> None:
        for value in [getattr(self._model, "optimizer", None), *vars(self._model).values()]:
            known = any(value is one for one in self._optimizers) or isinstance(value, keras.Layer)
            if callable(getattr(value, "apply", None)) and not known:
                self._optimizers.append(value)
        for optimizer in self._optimizers:
            # Bypasses the tracking of attributes: this is not part of the optimizer's state.
            for name in _APPLIES:
                if method := getattr(optimizer, name, None):
                    optimizer.__dict__[name] = self._reducing(optimizer, method, _APPLIES[name])

    def __exit__(self, *_: object) -> None:
        for optimizer in self._optimizers:
            for name in _APPLIES:
                optimizer.__dict__.pop(name, None)

    def _reducing(self, optimizer: Any, apply: Any, place: int) -> Any:
        def reduced(*args: Any, **kwargs: Any) -> Any:
            # An inner optimizer, as in LossScaleOptimizer, gets gradients that are reduced already.
            if self._within:
                return apply(*args, **kwargs)
            self._within = self._applied = True
            try:
                self._before()
                given = args[1] if len(args) > 1 else kwargs.get("trainable_variables")
                variables = list(optimizer._trainable_variables if place or given is None else given)
                if len(args) > place:
                    means = reduce_gradients(list(args[place]), variables)
                    return apply(*args[:place], means, *args[place + 1 :], **kwargs)
                return apply(*args, **{**kwargs, "grads": reduce_gradients(list(kwargs["grads"]), variables)})
            finally:
                self._within = False

        return reduced

    def check(self) -> None:
        """Raises RuntimeError if the step did not use an intercepted optimizer."""
        if not self._applied and self._model.trainable_weights and settings.workers().size > 1:
            raise RuntimeError(
                f"train_step of model {self._model.name!r} called apply of no optimizer that is an "
                "attribute of the model, so nothing was reduced over the ranks; make the optimizer an "
                "attribute. Or pass the gradients through het_tf.workers.reduce_gradients, call "
                "het_tf.workers.broadcast(model) before fit, and leave het_tf.workers.distribute out"
            )
