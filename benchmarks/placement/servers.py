"""Server CPU time of steps on sets of tables, at four servers of one cluster, with the client that trains."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import redis
import tensorflow as tf
from placement_sets import BATCHES, Table
from simulated_cache import GROUP, partitions_of

import het_tf
from het_tf.python.checkpoint.store import store_info

SHARDS, ROUNDS = 4, 5
EACH = 64 // SHARDS
MOST_KEYS = 90_000  # of a partition
Places = Sequence[Sequence[int]]
Keys = npt.NDArray[np.int64]
HASHED: tuple[int, ...] = ()


class Servers:
    """Four servers, each with a quarter of the partitions, one quarter after the other."""

    def __init__(self, address: str) -> None:
        het_tf.init(ps=address)
        slots = redis.Redis.from_url(address).execute_command("CLUSTER SLOTS")
        ports = [int(part[2][1]) for part in sorted(slots, key=lambda part: part[0])]
        self._pids = [redis.Redis(port=port).info("server")["process_id"] for port in ports]
        self._keys: list[Keys] = []
        self._idle = np.zeros(SHARDS)
        begin, before = time.monotonic(), self._cpu()
        time.sleep(3)
        self._idle = (self._cpu() - before) / (time.monotonic() - begin)

    def _cpu(self) -> np.ndarray:
        """Seconds that each server has computed, all threads."""
        tasks = [Path(f"/proc/{pid}/task").glob("*/schedstat") for pid in self._pids]
        return np.array([sum(int(task.read_text().split()[0]) for task in of) for of in tasks]) / 1e9

    def keys(self, table: Table, partitions: Sequence[int]) -> Keys:
        """Keys of the table's ids, all in these partitions, or those of its group that are next to them.

        HASHED: wherever they lie.
        """
        if not partitions:
            return np.arange(table.rows)
        if not self._keys:
            every = np.arange(MOST_KEYS * GROUP)
            of = partitions_of(every ^ np.array(int(store_info("")["hash_seed"]), np.uint64).view(np.int64))
            self._keys = [every[of == number] for number in range(GROUP)]
        used, found = np.unique(table.ids), np.zeros(table.rows, np.int64)
        each = -(-len(used) // len(partitions))
        keys = np.stack([self._keys[p * GROUP // 64][:each] for p in partitions], 1)
        found[used] = keys.ravel()[: len(used)]
        return found

    def measure(self, tables: Sequence[Table], places: Places) -> np.ndarray:
        """CPU seconds of each server, of a step of a layer of tables; places: the partitions of each."""
        configs = {t.name: het_tf.TableConfig(t.name, t.dim, "sgd") for t in tables}
        features = {name: het_tf.FeatureConfig(config, combiner="sum") for name, config in configs.items()}
        layer = het_tf.keras.EmbeddingCollection(features, cache=het_tf.Cache(rows=0))
        keys = [self.keys(table, place) for table, place in zip(tables, places, strict=True)]
        keyed = list(zip(tables, keys, strict=True))
        batches = [{t.name: tf.constant(of[t.ids[i]]) for t, of in keyed} for i in range(BATCHES)]

        @tf.function
        def step(ids: dict[str, tf.Tensor]) -> None:
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(rows) for rows in layer(ids, training=True).values()])
            tape.gradient(loss, layer.trainable_variables)

        rounds = []
        for _ in range(ROUNDS + 1):  # the first makes the rows
            begin, before = time.monotonic(), self._cpu()
            for batch in batches:
                step(batch)
            het_tf.flush()
            used = self._cpu() - before - self._idle * (time.monotonic() - begin)
            rounds.append(used / BATCHES)
        return np.median(rounds[1:], axis=0)
