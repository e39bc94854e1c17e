"""The servers that `het ps up` keeps in a directory, and which of their processes run.

    DIR/het-ps.json             the options of `up`; mode 0600, as it may hold a password
    DIR/address                 the address for HET_PS; mode 0600
    DIR/shard-0/                one directory a server: redis.conf, log, pid, its data
    DIR/shard-0-a/, shard-0-b/    the same with replicas: roles change, names do not

A process is taken for a server only if the pid file names it *and* its working directory is the server's:
after a crash and a reboot the pid may belong to another program.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from het_tf.ext.ps.python import redis_server
from het_tf.ext.ps.python.address import Address, Place, Tls
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.node import Node
from het_tf.python import files

FORMAT = 1
APPENDFSYNC = ("always", "everysec", "no")
LEAST_MEMORY = 16 << 20  # bytes of a server without rows, with its replication backlog
BUS_OFFSET = 10000  # of the port of a cluster's bus


def check_memory(text: str) -> str:
    """Returns a number of bytes in redis.conf's form, such as 512mb.

    Raises:
      ValueError: `text` is not such a number, or less than an empty server takes.
    """
    found = re.fullmatch(r"(\d+)(k|kb|m|mb|g|gb)?", text.lower())
    if not found:
        raise ValueError(
            f"maxmemory is '{text}'; write a number of bytes such as 512mb or 12gb (0: no limit)"
        )
    number, unit = int(found[1]), found[2] or ""
    size = number * (1024 if unit.endswith("b") else 1000) ** " kmg".index(unit[:1] or " ")
    if 0 < size < LEAST_MEMORY:
        raise ValueError(
            f"maxmemory is '{text}', {size} bytes, but a server takes megabytes without a row and would "
            f"refuse all; give at least {LEAST_MEMORY >> 20}mb, such as {number}gb, or 0 for no limit"
        )
    return text.lower()


@dataclass(frozen=True)
class Member:
    """One server of a directory.

    Attributes:
      shard: Number of its shard, from 0.
      replica: 0: begins as the shard's primary; 1..: its replicas.
      directory: Directory of its files.
      place: Where it listens.
    """

    shard: int
    replica: int
    directory: Path
    place: Place

    @property
    def name(self) -> str:
        """The name of its directory, such as shard-0, or with replicas shard-0-a and shard-0-b."""
        return self.directory.name

    @property
    def config(self) -> Path:
        """Its redis.conf."""
        return self.directory / "redis.conf"

    @property
    def log(self) -> Path:
        """Its log."""
        return self.directory / "log"

    def pid(self) -> int | None:
        """The server's process id if it runs. None if the recorded pid belongs to another process."""
        try:
            pid = int(files.read_bytes(self.directory / "pid", 64))
            if os.readlink(f"/proc/{pid}/cwd") != str(self.directory.resolve()):
                return None
            program = os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, ValueError):
            return None
        return pid if ("redis" in program or "valkey" in program) and state != "Z" else None


@dataclass(frozen=True)
class Layout:
    """The options of `het ps up`.

    Attributes:
      directory: Directory of all servers.
      shards, replicas: Servers = shards * (1 + replicas); a cluster if that is more than one.
      port: Port of the first server; the others follow.
      unix: A Unix socket and no port.
      bind: The IP address that the servers listen on and announce.
      maxmemory: Limit of each server; "0" is no limit.
      appendfsync: always, everysec or no.
      node_timeout: Seconds after which a silent server of a cluster counts as failed.
      password: Password of the default user; "" for none.
      tls: TLS for workers, replication and the cluster's bus, and no port without it.
      formed: The cluster exists.
    """

    directory: Path
    shards: int
    replicas: int = 0
    port: int = 7000
    unix: bool = False
    bind: str = "127.0.0.1"
    maxmemory: str = "0"
    appendfsync: str = "everysec"
    node_timeout: float = 15.0
    password: str = ""
    tls: bool = False
    formed: bool = False

    @property
    def cluster(self) -> bool:
        """Whether the servers make a Redis Cluster."""
        return self.shards * (1 + self.replicas) > 1

    @property
    def members(self) -> list[Member]:
        """All servers: the primaries-to-be first, then the replicas."""
        found: list[Member] = []
        for replica in range(1 + self.replicas):
            for shard in range(self.shards):
                name = f"shard-{shard}" + (f"-{chr(ord('a') + replica)}" if self.replicas else "")
                directory = self.directory / name
                place = Place(self.bind, self.port + len(found))
                found.append(
                    Member(
                        shard,
                        replica,
                        directory,
                        Place(path=str(directory / "socket")) if self.unix else place,
                    )
                )
        return found

    @property
    def certificates(self) -> Path:
        """Directory of the CA's and the servers' certificates and keys, with `tls`."""
        return self.directory / "tls"

    def node(self, member: Member, timeout: float = 5) -> Node:
        """A connection to one of the servers."""
        return Node.of(self.address(member), timeout)

    def address(self, member: Member | None = None) -> Address:
        """The address of all servers, or of `member`, in the form of HET_PS."""
        tls = Tls(ca=str(self.certificates / "ca.crt")) if self.tls else None
        return Address(tuple(m.place for m in ([member] if member else self.members)), "", self.password, tls)

    def config_text(self, member: Member) -> str:
        """The redis.conf of one server."""
        settings = {
            **redis_server.settings_of(member.directory, member.place, self.password),
            "pidfile": str(member.directory / "pid"),
            "bind": self.bind if self.bind == "127.0.0.1" else f"{self.bind} 127.0.0.1",
            "appendonly": "yes",
            "appendfsync": self.appendfsync,
            "maxmemory": self.maxmemory,
        }
        if self.password:
            settings["masterauth"] = self.password
        if self.tls:
            settings |= self._tls_settings(member)
        if self.cluster:
            settings |= {
                "cluster-enabled": "yes",
                "cluster-config-file": "nodes.conf",
                "cluster-node-timeout": str(round(self.node_timeout * 1000)),
                "cluster-announce-ip": self.bind,
            }
        return redis_server.config_text(settings)

    def _tls_settings(self, member: Member) -> dict[str, str]:
        files = {"cert": "server.crt", "key": "server.key", "ca-cert": "ca.crt"}
        return {
            "port": "0",
            "tls-port": str(member.place.port),
            **{f"tls-{name}-file": str(self.certificates / file) for name, file in files.items()},
            # Workers show no certificate; servers show each other's their own.
            "tls-auth-clients": "optional",
            "tls-replication": "yes",
            "tls-cluster": "yes" if self.cluster else "no",
        }

    def write(self) -> None:
        """Records it in the directory."""
        record = {"format": FORMAT, **{k: v for k, v in vars(self).items() if k != "directory"}}
        write_private(self.directory / "het-ps.json", json.dumps(record, indent=1) + "\n")
        write_private(self.directory / "address", self.address().url() + "\n")


_ANY = Layout(Path(), 1)  # for the types of its fields
_MOST_BYTES = 1 << 20  # of the record


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner may read, whole or not at all."""
    with files.replaced(path) as beside:
        beside.touch(0o600)
        beside.write_text(text)


def load(directory: Path) -> Layout | None:
    """Reads the layout of a directory; None if `het ps up` has not made one there.

    Raises:
      ServerError: The record cannot be read.
    """
    path = directory / "het-ps.json"
    try:
        record = files.parse_json(files.read_bytes(path, _MOST_BYTES))
        if record.pop("format") != FORMAT:
            raise ServerError(f"{path} was written by another version of het ps; use that version")
        found = Layout(directory=directory, **record)
        for name, value in record.items():
            if type(value) is not type(getattr(_ANY, name)):
                raise ValueError(f"{name} is {value!r}")
        return found
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ServerError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ServerError(f"{path} is damaged ({error}); the servers' own files stand beside it") from None


def need(directory: Path) -> Layout:
    """As `load`, but raises ServerError if the directory has no servers."""
    found = load(directory)
    if found is None:
        raise ServerError(f"{directory} has no servers of het ps; `het ps up --dir {directory}` makes them")
    return found


def check_ports(layout: Layout, members: list[Member]) -> None:
    """Refuses ports in use, and addresses of other machines.

    Raises:
      ServerError: Names each, and why.
    """
    if layout.unix:
        return
    taken, errors = [], set()
    family = socket.AF_INET6 if ":" in layout.bind else socket.AF_INET
    for member in members:
        port = member.place.port
        for number in (port, port + BUS_OFFSET) if layout.cluster else (port,):
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((layout.bind, number))
                except OSError as error:
                    taken.append(f"{Place(layout.bind, number)} for {member.name} ({error.strerror})")
                    errors.add(error.errno)
    if taken:
        remedy = "stop what listens there, or give another --port"
        if errno.EADDRINUSE not in errors:
            remedy = f"is {layout.bind} an address of this machine, and may you use the port?"
        raise ServerError(
            f"cannot listen on {', '.join(taken)}; {remedy}"
            + (f" (a cluster also uses each port + {BUS_OFFSET})" if layout.cluster else "")
        )


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keeps other `up` and `down` out of a directory. ServerError: another one is at work."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ServerError(f"another het ps is at work in {directory}; wait for it") from None
    finally:
        os.close(handle)
