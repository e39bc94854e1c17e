"""The command `het-serve`. Exit status: 0 done, 1 something is wrong (a line says it), 2 wrong arguments."""

import argparse
import dataclasses
import json
import os

from het_tf.python import show
from het_tf.python.following import arguments, follow, live, native, target
from het_tf.python.ps.errors import ServerError
from het_tf.python.show import Command

DESCRIPTION = """\
Keeps an exported model up to date while it is served.

  het-serve follow DIR      one process for each SavedModel of a host: rows and
                            published versions come from the parameter server
  het-serve status DIR      how old the rows are, and which version is in force

DIR is a SavedModel of het_tf.export(model, DIR, format="native"); with follow=...
its dense weights follow too. Serving processes map the files that `follow`
changes: they need not be told.
Exit status: 0 done, 1 something is wrong, 2 wrong arguments."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    return show.parser("het-serve", DESCRIPTION, (_follow, _status))


def _follow(command: Command) -> None:
    sub = command(
        "follow",
        "follow the parameter server until SIGTERM or Ctrl-C",
        "Runs in the foreground, under a supervisor such as systemd. When it dies, rows grow old and are "
        "served on; the next one continues. The live files lie in DIR/het_live.",
    )
    arguments.add_directory(sub)
    arguments.add_server(sub, "read")
    sub.add_argument(
        "--poll", type=_seconds, default=0.1, metavar="S",
        help="seconds between two questions to a partition (%(default)s)",
    )  # fmt: skip
    sub.add_argument(
        "--rows", choices=("float32", "float16", "int8", "int4"), default="float32",
        help="how rows come: smaller formats round them, for slow links (%(default)s)",
    )  # fmt: skip
    sub.add_argument(
        "--keep-undo", type=show.at_least_0, default=10, metavar="N",
        help="versions to which `het-publish rollback` can go back, rows included; 0: none (%(default)s)",
    )  # fmt: skip
    sub.add_argument(
        "--undo-bytes", type=show.at_least_0, default=1 << 30, metavar="N",
        help="limit on the bytes of these rows on disk (%(default)s)",
    )  # fmt: skip
    sub.add_argument("--once", action="store_true", help="end when all rows and the newest version have come")


def _status(command: Command) -> None:
    sub = command(
        "status",
        "show what is served",
        "Reads the live files; the follower need not run. Exit status 1: no follower runs, or the rows are "
        "older than the export's max_age, or newer than the dense weights by more than its max_skew.",
    )
    arguments.add_directory(sub)
    show.add_json(sub)


_seconds = show.within(float, 0.001, 3600, "a number of seconds from 0.001 to 3600")


def run_follow(options: argparse.Namespace) -> int:
    """het-serve follow."""
    found = target.read(options.dir)
    if options.ps:
        os.environ["HET_SERVE_PS"] = options.ps
    ended, say = show.until_signal(), show.log("het-serve")
    how = native.Options(options.poll, options.rows, options.keep_undo, options.undo_bytes)
    follow.follow(found, how, options.once, ended, say)
    if ended():
        say("ended")
    return 0


def run_status(options: argparse.Namespace) -> int:
    """het-serve status."""
    found = target.read(options.dir)
    state = live.read(found)
    if options.json:
        limits = {"max_age": found.max_age, "max_skew": found.max_skew}
        print(json.dumps({**dataclasses.asdict(state), **limits}, indent=1))
    elif not state.live:
        print("no live files of this export and boot of the machine: the export's rows are served")
    else:
        lines = {
            "follower": f"process {state.pid}" if state.pid else "not running",
            "age": _time(state.age),
            "max_age": _limit(found.max_age),
            "skew": _time(state.skew),
            "max_skew": _limit(found.max_skew),
            "version": str(state.version) if state.version else "0, the export",
            "rolled back": f"to version {state.rolled_back}" if state.rolled_back is not None else "no",
            "trained through": (
                "unknown" if state.trained_through is None else show.when(state.trained_through)
            ),
            "generation": str(state.generation),
            "rows": ", ".join(map(show.number, state.rows)),
        }
        for name, value in lines.items():
            print(f"{name:16}{value}")
    late = state.pid is None or _exceeds(state.age, found.max_age)
    return int(late or _exceeds(state.skew, found.max_skew))


def _time(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds:.2f} s"


def _limit(seconds: float | None) -> str:
    return "no limit" if seconds is None else f"{seconds:g} s"


def _exceeds(seconds: float | None, limit: float | None) -> bool:
    return limit is not None and (seconds is None or seconds > limit)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; `arguments` as in sys.argv[1:]. Returns the exit status."""
    run = {"follow": run_follow, "status": run_status}
    return show.run(
        parser(),
        arguments,
        lambda options: run[options.command](options),
        ServerError,
        ValueError,
        RuntimeError,
        ConnectionError,
        ImportError,
    )
