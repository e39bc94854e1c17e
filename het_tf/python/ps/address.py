"""Where servers are: `redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]` or `unix://[USER:PASSWORD@]/PATH`.

The same grammar as that of the training client (het_tf/ps/client/address.h): what stands between `//` and the
last `@` is the login as it is, without percent-encoding.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

DEFAULT_PORT = 6379
_SHAPE = "write redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...] or unix://[USER:PASSWORD@]/PATH"


@dataclass(frozen=True)
class Place:
    """One server's place: `host` and `port`, or the `path` of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Address:
    """One server, or nodes of a cluster, with the login they all want.

    `str()` and `repr()` leave the login out; `url()` has it.
    """

    places: tuple[Place, ...]
    user: str = ""
    password: str = dataclasses.field(default="", repr=False)

    def __str__(self) -> str:
        return ",".join(map(str, self.places))

    def url(self) -> str:
        """The address as `HET_PS` and `het_tf.init(ps=...)` take it, password included."""
        login = f"{self.user}:{self.password}@" if self.password else ""
        return f"{'unix' if self.places[0].path else 'redis'}://{login}{self}"


def redacted(text: str) -> str:
    """An address as a user wrote it, without what may be a password."""
    head, slashes, rest = text.partition("//")
    _, at, tail = rest.rpartition("@")
    return f"{head}{slashes}...{at}{tail}" if at else text


def parse(text: str) -> Address:
    """Reads an address.

    Raises:
      ValueError: It is none; the message says why, without the password.
    """

    def no(why: str, shown: str = text) -> ValueError:
        return ValueError(f"parameter server '{redacted(shown)}': {why}; {_SHAPE}")

    scheme, slashes, rest = text.partition("://")
    if not slashes or scheme not in ("redis", "unix"):
        raise no("it begins with neither redis:// nor unix://")
    login = ""
    if scheme == "unix":
        if rest and not rest.startswith("/") and "@/" in rest:
            login, _, rest = rest.partition("@/")
            rest = "/" + rest
    elif "@" in rest:
        login, _, rest = rest.rpartition("@")
    user, _, password = login.partition(":")
    if login and "," in login and "@" in login:
        raise no("the login stands once, before the first host")
    if login and not password:
        raise no("a user without a password")
    if scheme == "unix":
        if rest and not rest.startswith("/"):
            raise no("a path begins with a slash")
        if not 1 <= len(rest.encode()) <= 107:
            raise no(f"a socket's path has 1 to 107 bytes, not {len(rest.encode())}", "unix://" + rest)
        return Address((Place(path=rest),), user, password)
    places = tuple(_place(one, no) for one in rest.removesuffix("/").split(","))
    return Address(places, user, password)


def _place(one: str, no: Callable[[str], ValueError]) -> Place:
    one, slash, number = one.partition("/")
    if slash:
        raise no(f"it has '/{number}' behind a host; tables are in database 0, so leave the number out")
    if one.startswith("["):
        host, close, port = one[1:].partition("]")
        if not close:
            raise no("'[' without ']'")
        port = port.removeprefix(":") if port else str(DEFAULT_PORT)
    else:
        host, colon, port = one.partition(":")
        port = port if colon else str(DEFAULT_PORT)
    if not host:
        raise no("a host is missing")
    if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise no(f"the port '{port}' is not in 1..65535")
    return Place(host, int(port))
