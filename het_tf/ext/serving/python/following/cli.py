"""The commands `het serve`."""

import dataclasses
import os

from het_tf.ext.serving.python.following import follow, live, target
from het_tf.python import show
from het_tf.python.cli import JSON, Group, Options, answer, arg, within
from het_tf.python.files import local

HET = Group("""\
Keeps an exported model up to date while it is served.

  het serve follow DIR      one process for each SavedModel of a host: rows and
                            published versions come from the parameter server
  het serve status DIR      how old the rows are, and which version is in force

DIR is a SavedModel of het_tf.export(model, DIR, het_tf.serving.Native()); by
Native(follow=...) its dense weights follow too. Serving processes map the files
that `follow` changes: they need not be told.""")

_DIRECTORY = arg("dir", type=local, metavar="DIR", help="a SavedModel that can be followed")


@HET.command(
    "follow",
    "follow the parameter server until SIGTERM or Ctrl-C",
    _DIRECTORY,
    arg("--ps", metavar="ADDRESS", help="the parameter server, with a login that may read (default: "
        "$HET_SERVE_PS, or the export's address)"),
    arg("--poll", type=within(float, 0.001, 3600, "a number of seconds from 0.001 to 3600"), default=0.1,
        metavar="S", help="seconds between two questions to a partition (%(default)s)"),
    arg("--rows", choices=("float32", "float16", "int8", "int4"), default="float32",
        help="how rows come: smaller formats round them, for slow links (%(default)s)"),
    arg("--once", action="store_true", help="end when all rows and the newest version have come"),
    more="Runs in the foreground, under a supervisor such as systemd. When it dies, rows grow old and are "
    "served on; the next one continues. The live files lie in DIR/het_live.",
)  # fmt: skip
def run_follower(options: Options) -> int:
    """Het serve follow."""
    found = target.read(options.dir)
    if options.ps:
        os.environ["HET_SERVE_PS"] = options.ps
    ended, say = show.until_signal(), show.log("het serve")
    follow.follow(found, options.poll, options.rows, options.once, ended, say)
    if ended():
        say("ended")
    return 0


@HET.command(
    "status",
    "show what is served",
    _DIRECTORY,
    JSON,
    more="Reads the live files; the follower need not run. Exit status 1: no follower runs, or the rows are "
    "older than the export's max_age, or newer than the dense weights by more than its max_skew.",
)
def show_status(options: Options) -> int:
    """Het serve status."""
    found = target.read(options.dir)
    state = live.read(found)
    text = "no live files of this export and boot of the machine: the export's rows are served"
    if state.live:
        lines = {
            "follower": f"process {state.pid}" if state.pid else "not running",
            "age": _time(state.age),
            "max_age": _limit(found.max_age),
            "skew": _time(state.skew),
            "max_skew": _limit(found.max_skew),
            "version": str(state.version) if state.version else "0, the export",
            "trained through": (
                "unknown" if state.trained_through is None else show.when(state.trained_through)
            ),
            "generation": str(state.generation),
            "rows": ", ".join(map(show.number, state.rows)),
        }
        text = "\n".join(f"{name:16}{value}" for name, value in lines.items())
    limits = {"max_age": found.max_age, "max_skew": found.max_skew}
    answer(options, {**dataclasses.asdict(state), **limits}, text)
    late = state.pid is None or _exceeds(state.age, found.max_age)
    return int(late or _exceeds(state.skew, found.max_skew))


def _time(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds:.2f} s"


def _limit(seconds: float | None) -> str:
    return "no limit" if seconds is None else f"{seconds:g} s"


def _exceeds(seconds: float | None, limit: float | None) -> bool:
    return limit is not None and (seconds is None or seconds > limit)
