"""What the processes of one launch are told, as one word of their command line."""

from __future__ import annotations

import dataclasses
import json
from typing import Any


@dataclasses.dataclass(frozen=True)
class Job:
    """What the processes of one launch share; `Job.parse(job.text())` is the job again.

    Attributes:
      model: of tasks.TASKS.
      control: path of the Unix socket from which commands come.
      stream: file of ids, of benchmarks/traffic/streams.py.
      ps: address of the parameter server.
      workers: N.
      systems: options of each by name, see `slow_link.SYSTEMS`; caches with their `rows`.
      dim: floats of a row.
      hidden: widths of the perceptron, or of the layers of GraphSAGE.
      batch: samples of a worker's step.
    """

    model: str
    control: str
    stream: str
    ps: str
    workers: int
    systems: dict[str, dict[str, Any]]
    dim: int
    hidden: tuple[int, ...]
    batch: int

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def parse(cls, text: str) -> Job:
        values = json.loads(text)
        return cls(**{**values, "hidden": tuple(values["hidden"])})
