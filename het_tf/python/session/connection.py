"""`het_tf.init`: the workers, the parameter server, the engine's threads. Writes the settings."""

import dataclasses
import json
import math
import os
from collections.abc import Callable
from typing import Literal

from het_tf.python import backend, calling, extensions
from het_tf.python.checks import one_of, whole_or_none
from het_tf.python.session import collective, native, reporting, settings
from het_tf.python.session.native import plain
from het_tf.python.session.scopes import checked_namespace, current_namespace

GRADIENT_SCALES = ("mean", "sum")
_NO_OPTIONS = ("address", "password")  # of Store: not for the core's options


@dataclasses.dataclass(frozen=True)
class Store:
    """A parameter server and its use by a worker: `het_tf.init(ps=het_tf.Store("redis://ps:6379"))`.

    None means an argument's default, which the core fills in.

    Args:
      address: `redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]` (one server, or nodes of a cluster),
        `rediss://...?ca=FILE` for TLS, `redis+sentinel://HOST[:PORT][,...]/SERVICE` for Sentinels, or
        `unix://PATH`. None or "": as `ps` of `het_tf.init`.
      password: The password, if the address has none, or a function that returns it. It is called for each
        new connection, by any thread, so a password that changes ends no job.
      durability: How long a worker keeps applied pushes, to send them again if the parameter server loses
        them. "applied" (default): not at all; "replicated": until `min_replicas` replicas have them;
        "checkpoint": until the tables are saved. Pushes that are lost anyway are counted and
        reported.
      min_replicas: Replicas that must have a push under "replicated"; default 1.
      keep_bytes: Memory for kept pushes; default 256 MiB. When it is full, "replicated" waits for the
        replicas, and "checkpoint" drops the oldest pushes with a warning.
      timeout: Seconds without a byte after which the worker abandons a connection that owes an answer,
        connects again and resends. Default 10.
      deadline: Seconds without any progress (a push applied, a lookup answered) after which a call fails.
        Default 60.

    Raises:
      ValueError: An argument is of another type, out of range, or unknown.
    """

    address: str | None = None
    _: dataclasses.KW_ONLY
    password: str | Callable[[], str] | None = dataclasses.field(default=None, repr=False)
    durability: Literal["applied", "replicated", "checkpoint"] | None = None
    min_replicas: int | None = None
    keep_bytes: int | None = None
    timeout: float | None = None
    deadline: float | None = None

    def __post_init__(self) -> None:
        if self.address is not None and not isinstance(self.address, str):
            raise ValueError(
                f"ps is {self.address!r}; give an address, such as 'redis://HOST:PORT' or 'unix:///PATH'"
            )
        if self.password is not None and not (isinstance(self.password, str) or callable(self.password)):
            kind = type(self.password).__name__
            raise ValueError(f"password is a {kind}; give a string, or a function that returns one")
        self._options()

    def _options(self) -> str:
        """Returns the options of remote_options.h (ext/ps/client) as JSON, completed by the core."""
        options = {name: plain(value) for name, value in vars(self).items() if name not in _NO_OPTIONS}
        for name, value in options.items():
            if isinstance(value, float) and math.isinf(value):  # JSON lacks it
                options[name] = str(value)
        given = {name: value for name, value in options.items() if value is not None}
        # The core refuses other values by their name.
        return native.call("HetCheckOptions", json.dumps(given, default=str))


def init(
    *,
    ps: "str | Store | None" = None,
    gradient_scale: Literal["mean", "sum"] = "mean",
    accumulate: bool = False,
    namespace: str = "",
    threads: int | None = None,
) -> None:
    """Sets up het_tf. Optional for one worker: its tables are then in this process.

    Under `het run` and other launchers (docs/where-it-runs.md) it finds the other ranks, and this process
    becomes one of several workers; under `horovodrun` it initialises Horovod, if the program has not done so.
    Every rank must call it with the same arguments: the ranks compare them.

    Call it before the first layer is made, and after `tf.config` (threads, devices): with several ranks it
    exchanges tensors, which starts TensorFlow and freezes its settings.

    Args:
      ps: Address of the parameter server, or a `het_tf.Store` with an address and options. Tables are then
        there, shared by all workers with the same namespace, and each worker caches rows of them
        (`het_tf.Cache`; default: 262,144 rows of each table). "": the store inside this process.
        None: the environment's HET_PS, else the store inside, or with several ranks a server that rank 0
        starts on this machine and stops at the end of the job.
      gradient_scale: "mean" divides the gradients of rows by the number of workers, as Horovod does for
        dense variables; "sum" does not.
      accumulate: Sums the gradients of a step over all workers and updates each row once, like one process
        that sees all their batches; else each worker updates the rows of its batch by itself. Needs
        a parameter server; costs one exchange between workers per layer and step. docs/protocol.md, "Several
        workers", explains when it matters.
      namespace: The namespace of layers that are made outside `het_tf.namespace()`.
      threads: Threads of the engine, including the caller; None follows
        `tf.config.threading.get_intra_op_parallelism_threads()`, or `torch.get_num_threads()`, or the CPUs of
        the process if that is 0.

    Raises:
      ValueError: Unknown gradient_scale, an argument of another type or out of range, an invalid address, a
        durability without a parameter server, several ranks with ps="", or arguments that differ
        between ranks.
      ConnectionError: No server answers at the address, or it refuses the login.
      TimeoutError: Some of the ranks did not come.
      NotImplementedError: horovodrun has started the ranks, and Keras' backend is not TensorFlow, or the job
        is elastic.
      RuntimeError: Tables exist elsewhere already, the server has not loaded the het module,
        or horovodrun started ranks, but Horovod does not import.
    """
    one_of("gradient_scale", gradient_scale, GRADIENT_SCALES)
    if not isinstance(accumulate, bool):
        raise ValueError(f"accumulate is {accumulate!r}; give True or False")
    store = ps if isinstance(ps, Store) else Store(ps)
    threads = whole_or_none("threads", threads, 1, 2**31 - 1, otherwise="None to follow the backend")
    address = os.environ.get("HET_PS", "") if store.address is None else store.address
    if store.durability not in (None, "applied") and not address:
        raise ValueError(f"durability is {store.durability!r}, but there is no parameter server; give ps=...")
    options = store._options()
    if store.address == "":
        _refuse_own_stores(*extensions.of("ranks").launched())
    workers = extensions.of("ranks").workers(address, settings.password_function(store.password))
    if workers.size > 1:
        equal = {
            "gradient_scale": gradient_scale,
            "accumulate": accumulate,
            "namespace": namespace,
            **json.loads(options),
        }
        job_server = extensions.of("job_server")
        address = job_server.agree(workers, address, equal, _leave_the_job)
        password = settings.password_function(store.password if store.address else None)
        job_server.refuse_second_job(workers, address, namespace, password)
    _connect(address, checked_namespace(namespace), options, store.password if address else None)
    settings.current.workers = workers
    settings.current.gradient_scale = gradient_scale
    settings.current.accumulate = accumulate
    settings.current.namespace = namespace
    settings.current.threads = threads
    update_threads()


def _refuse_own_stores(launcher: str, ranks: int) -> None:
    if ranks > 1:
        raise ValueError(
            f'ps is "", the store inside each process, but {launcher} runs {ranks} ranks: every rank '
            "would train its own tables. Leave ps out, and the job gets a server, or give an address"
        )


def _leave_the_job() -> None:
    settings.leave()
    settings.workers().leave()


def _connect(
    address: str, namespace: str, options: str, password: str | Callable[[], str] | None = None
) -> None:
    changed = (options, password) != (settings.current.ps_options, settings.current.ps_password)
    if address != (settings.current.ps or "") or (address and changed):
        try:
            _use(address, options, password)
        except RuntimeError as error:
            raise RuntimeError(
                f"{error}; call het_tf.init before the first layer is made, or het_tf.reset() first"
            ) from None
        if address:
            if backend.TENSORFLOW:
                from het_tf.python.session import interrupts

                interrupts.prepare()
            try:
                native.call("HetTableNames", namespace)  # connects
            except BaseException:  # Ctrl-C, too
                before = settings.current
                _use(before.ps or "", before.ps_options, before.ps_password)
                raise
    settings.current.ps, settings.current.ps_options = address, options
    settings.current.ps_password = password
    reporting.start()


def _use(address: str, options: str, password: str | Callable[[], str] | None) -> None:
    """Lets the core use the tables at an address."""
    native.call("HetConnectWith", address, options, calling.password(settings.password_function(password)))


def connect() -> None:
    """Follows HET_PS if init() was not called; called before the first table is made."""
    collective.require_init()
    if settings.current.ps is None:
        _connect(os.environ.get("HET_PS", ""), current_namespace(), Store()._options())


def update_threads() -> None:
    """Passes the backend's number of threads to the engine if it has changed."""
    threads = settings.current.threads or backend.threads() or len(os.sched_getaffinity(0))
    if threads != settings.current.threads_set:
        native.call("HetSetThreads", threads)
        settings.current.threads_set = threads
