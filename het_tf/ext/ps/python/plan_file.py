"""Reads plan.json of het plan, and the part of it that `het ps up` uses."""

import os
from collections.abc import Mapping
from typing import Any

from het_tf.ext.ps.python import layout
from het_tf.python import files

FORMAT = "het_tf plan"
VERSION = 1
_MOST_BYTES = 64 << 20
# Fields of "servers" with their least and greatest value; maxmemory is in bytes, 0 for no limit.
_SERVERS = {"shards": (1, 1000), "replicas": (0, 100), "maxmemory": (0, 1 << 62)}


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a plan. ValueError: no such file, damaged, not a plan, or of another version."""
    try:
        plan = files.parse_json(files.read_bytes(files.local_path("path", path), _MOST_BYTES))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; give the plan.json that het plan wrote") from None
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}; have het plan write it again") from None
    if not isinstance(plan, dict) or plan.get("format") != FORMAT:
        raise ValueError(f'{path} is not a plan: its "format" is not "{FORMAT}"; give a plan.json')
    if (version := plan.get("version")) != VERSION:
        raise ValueError(f"{path} has version {version!r}, not {VERSION}; have this het plan write it again")
    return plan


def servers(path: str | os.PathLike[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a plan's shards, replicas and maxmemory, as fields of `Layout`.

    ValueError: as `read`; or a field is missing, impossible, or contradicts `given`, the same fields of the
    command line (None: not given).
    """
    plan = read(path).get("servers")
    found = {name: plan.get(name) if isinstance(plan, dict) else None for name in _SERVERS}
    for name, (least, most) in _SERVERS.items():
        value, asked = found[name], given.get(name)
        if type(value) is not int or not least <= value <= most:
            wanted = f"a whole number from {least} to {most}; have het plan write it again"
            raise ValueError(f"{path}: {name} of its servers is {value!r}; it must be {wanted}")
        if asked is not None and value != (layout.memory_bytes(asked) if name == "maxmemory" else asked):
            raise ValueError(f"--{name} {asked} contradicts {path}, which has {value}; leave one of them out")
    return found | {"maxmemory": given.get("maxmemory") or layout.check_memory(str(found["maxmemory"]))}
