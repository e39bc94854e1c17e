"""A model that trains at a server, its export, and the processes of het serve that follow it."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from cli_lib import het
from launch_lib import until

import het_tf

keras = tf.keras
IDS = np.arange(10)


def make_model(units: int = 2) -> Any:
    table = het_tf.TableConfig("item", 3, het_tf.optimizers.SGD(1.0), initializer="zeros")
    inputs = {"id": keras.Input((), dtype="int64", name="id")}
    rows = het_tf.keras.EmbeddingCollection({"id": het_tf.FeatureConfig(table)})(inputs)["id"]
    return keras.Model(inputs, {"y": keras.layers.Dense(units, name="top")(rows), "row": rows * 1.0})


class Followed:
    """A model that trains, its export, and the processes of het serve."""

    def __init__(self, server: Any, directory: Path, units: int = 2, **follow: Any) -> None:
        self.server = server
        het_tf.init(ps=het_tf.Store(server.address))
        self.model = make_model(units)
        self.train(1.0)
        self.path = directory / "model"
        how = het_tf.serving.Follow(server.address, max_age=300.0, **follow)
        het_tf.export(self.model, self.path, het_tf.serving.Native(follow=how))
        self.loaded = tf.saved_model.load(str(self.path))
        self.log = directory / "log"

    def train(self, value: float) -> None:
        """Every row and weight is `value`."""
        het_tf.Table("item").assign(IDS, np.full((len(IDS), 3), value))
        for weight in self.model.get_layer("top").weights:
            weight.assign(tf.fill(weight.shape, value))

    def publish(self, value: float) -> None:
        """Publishes the model with `value` everywhere, and waits until followers serve it."""
        self.train(value)
        het_tf.publish(self.model)
        self.until(lambda: self.served() == (value, value))

    def served(self) -> tuple[float, float]:
        """Of id 3: the value of its row; of the model: a dense weight, if the row is consistent."""
        answer = self.loaded.signatures["serving_default"](id=tf.constant([3], tf.int64))
        row = float(answer["row"][0, 0])
        # y = 3 * row * weight + weight
        return row, float(answer["y"][0, 0]) / (3 * row + 1)

    def command(self, *words: object, **environment: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "het_tf", "serve", "follow", str(self.path), *map(str, words)]
        return subprocess.Popen(command, stderr=self.log.open("a"), env={**os.environ, **environment})

    @contextlib.contextmanager
    def follower(self, *words: object, **environment: str) -> Iterator[subprocess.Popen]:
        process = self.command(*words, **environment)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def says(self, text: str) -> bool:
        return text in self.log.read_text()

    def until(self, holds: Callable[[], bool]) -> None:
        until(holds, self.log.read_text)

    def status(self, exit_status: int) -> dict[str, Any]:
        return json.loads(het("serve", "status", self.path, "--json", status=exit_status).out)
