"""What extensions add: het_tf/python asks here, and imports none of them.

An extension fills a port with one of its modules, and adds commands to `het`; het_tf/ext/__init__.py says
which. A module is imported when its port is first asked for, so a program pays for what it uses.

    port         what het_tf/python asks of its module
    device       a cache's device: `check`, `choose`, and what to do when its memory is full
    job_server   the server that the ranks of a job share: `agree`, `refuse_second_job`
    address      `parse` of a server's address
    reports      `Reporter`, and the `key` of a report at a server
    ranks        `launched` and `workers`: who has started ranks, and the connection of this one
    saving       rows in files of Keras (`h5`), TensorFlow (`bundle`) and PyTorch (`pack`)
"""

import importlib
from typing import Any

ports: dict[str, str] = {}
"""The module that fills each port."""
commands: dict[str, tuple[str, str]] = {}
"""Each word after `het`: the module with its `HET` (cli.py), and what `het --help` says of it."""
more_commands: dict[str, str] = {}
"""A word of `commands` to a module that adds commands to it."""


def of(port: str) -> Any:
    """Returns the module that fills a port. ImportError: a library that it needs is missing."""
    return importlib.import_module(ports[port])
