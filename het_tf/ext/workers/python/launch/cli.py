"""The command `het run`."""

from __future__ import annotations

import argparse
import os
import re
from typing import Any

from het_tf.ext.workers.python.launch import check
from het_tf.ext.workers.python.launch.job import Job, outside, program
from het_tf.ext.workers.python.launch.meeting import Terms
from het_tf.python.cli import Group, Options, arg, at_least_0, at_least_1, either, within
from het_tf.python.files import local

HET = Group("""\
Starts the ranks of a job, and ends them together.

  het run --nproc 2 train.py --epochs 3     two ranks on this machine
  het run --nproc 4 --nnodes 2 --rdzv redis://store:7000 --rdzv-id job7
          train.py                          four on each of two, run on both

A .py file runs under this Python; anything else is a program. The first
rank that fails is named with its traceback, and all others are ended.""")

_seconds = within(float, 0.1, 1e6, "a number of seconds of 0.1 or more")
_ID = re.compile(r"[\w.-]{1,100}")


def _nodes(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,4})(?::(\d{1,4}))?", text)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= least <= most:
        raise argparse.ArgumentTypeError(f"'{text}' is not MIN or MIN:MAX with 1 <= MIN <= MAX")
    return least, most


def _id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a word of letters, digits, '.', '_' and '-'")
    return text


def _program(parser: Any) -> None:
    words = parser.add_argument("program", nargs=argparse.PARSER, metavar="PROGRAM", help="and its arguments")
    words.required = False  # for --check


@HET.command(
    "",
    "start the ranks of a job, on one machine or on several",
    arg("--nproc", type=at_least_1, default=1, metavar="N", help="ranks on this node (%(default)d)"),
    arg("--nnodes", type=_nodes, default=(1, 1), metavar="MIN[:MAX]",
        help="nodes; each runs this command, and may come later or be replaced (1)"),
    arg("--rdzv", default="", metavar="ADDRESS", help="the store, where nodes meet; default: $HET_PS"),
    arg("--rdzv-id", type=_id, metavar="ID",
        help="the job's name at the store, equal on its nodes alone; default: by the scheduler"),
    arg("--max-restarts", type=at_least_0, default=0, metavar="K",
        help="after a failure all ranks begin anew, at most K times (0)"),
    arg("--timeout", type=_seconds, default=10, metavar="S",
        help="seconds of silence after which a rank or a node is lost (%(default)g)"),
    arg("--join-timeout", type=_seconds, default=300, metavar="S", help="wait for nodes (%(default)g)"),
    arg("--log-dir", type=local, metavar="DIR", help="output to DIR/RANK.log; of rank 0 also here"),
    either(
        arg("-m", dest="module", action="store_true", help="PROGRAM is a module, as of python -m"),
        arg("--no-python", action="store_true", help="execute a .py file by itself, too"),
    ),
    arg("--check", action="store_true", help="start nothing: say what is found; exit 1 on a fault"),
    _program,
)  # fmt: skip
def start(options: Options) -> int:
    """Het run."""
    words = options.program or []
    if words[:1] == ["--"]:
        words = words[1:]
    store = options.rdzv or os.environ.get("HET_PS", "")
    if options.check:
        return check.show(
            options.nproc, options.nnodes, store,
            (lambda: " ".join(program(words, options.module, options.no_python))) if words else None,
            lambda: str(_terms(options, words, store) and "can begin"),
        )  # fmt: skip
    if not words:
        raise ValueError("there is no program; write `het run --nproc 2 train.py`")
    command = program(words, options.module, options.no_python)
    terms = _terms(options, words, store)
    if store:
        check.reachable(store)
    return Job(options.nproc, terms, store, options.log_dir, command).run()


def _terms(options: Options, words: list[str], store: str) -> Terms:
    """What the nodes agree on; without a name of the job this node is alone."""
    least, most = options.nnodes
    place = outside(most)
    job = options.rdzv_id or (place.run_id if place is not None and most > 1 and place.size > 1 else "")
    if most > 1 and not job:
        raise ValueError("--nnodes without --rdzv-id: give a word that is the same on all nodes of this job")
    if job and not store:
        raise ValueError(
            "several nodes meet at a store: start one that all can reach (`het ps up --dir DIR --bind IP`), "
            "and give its address by --rdzv or HET_PS"
        )
    return Terms(job, least, most, options.max_restarts, options.timeout, tuple(words), options.join_timeout)
