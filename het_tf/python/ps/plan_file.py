"""The file plan.json of het-plan: what it is, and what `het-ps up` takes of it."""

import os
from collections.abc import Mapping
from typing import Any

from het_tf.python import files
from het_tf.python.ps import layout

FORMAT = "het_tf plan"
VERSION = 1
_MOST_BYTES = 64 << 20
# Whole numbers of its servers, from .. to ..; maxmemory is in bytes, 0 for no limit.
_SERVERS = {"shards": (1, 1000), "replicas": (0, 100), "maxmemory": (0, 1 << 62)}


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """All that a plan says. ValueError: no such file, damaged, no plan, or a plan of another version."""
    try:
        plan = files.parse_json(files.read_bytes(path, _MOST_BYTES))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; give the plan.json that het-plan wrote") from None
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}; have het-plan write it again") from None
    if not isinstance(plan, dict) or plan.get("format") != FORMAT:
        raise ValueError(f'{path} is no plan: its "format" is not "{FORMAT}"; give a plan.json of het-plan')
    if (version := plan.get("version")) != VERSION:
        raise ValueError(f"{path} has version {version!r}, not {VERSION}; have this het-plan write it again")
    return plan


def servers(path: str | os.PathLike[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """What a plan says of servers, as fields of `Layout`: shards, replicas, maxmemory.

    ValueError: as `read`; or one is missing, impossible, or contradicts `given`: the same fields of the
    command line, None for those that it has not.
    """
    plan = read(path).get("servers")
    found = {name: plan.get(name) if isinstance(plan, dict) else None for name in _SERVERS}
    for name, (least, most) in _SERVERS.items():
        value, asked = found[name], given.get(name)
        if type(value) is not int or not least <= value <= most:
            wanted = f"a whole number from {least} to {most}; have het-plan write it again"
            raise ValueError(f"{path}: {name} of its servers is {value!r}, and must be {wanted}")
        if asked is not None and value != (layout.memory_bytes(asked) if name == "maxmemory" else asked):
            raise ValueError(f"--{name} {asked} contradicts {path}, which has {value}; leave one of them out")
    return found | {"maxmemory": given.get("maxmemory") or layout.check_memory(str(found["maxmemory"]))}
