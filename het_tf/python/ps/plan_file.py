"""The file plan.json of het-plan."""

import os
from typing import Any

from het_tf.python import files

FORMAT = "het_tf plan"
VERSION = 1
_MOST_BYTES = 64 << 20


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """All that a plan says.

    Raises:
      ValueError: There is no such file, it is damaged or no plan, or a plan of another version.
    """
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
