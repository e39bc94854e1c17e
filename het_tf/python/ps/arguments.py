"""The command line of `het-ps`: its commands and their arguments."""

import argparse
import ipaddress

from het_tf.python.files import local
from het_tf.python.ps import layout as layouts
from het_tf.python.ps.address import FORM
from het_tf.python.show import Command, within
from het_tf.python.show import parser as command_line

DESCRIPTION = """\
Valkey or Redis servers that hold tables of het_tf.

  het-ps up --shards 2 --dir DIR     start two servers, make them a cluster,
                                     print the address for HET_PS
  het-ps status --dir DIR --watch    what they do
  het-ps down --dir DIR              stop them

status, save and reshard also work on servers that someone else runs:
--ps ADDRESS, or HET_PS. `het-ps COMMAND --help` explains each.
Exit status: 0 done, 1 something is wrong, 2 wrong arguments."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    commands = (_up, _down, _status, _save, _conf, _form, _promote, _reshard)
    return command_line("het-ps", DESCRIPTION, commands)


def _up(command: Command) -> None:
    sub = command(
        "up",
        "start servers that outlive this command, and wait until they are ready",
        "A second call on the same directory starts only the servers that are down. Two or more servers"
        " become a Redis Cluster. Every push is written to an append-only file.",
    )
    sub.add_argument("--dir", type=local, required=True, help="for the servers' files; made if it is missing")
    sub.add_argument("--plan", type=local, metavar="FILE", help="shards, replicas, maxmemory of a plan.json")
    sub.add_argument("--shards", type=_count, metavar="N", help="servers that share the rows (1)")
    sub.add_argument("--replicas", type=_count_0, metavar="R", help="copies of each shard, for failover (0)")
    sub.add_argument("--port", type=_port, metavar="P", help="port of the first server; others follow (7000)")
    sub.add_argument(
        "--unix", action="store_true", default=None, help="a Unix socket in DIR and no port; one server"
    )
    sub.add_argument(
        "--bind", type=_ip, metavar="IP", help="this machine's address that workers reach (127.0.0.1);"
        " outside 127.* the servers get a random password"
    )  # fmt: skip
    sub.add_argument(
        "--tls", action="store_true", default=None, help="encrypt everything: workers, replicas and"
        " the cluster's bus use TLS, with a CA that the program openssl makes in DIR/tls"
    )  # fmt: skip
    sub.add_argument(
        "--maxmemory", metavar="X", help="limit a server, such as to 12gb; pushes beyond it wait (0: none)"
    )
    sub.add_argument(
        "--appendfsync", choices=layouts.APPENDFSYNC,
        help="what a killed server loses: always nothing, everysec (default) a second or two, no some 30 s",
    )  # fmt: skip
    sub.add_argument(
        "--node-timeout", type=_positive, metavar="SECONDS",
        help="silence after which a replica replaces a server of a cluster (15)",
    )  # fmt: skip
    sub.add_argument(
        "--watch", action="store_true",
        help="stay and restart servers that end, until `het-ps down`; Ctrl-C ends only the watch",
    )  # fmt: skip
    _timeout(sub, 60)


def _down(command: Command) -> None:
    sub = command("down", "stop the servers of a directory, replicas first, and wait until they are gone")
    sub.add_argument("--dir", type=local, required=True, help="as given to `up`")
    sub.add_argument("--no-save", action="store_true", help="do not wait for disks and replicas")
    sub.add_argument("--force", action="store_true", help="kill servers that do not answer or stop in time")
    _timeout(sub, 60)


def _status(command: Command) -> None:
    sub = command(
        "status", "show every server: state, rows, memory, rates, replicas, disks; exit 1 on a fault"
    )
    _target(sub)
    sub.add_argument(
        "--watch",
        type=_positive,
        nargs="?",
        const=2.0,
        metavar="SECONDS",
        help="repeat every SECONDS (2) until Ctrl-C",
    )
    sub.add_argument("--json", action="store_true", help="print JSON; with --watch one line each time")
    sub.add_argument(
        "--interval", type=_positive, default=1.0, metavar="SECONDS", help="measure rates over this long (1)"
    )


def _save(command: Command) -> None:
    sub = command("save", "have every shard write its rows to disk, one shard after the other, and wait")
    _target(sub)
    sub.add_argument(
        "--rdb", action="store_true", help="a snapshot (dump.rdb) even where there is an append-only file"
    )
    _timeout(sub, 600)


def _conf(command: Command) -> None:
    sub = command("conf", "print redis.conf and ACL lines, with reasons, for servers that someone else runs")
    sub.add_argument("--cluster", action="store_true", help="for the nodes of a Redis Cluster")
    sub.add_argument("--maxmemory", default="0", metavar="X", help="such as 12gb (0: no limit)")
    sub.add_argument("--appendfsync", choices=layouts.APPENDFSYNC, default="everysec")
    sub.add_argument("--module", metavar="PATH", help="path of het.so where the server runs")
    sub.add_argument("--no-acl", action="store_true", help="without users")


def _form(command: Command) -> None:
    sub = command(
        "form",
        "make one cluster of empty servers that run already, such as one on each machine",
        "The servers must run with the lines of `het-ps conf --cluster`. The first N addresses become the"
        " shards, the rest their replicas in turn.",
    )
    sub.add_argument("--ps", required=True, metavar="ADDRESS", help=FORM)
    sub.add_argument("--replicas", type=_count_0, default=0, metavar="R", help="replicas of each shard (0)")
    _timeout(sub, 60)


def _promote(command: Command) -> None:
    sub = command(
        "promote",
        "make a replica the primary of its shard",
        "If the primary is alive, as before a planned restart, nothing is lost. A cluster of three or more"
        " shards replaces a dead primary by itself; one or two shards need this command.",
    )
    sub.add_argument("replica", metavar="HOST:PORT", help="which")
    _target(sub)
    _timeout(sub, 60)


def _reshard(command: Command) -> None:
    sub = command(
        "reshard",
        "repair slots that an interrupted resharding left open, then spread partitions evenly over shards",
        "Training goes on meanwhile; a shard stalls while one of its partitions leaves.",
    )
    _target(sub)
    sub.add_argument("--check", action="store_true", help="change nothing; exit 1 if there is work to do")
    sub.add_argument("--repair", action="store_true", help="repair open slots only")
    sub.add_argument("--by", choices=("count", "load"), default="count", help="partitions or load (count)")
    sub.add_argument("--interval", type=_positive, metavar="SECONDS", help="measure load over this long (10)")
    which = sub.add_mutually_exclusive_group()
    which.add_argument("--add", metavar="HOST:PORT", help="first take this empty server in as a new shard")
    which.add_argument(
        "--remove", metavar="HOST:PORT", help="take this server out of the cluster; its rows go to the others"
    )


def _timeout(sub: argparse.ArgumentParser, default: float) -> None:
    sub.add_argument(
        "--timeout", type=_positive, default=default, metavar="SECONDS", help="how long to wait (%(default)g)"
    )


def _target(sub: argparse.ArgumentParser) -> None:
    one = sub.add_mutually_exclusive_group()
    one.add_argument("--dir", type=local, help="the servers of `het-ps up --dir`")
    one.add_argument("--ps", metavar="ADDRESS", help=f"{FORM}; default: $HET_PS")


_positive = within(float, 1e-3, 1e6, "a number of seconds > 0")
_count = within(int, 1, 1000, "a number from 1 to 1000")
_count_0 = within(int, 0, 100, "a number from 0 to 100")
_port = within(int, 1, 65535, "a port from 1 to 65535")


def _ip(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not an IP address of this machine") from None
    if address.is_unspecified:
        raise argparse.ArgumentTypeError(
            f"'{text}' is every address; name the one that workers reach (127.0.0.1 works in any case)"
        )
    return text
