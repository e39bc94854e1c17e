"""The commands `het publish`."""

import contextlib
import textwrap
import time
from collections.abc import Iterator

from het_tf.ext.ps.python.address import FORM, parse
from het_tf.ext.ps.python.client import Client
from het_tf.ext.serving.python.publishing.versions import History, Versions
from het_tf.python.cli import JSON, Group, Options, answer, arg, at_least_1
from het_tf.python.show import date, size, when

HET = Group("""\
Versions of a model that het_tf.publish has put beside its tables at a parameter
server.

  het publish list redis://ps:6379        the kept versions, the newest last
  het publish show redis://ps:6379 12     one of them
  het publish release redis://ps:6379 12  let followers serve a candidate
  het publish rollback redis://ps:6379 9  let followers go back to a version's
                                          dense weights
  het publish resume redis://ps:6379      and on again""")

_SECONDS = 10.0  # for a server that restarts
_SERVER = (
    arg("address", metavar="ADDRESS", help=f"the parameter server, {FORM}"),
    arg("--namespace", default="", metavar="NS", help="of the model's tables (the default)"),
)
_VERSION = arg("version", type=at_least_1, metavar="VERSION", help="its number")


@contextlib.contextmanager
def _versions(options: Options) -> Iterator[Versions]:
    with Client(parse(options.address), _SECONDS) as client:
        yield Versions(client, options.namespace)


@HET.command(
    "list",
    "show the kept versions, the newest last",
    *_SERVER,
    arg("--last", type=at_least_1, default=20, metavar="N", help="at most N versions (%(default)s)"),
    JSON,
)
def list_versions(options: Options) -> int:
    """Het publish list."""
    with _versions(options) as versions:
        history = versions.history()
    found = list(history.versions.values())[-options.last :]
    now = time.time()
    lines = [f"{'version':>7}  {'published':20}  {'age':>6}  {'dense':>8}  {'state':9}  trained through"]
    lines += [
        f"{one.number:7}  {date(one.time):20}  {_age(now - one.time):>6}  {size(one.bytes):>8}  "
        f"{history.state(one.number):9}  {textwrap.shorten(when(one.trained_through), 20, placeholder='...')}"
        for one in found
    ]
    none = f"namespace {options.namespace!r} has no versions"
    answer(options, [vars(one) for one in found], "\n".join(lines) if found else none)
    return 0


@HET.command("show", "show all that a version says", *_SERVER, _VERSION, JSON)
def show_version(options: Options) -> int:
    """Het publish show."""
    with _versions(options) as versions:
        history = versions.history()
        one = versions.chosen(history, options.version)
    changes = sum(int(position.partition(":")[2]) for position in one.cut)
    lines = {
        "version": str(one.number),
        "state": history.state(one.number),
        "published": f"{date(one.time)}, {_age(time.time() - one.time)} ago",
        "trained through": when(one.trained_through),
        "dense weights": f"{size(one.bytes)}, {one.dense}",
        "sha256": one.sha256,
        "signature": one.signature,
        "cut": f"{changes:,} changes in {len(one.cut)} partitions",
    }
    answer(options, vars(one), "\n".join(f"{name:16}{value}" for name, value in lines.items()))
    return 0


@HET.command("release", "let followers serve a candidate", *_SERVER, _VERSION)
def release(options: Options) -> int:
    """Het publish release."""
    with _versions(options) as versions:
        versions.decide("release", lambda history: _releasable(history, options.version))
    print(f"version {options.version} is released")
    return 0


def _releasable(history: History, number: int) -> int:
    """Returns `number` if this version can be released. LookupError: it cannot."""
    newest = max(history.released, default=0)
    if number not in history.versions:
        kept = ", ".join(map(str, history.versions)) or "none"
        raise LookupError(f"there is no version {number}; kept are {kept}")
    if number in history.released:
        raise LookupError(f"version {number} is released already")
    if number < newest:
        raise LookupError(f"version {newest} is released, which is newer; `het publish rollback` goes back")
    return number


@HET.command(
    "rollback",
    "let followers go back to a version's dense weights, and stay there",
    *_SERVER,
    _VERSION,
    more="Rows go on as the store has them. To take them back, restore the store from a checkpoint"
    " (het_tf.checkpoint.restore): followers follow it.",
)
def roll_back(options: Options) -> int:
    """Het publish rollback."""
    with _versions(options) as versions:
        versions.decide("rollback", lambda history: versions.chosen(history, options.version).number)
    print(
        f"followers go back to the dense weights of version {options.version}, until `het publish resume`; "
        "rows go on: to take them back, restore the store"
    )
    return 0


@HET.command(
    "resume",
    "let followers go on after a rollback",
    *_SERVER,
    more="They serve the newest released version and the present rows again.",
)
def resume(options: Options) -> int:
    """Het publish resume."""

    def choose(history: History) -> int:
        if history.rollback is None:
            raise LookupError("followers have not been told to go back")
        return history.rollback.version

    with _versions(options) as versions:
        number = versions.decide("resume", choose)
    print(f"followers go on from version {number}")
    return 0


def _age(seconds: float) -> str:
    for unit, length in (("s", 60), ("min", 60), ("h", 48)):
        if seconds < length:
            return f"{seconds:.0f} {unit}"
        seconds /= 60 if unit != "h" else 24
    return f"{seconds:.0f} d"
