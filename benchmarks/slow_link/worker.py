"""A worker under horovodrun: builds the systems of a job and runs steps of them on command."""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf

import het_tf
from benchmarks.slow_link import control, sides
from benchmarks.slow_link.job import Job


def meet() -> None:
    """Waits for the other workers."""
    hvd.allreduce(tf.zeros([1]), name="meet")


def main() -> None:
    job = Job.parse(sys.argv[1])
    sides.one_thread()
    het_tf.init(ps=job.ps)
    trainers: dict[str, sides.Trainer] = {}

    def make(command: dict[str, Any]) -> dict[str, Any]:
        name = command["system"]
        trainers[name] = sides.Trainer(job, name, job.systems[name], hvd.rank())
        return {"dense_bytes": trainers[name].dense_bytes}

    def run(command: dict[str, Any]) -> dict[str, Any]:
        trainer = trainers[command["system"]]
        feed = trainer.feed()
        meet()
        ends = [time.perf_counter()]
        for _ in range(command["steps"]):
            inputs, label = next(feed)
            loss = trainer.step(inputs, label).numpy()
            ends.append(time.perf_counter())
        middle = statistics.median(after - before for before, after in itertools.pairwise(ends))
        return {"seconds": ends[-1] - ends[0], "median": middle, "loss": float(loss)}

    control.obey(job.control, {"make": make, "run": run})
    meet()


if __name__ == "__main__":
    main()
