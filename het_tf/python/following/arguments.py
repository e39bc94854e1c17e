"""Arguments of the commands for a SavedModel that can be followed."""

import argparse

from het_tf.python.files import local


def add_directory(sub: argparse.ArgumentParser) -> None:
    """Adds the argument DIR."""
    sub.add_argument("dir", type=local, metavar="DIR", help="a SavedModel that can be followed")


def add_server(sub: argparse.ArgumentParser, login: str) -> None:
    """Adds the argument --ps; `login` says what its user must be able to do."""
    sub.add_argument(
        "--ps", metavar="ADDRESS", help=f"the parameter server, with a login that may {login} (default: "
        "$HET_SERVE_PS, or the export's address)"
    )  # fmt: skip
