"""The command `het-publish`. Exit status: 0 done, 1 something is wrong (a line tells), 2 wrong arguments."""

import argparse
import json
import textwrap
import time
from collections.abc import Callable

from het_tf.python.ps.address import parse
from het_tf.python.ps.client import Client
from het_tf.python.ps.errors import ServerError
from het_tf.python.publishing.versions import MOST_KEPT, Versions
from het_tf.python.show import Command, run, size
from het_tf.python.show import parser as command_line

DESCRIPTION = """\
Versions of a model that het_tf.publish has put beside its tables at a parameter
server.

  het-publish list redis://ps:6379       the kept versions, the newest last
  het-publish show redis://ps:6379 12    one of them

ADDRESS is redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...], rediss:// with
?ca=FILE for TLS, or unix://[USER:PASSWORD@]/PATH.
Exit status: 0 done, 1 something is wrong, 2 wrong arguments."""

_SECONDS = 10.0  # for a server that restarts


def parser() -> argparse.ArgumentParser:
    """The command line."""
    return command_line("het-publish", DESCRIPTION, (_list, _show))


def _list(command: Command) -> None:
    sub = command("list", "show the kept versions, the newest last")
    _server(sub)
    sub.add_argument("--last", type=_number, default=20, metavar="N", help="at most so many (%(default)s)")


def _show(command: Command) -> None:
    sub = command("show", "show all that a version says")
    _server(sub)
    sub.add_argument("version", type=_number, help="its number")


def _server(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("address", metavar="ADDRESS", help="the parameter server")
    sub.add_argument("--namespace", default="", metavar="NS", help="of the model's tables (the default one)")
    sub.add_argument("--json", action="store_true", help="for programs")


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) < 2**63:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1")
    return int(text)


def run_list(options: argparse.Namespace, versions: Versions) -> int:
    """het-publish list."""
    found = versions.last(min(options.last, MOST_KEPT))
    if options.json:
        print(json.dumps([vars(one) for one in found], indent=1))
    elif not found:
        print(f"namespace {options.namespace!r} has no versions")
    else:
        now = time.time()
        print(f"{'version':>7}  {'published (UTC)':19}  {'age':>6}  {'dense':>8}  trained through")
        for one in found:
            print(
                f"{one.number:7}  {_date(one.time)}  {_age(now - one.time):>6}  {size(one.bytes):>8}  "
                f"{textwrap.shorten(json.dumps(one.trained_through), 32, placeholder='...')}"
            )
    return 0


def run_show(options: argparse.Namespace, versions: Versions) -> int:
    """het-publish show."""
    one = versions.get(options.version)
    if options.json:
        print(json.dumps(vars(one), indent=1))
        return 0
    changes = sum(int(position.partition(":")[2]) for position in one.cut)
    lines = {
        "version": str(one.number),
        "published": f"{_date(one.time)} UTC, {_age(time.time() - one.time)} ago",
        "trained through": json.dumps(one.trained_through),
        "dense weights": f"{size(one.bytes)}, {one.dense}",
        "sha256": one.sha256,
        "signature": one.signature,
        "cut": f"{changes:,} changes in {len(one.cut)} partitions",
    }
    for name, value in lines.items():
        print(f"{name:16}{value}")
    return 0


def _date(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):  # a year beyond the calendar's
        return f"{seconds:19.3g}"


def _age(seconds: float) -> str:
    for unit, length in (("s", 60), ("min", 60), ("h", 48)):
        if seconds < length:
            return f"{seconds:.0f} {unit}"
        seconds /= 60 if unit != "h" else 24
    return f"{seconds:.0f} d"


RUN: dict[str, Callable[[argparse.Namespace, Versions], int]] = {"list": run_list, "show": run_show}


def _run(options: argparse.Namespace) -> int:
    with Client(parse(options.address), _SECONDS) as client:
        return RUN[options.command](options, Versions(client, options.namespace))


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; `arguments` as in sys.argv[1:]. Returns the exit status."""
    options = parser().parse_args(arguments)
    return run("het-publish", lambda: _run(options), 130, ServerError, ValueError, LookupError)
