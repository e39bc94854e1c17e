"""The formats of `het_tf.export`: what each takes, and its defaults."""

from dataclasses import dataclass
from typing import Literal, get_args

from het_tf.ext.ps.python import address as addresses
from het_tf.python.checks import one_of, seconds, seconds_or_none, whole

RowDtype = Literal["float32", "float16", "bfloat16", "int8"]
Unknown = Literal["initial", "zeros"]
Stale = Literal["serve", "fail"]


@dataclass(frozen=True)
class Follow:
    """How a native export follows training: `Native(follow=Follow(address))`.

    Attributes:
      address: The parameter server that trains the tables, `redis://HOST[:PORT][,...]`, `rediss://...` or
        `unix://PATH`, without a password and a client's certificate: the follower gets those by the
        environment's HET_SERVE_PS.
      max_age: Seconds: the largest allowed age of a served row. The age is the time since the follower asked
        the server for the state that it shows; it is unknown, and beyond, before a follower has run.
      stale: What happens beyond: "serve": rows are served, and it is reported on stderr; "fail": the request
        fails.
      max_skew: Seconds: how much newer than the dense weights in force rows should be at most. Beyond, rows
        go on, and `het serve status` reports it. None: no limit.

    Raises:
      ValueError: An argument is out of range.
    """

    address: str
    max_age: float = 2.0
    stale: Stale = "serve"
    max_skew: float | None = None

    def __post_init__(self) -> None:
        """Checks the arguments."""
        check_public("address", self.address)
        object.__setattr__(self, "max_age", seconds("max_age", self.max_age))
        one_of("stale", self.stale, get_args(Stale))
        object.__setattr__(self, "max_skew", seconds_or_none("max_skew", self.max_skew, "None for no limit"))


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """A format that stores rows."""

    row_dtype: RowDtype = "float32"
    unknown: Unknown = "initial"
    min_count: int = 0
    max_age: float | None = None

    def __post_init__(self) -> None:
        """Checks the arguments."""
        one_of("row_dtype", self.row_dtype, get_args(RowDtype))
        one_of("unknown", self.unknown, get_args(Unknown))
        min_count = whole("min_count", self.min_count, 0, 65535, "a number of updates")
        object.__setattr__(self, "min_count", min_count)
        object.__setattr__(self, "max_age", seconds_or_none("max_age", self.max_age, "None for no limit"))


@dataclass(frozen=True, kw_only=True)
class Portable(_Stored):
    """TensorFlow's own ops and variables: for unmodified TensorFlow Serving, `saved_model_cli` and the C API.

    Every process that serves the model has its own copy of all rows in memory.

    Attributes:
      row_dtype: Type of stored rows. "float32": as trained, to the bit. "float16" and "bfloat16": half the
        bytes. "int8": a quarter, and a scale for each row. Reads widen to float32.
      unknown: The row of an id without one: "initial": its initial row, as in training; "zeros".
      min_count: Leaves out rows with fewer updates than this, 0 to 65535; they read as unknown ids.
      max_age: Leaves out rows whose last update is longer ago than this, in seconds. None: no limit.

    Raises:
      ValueError: An argument is out of range. At the export: a value is too large for float16.
    """


@dataclass(frozen=True, kw_only=True)
class Native(_Stored):
    """Rows in memory-mapped files, which the serving processes of a machine share.

    Serving needs het_tf's library of ops. Rows of an export without filters can follow training at a
    parameter server (`het serve follow`), also if that was not planned; with `follow` dense weights do too.

    Attributes:
      row_dtype, unknown, min_count, max_age: As in `Portable`. With `follow` no row may be left out.
      follow: A `Follow`: dense weights follow, and the age of served rows has a bound. None: neither.

    Raises:
      TypeError: `follow` is no `Follow`.
      ValueError: As in `Portable`. At the export, with `follow`: rows are filtered; the model has tables of
        several namespaces.
      RuntimeError: At the export, with `follow`: the tables are not at a parameter server.
    """

    follow: Follow | None = None

    def __post_init__(self) -> None:
        """Checks the arguments."""
        super().__post_init__()
        if not isinstance(self.follow, Follow | None):
            raise TypeError(f"follow is {self.follow!r}; give het_tf.serving.Follow(address)")


Format = Portable | Native


def name_of(format: Format) -> str:
    """The name of a format in texts and records, which is that of the module of its backend."""
    return type(format).__name__.lower()


def check_public(argument: str, address: object) -> None:
    """Refuses what is not the address of a server, or has a secret. ValueError names the argument."""
    if not isinstance(address, str):
        raise ValueError(
            f"{argument} is {address!r}; give an address, such as 'redis://HOST:PORT' or 'unix:///PATH'"
        )
    parsed = addresses.parse(address)
    if parsed.public() != parsed:
        what = "a password" if parsed.has_login else "the certificate of a client"
        raise ValueError(
            f"{argument} has {what}, which must not be in a SavedModel; leave it out, and give the process "
            "that serves, or follows, the whole address by the environment's HET_SERVE_PS"
        )
