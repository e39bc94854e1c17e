"""Where servers are, as users write it: one server, nodes of a cluster, TLS, a Unix socket.

    redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]
    rediss://...[?ca=FILE][&cert=FILE][&key=FILE][&server_name=NAME]
    unix://[USER:PASSWORD@]/PATH

The grammar is that of the training client (het_tf/ps/client/address.h): the login and the text behind the
'?' are used verbatim, without percent-encoding.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

DEFAULT_PORT = 6379
FORM = (
    "redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...], the same with rediss:// and"
    " [?ca=FILE&cert=FILE&key=FILE&server_name=NAME] for TLS, or unix://[USER:PASSWORD@]/PATH"
)
"""What an address looks like, for people."""


@dataclass(frozen=True)
class Tls:
    """TLS settings of a connection; files are in PEM.

    Attributes:
      ca: CA certificates that may sign servers' certificates; "": the system's.
      cert: This client's certificate; "": none.
      key: The private key of `cert`; "": it is in the same file.
      server_name: The name in the server's certificate; "": the host of the address.
    """

    ca: str = ""
    cert: str = dataclasses.field(default="", repr=False)
    key: str = dataclasses.field(default="", repr=False)
    server_name: str = ""

    def query(self) -> str:
        """Returns the end of an address: "" or ?NAME=VALUE&..."""
        given = [f"{name}={value}" for name, value in vars(self).items() if value]
        return "?" + "&".join(given) if given else ""


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
    """One server, or nodes of a cluster, with the login and TLS settings that they share.

    `str()` and `repr()` leave the login out; `url()` has it.
    """

    places: tuple[Place, ...]
    user: str = ""
    password: str = dataclasses.field(default="", repr=False)
    tls: Tls | None = None

    def __str__(self) -> str:
        return ",".join(map(str, self.places))

    def url(self) -> str:
        """The address as `HET_PS` and `het_tf.init(ps=...)` take it, password included."""
        login = f"{self.user}:{self.password}@" if self.password else ""
        scheme = "unix" if self.places[0].path else "rediss" if self.tls else "redis"
        return f"{scheme}://{login}{self}{self.tls.query() if self.tls else ''}"

    def public(self) -> "Address":
        """A copy that is safe to show: without the login and the client's certificate and key."""
        tls = self.tls and dataclasses.replace(self.tls, cert="", key="")
        return Address(self.places, tls=tls)


def _split(text: str) -> tuple[str, str | None]:
    """Splits an address at its '?'; the second part is None without one.

    Splits at a parameter's name, since a path may have an '@' and a password a '?'; else after the login.
    """
    if text.startswith("unix:"):
        return text, None
    found = [text.rfind(f"?{field.name}=") for field in dataclasses.fields(Tls)]
    begin = min((at for at in found if at >= 0), default=-1)
    if begin < 0:
        begin = text.find("?", text.rfind("@") + 1)
    return (text, None) if begin < 0 else (text[:begin], text[begin + 1 :])


def without_files(text: str) -> str:
    """A user's address without the text behind '?', which names files of one machine."""
    return _split(text)[0]


def redacted(text: str) -> str:
    """A user's address without anything that may be a password or the path of a key."""
    text, query = _split(text)
    head, slashes, rest = text.partition("//")
    _, at, tail = rest.rpartition("@")
    return (f"{head}{slashes}...{at}{tail}" if at else text) + ("" if query is None else "?...")


def parse(text: str) -> Address:
    """Reads an address.

    Raises:
      ValueError: `text` is not an address; the message says why, without the password.
    """

    def no(why: str, shown: str = text) -> ValueError:
        return ValueError(f"parameter server '{redacted(shown)}': {why}; write {FORM}")

    scheme, slashes, rest = text.partition("://")
    if not slashes or scheme not in ("redis", "rediss", "unix"):
        raise no("it begins with neither redis://, rediss:// nor unix://")
    login = ""
    tls = None
    if scheme == "unix":
        if rest and not rest.startswith("/") and "@/" in rest:
            login, _, rest = rest.partition("@/")
            rest = "/" + rest
    else:
        head, query = _split(text)
        rest = head.partition("://")[2]
        if scheme == "rediss":
            tls = _tls(query, no)
        elif query is not None:
            raise no("parameters behind '?' are about TLS; use them with rediss://")
        if "@" in rest:
            login, _, rest = rest.rpartition("@")
    user, _, password = login.partition(":")
    if login and "," in login and "@" in login:
        raise no("write the login once, before the first host")
    if login and not password:
        raise no("a user without a password")
    if scheme == "unix":
        if rest and not rest.startswith("/"):
            raise no("a path begins with a slash")
        if not 1 <= len(rest.encode()) <= 107:
            raise no(f"a socket's path has 1 to 107 bytes, not {len(rest.encode())}", "unix://" + rest)
        return Address((Place(path=rest),), user, password)
    places = tuple(_place(one, no) for one in rest.removesuffix("/").split(","))
    return Address(places, user, password, tls)


def _tls(query: str | None, no: Callable[[str], ValueError]) -> Tls:
    given: dict[str, str] = {}
    for one in [] if query is None else query.split("&"):
        name, _, value = one.partition("=")
        if name not in (field.name for field in dataclasses.fields(Tls)):
            raise no(f"'{name}' is none of ca, cert, key and server_name")
        if name in given:
            raise no(f"{name} occurs twice")
        if not value:
            raise no(f"{name} is empty")
        given[name] = value
    if "key" in given and "cert" not in given:
        raise no("a key without cert, its certificate")
    return Tls(**given)


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
