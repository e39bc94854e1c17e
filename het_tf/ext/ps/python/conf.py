"""`het ps conf`: the lines of redis.conf for servers that someone else runs, each with its reason.

`het ps up` and `LocalServer` use the same settings (`redis_server.SETTINGS`), the examples in
examples/deploy carry them, and docs/parameter-server.md explains them; tests hold them equal.
"""

from het_tf.ext.ps.python import redis_server

WHY = {
    "maxmemory-policy": "Any other policy would evict whole partitions; the module refuses to load.",
    "proto-max-bulk-len": "A partition moves between shards as one value: the default ends at 512 MB.",
    "client-query-buffer-limit": "The same, on the receiving side: the default ends at 1 GB.",
    "client-output-buffer-limit": "A replica that is copying must not be cut off because training goes on.",
    "repl-backlog-size": "A replica that was away for a moment catches up instead of copying everything.",
    "rdbcompression": "Floats hardly compress, and trying costs time while the server also trains.",
}

# In a cluster too: MIGRATE of a large partition blocks a node (measured: 4.4 s for 300 MB), which must take
# well under the time-out, or the cluster declares the node dead in the middle of a resharding.
CLUSTER = {"cluster-enabled": "yes", "cluster-config-file": "nodes.conf", "cluster-node-timeout": "15000"}

# Settings of the module (het_tf/ext/ps/module/limits.cc) at their defaults.
LIMITS = {"het.max-reply-bytes": "64mb", "het.max-tables": "4096", "het.max-tombstones": "16384"}

# Commands of a training process. Categories such as +@write do not cover a module's commands.
WORKER_RIGHTS = (
    "+het.table +het.step +het.read +het.load +het.scan +het.changes +het.stat +hsetnx +hget +hdel +expire"
    " +get +set +unlink +pttl +cluster|slots +asking +readonly +wait +auth +hello +role +ping"
)
# Further commands of rank 0 of workers that publish versions (het_tf.publish).
PUBLISHER_RIGHTS = "+xadd +xdel +xrevrange +zadd +zrangebyscore +zrem"
# Commands of a process that follows versions and rows, and of het publish: read-only.
FOLLOWER_RIGHTS = (
    "+het.changes +het.stat +hget +xread +xrange +xrevrange +get"
    " +cluster|slots +asking +auth +hello +role +ping"
)
# What a follower may write: its report.
REPORT_RIGHTS = "(~het:*:followers:* +set +unlink)"
# Commands of het ps exporter: read-only.
MONITOR_RIGHTS = "+info +scan +get +pttl +cluster|nodes +role +auth +ping"
# Commands of a process that serves an online export (docs/serving.md): read-only.
SERVING_RIGHTS = "+het.read +het.stat +hget +cluster|slots +asking +auth +hello +role +ping"
# Commands of het ps.
OPERATOR_RIGHTS = (
    "+het.stat +info +ping +auth +cluster +config|get +dbsize +scan +get +pttl +bgsave +bgrewriteaof"
    " +shutdown +asking +select +migrate +restore +restore-asking"
)
REPLICA_RIGHTS = "+psync +replconf +ping +auth"

KEYS = "~het:*"


def users() -> dict[str, str]:
    """Returns each user's rules in ACL SETUSER's form, without on, off and passwords."""
    return {
        "het-worker": f"{KEYS} resetchannels -@all {WORKER_RIGHTS} {PUBLISHER_RIGHTS}",
        "het-follower": f"{KEYS} resetchannels -@all {FOLLOWER_RIGHTS} {REPORT_RIGHTS}",
        "het-serving": f"{KEYS} resetchannels -@all {SERVING_RIGHTS}",
        "het-monitor": f"{KEYS} resetchannels -@all {MONITOR_RIGHTS}",
        "het-operator": f"{KEYS} resetchannels -@all {OPERATOR_RIGHTS}",
        "het-replica": f"resetchannels -@all {REPLICA_RIGHTS}",
    }


def lines(
    module: str, cluster: bool = False, maxmemory: str = "0", appendfsync: str = "everysec", acl: bool = True
) -> str:
    """Returns the output of `het ps conf`: a valid redis.conf once the passwords are chosen.

    Args:
      module: Path of het.so where the server runs.
      cluster: Add the settings of a cluster's node.
      maxmemory: Memory limit of a server.
      appendfsync: always, everysec or no.
      acl: Add separate users for workers, followers, online serving, the exporter, het ps and replicas.
    """
    out = ["# Settings of a Valkey (>= 7.2) or Redis (>= 7.0) server that holds tables of het_tf.", ""]

    def add(settings: dict[str, str], why: str = "") -> None:
        if why:
            out.append(f"# {why}")
        out.extend(redis_server.config_text(settings).splitlines())
        out.append("")

    add(
        {"loadmodule": module},
        "Servers load modules from here or the command line; at run time only with enable-module-command.",
    )
    add(LIMITS, "The most that a client may take: bytes of the answer to one frame, tables of a partition.")
    for name, value in redis_server.SETTINGS.items():
        add({name: value}, WHY[name])
    add(
        {"maxmemory": maxmemory},
        "A push that does not fit is refused and waits; without a limit the system may kill the server.\n"
        "# Leave room: a snapshot can double the memory in use, and replicas need buffers.",
    )
    add(
        {"appendonly": "yes", "appendfsync": appendfsync, "save": ""},
        "What a killed server loses: always - nothing; everysec - the last second or two; no - some 30 s.",
    )
    if cluster:
        add(
            CLUSTER,
            "A node is blocked while it sends a partition (4.4 s for 300 MB were seen): three times that.",
        )
    if acl:
        out.append("# Users. Choose the passwords. Workers: redis://het-worker:PASSWORD@HOST:PORT")
        out.append("# Categories such as +@write do not cover a module's commands: each is named.")
        for name, rules in users().items():
            out.append(f"user {name} on >CHANGE-ME {rules}")
        out += [
            "user default off",
            "# So that replicas may copy:",
            "masteruser het-replica",
            "masterauth CHANGE-ME",
            "",
        ]
    out += SIZING
    return "\n".join(out) + "\n"


SIZING = [
    "# Sizing. A row of dim floats is 4 * (dim + slots) bytes; plan twice that, for key, clock and growth.",
    "# RowWiseAdagrad has 1 slot, Adagrad dim, Adam 2 * dim + 1. `het ps status` shows bytes a row.",
    "# A namespace has 64 partitions, a table 8 of them. Keep each under 256 MB: a move stalls its shard.",
    "# The kernel: vm.overcommit_memory = 1, or a snapshot may fail for memory that it would not use.",
]
