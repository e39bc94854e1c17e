"""Under TF_CONFIG: the cluster and this process's task in it, as tf.distribute reads them."""

import hashlib
import json
from typing import Any

from het_tf.ext.workers.python.environments.process import Environment, Process, run_id

VARIABLES = ("TF_CONFIG",)
_RANKS = ("chief", "master", "worker")  # in the order of ranks
_FORM = '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'


def _read(env: Environment) -> dict[str, Any]:
    try:
        config = json.loads(env["TF_CONFIG"])
    except ValueError as error:
        raise ValueError(f"TF_CONFIG is no JSON ({error}); write {_FORM}") from None
    if not isinstance(config, dict):
        raise _wrong(config)
    return config


def _wrong(what: object) -> ValueError:
    return ValueError(f"TF_CONFIG has {json.dumps(what)}; write {_FORM}")


def present(env: Environment) -> bool:
    """Whether it names a cluster."""
    return bool(env.get("TF_CONFIG")) and bool(_read(env).get("cluster"))


def process(env: Environment) -> Process:
    """Returns it: the chief is rank 0, then come the workers. The run is named by a hash of the cluster."""
    config = _read(env)
    cluster, task = config["cluster"], config.get("task")
    if not isinstance(cluster, dict) or not all(isinstance(one, list) for one in cluster.values()):
        raise _wrong(cluster)
    if not isinstance(task, dict) or not isinstance(task.get("type"), str):
        raise _wrong(task)
    kind, index = task["type"], task.get("index", 0)
    if kind not in _RANKS:
        raise ValueError(
            f"TF_CONFIG has the task {kind}; rows are at the store and metrics are computed by the ranks: "
            "start chief and workers alone"
        )
    ranks = [(one, number) for one in _RANKS for number in range(len(cluster.get(one, [])))]
    places = [str(address) for one in _RANKS for address in cluster.get(one, [])]
    twice = next((one for one in places if places.count(one) > 1), "")
    if twice:
        raise ValueError(f"TF_CONFIG names the task {twice} twice; give each task an address of its own")
    index = int(index) if isinstance(index, str) and index.isdigit() else index  # some write it as text
    if (kind, index) not in ranks:
        raise ValueError(
            f"TF_CONFIG has the task {kind} {index}, and its cluster has {len(cluster.get(kind, []))} of "
            f"type {kind}; tasks are numbered from 0"
        )
    rank = ranks.index((kind, index))
    hosts = [address.rpartition(":")[0] for address in places]
    digest = hashlib.sha256(json.dumps(cluster, sort_keys=True).encode()).hexdigest()[:16]
    here = hosts[rank]
    local = hosts[:rank].count(here), hosts.count(here)
    return Process("TF_CONFIG", rank, len(ranks), *local, run_id(env, digest, "TF_CONFIG"))
