"""Where servers are, as users write it: one server, nodes of a cluster, TLS, a Unix socket.

    redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]
    rediss://...[?ca=FILE][&cert=FILE][&key=FILE][&server_name=NAME]
    redis+sentinel://...HOST[:PORT][,...]/SERVICE, rediss+sentinel://...
    unix://[USER:PASSWORD@]/PATH

The grammar is that of the training client (het_tf/ext/ps/client/address.h): the login is percent-encoded, the
text behind the '?' is used verbatim. ?password_file=FILE and ?password_env=NAME stand in place of a password.
"""

import dataclasses
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote, unquote

from het_tf.ext.ps.python.errors import ServerError

DEFAULT_PORT = 6379
MOST_PATH = 107  # bytes of the path of a Unix socket
SENTINEL_PORT = 26379
FORM = (
    "redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...], the same with rediss:// and"
    " [?ca=FILE&cert=FILE&key=FILE&server_name=NAME] for TLS, redis+sentinel://HOST[:PORT][,...]/SERVICE for"
    " Sentinels, or unix://[USER:PASSWORD@]/PATH; ?password_file=FILE or ?password_env=NAME in place of a"
    " password"
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


_SECRETS = ("password_file", "password_env")


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

    Attributes:
      places: Servers, or with `service` Sentinels.
      user: "": the default user.
      password: Used verbatim; `secret()` also knows the other sources.
      tls: None: no TLS.
      service: What the Sentinels call the server.
      password_file, password_env: Where the password is.
      ask_password: Returns the password.
    """

    places: tuple[Place, ...]
    user: str = ""
    password: str = dataclasses.field(default="", repr=False)
    tls: Tls | None = None
    service: str = ""
    password_file: str = dataclasses.field(default="", repr=False)
    password_env: str = ""
    ask_password: Callable[[], str] | None = dataclasses.field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        places = ",".join(map(str, self.places))
        return f"{places}/{self.service}" if self.service else places

    @property
    def has_login(self) -> bool:
        """Whether connections begin with a login."""
        return bool(self.password or self.password_file or self.password_env or self.ask_password)

    def secret(self) -> str:
        """Returns the password for a new connection, read now; "": none.

        Raises:
          ServerError: It cannot be read.
        """
        if self.ask_password is not None:
            return self.ask_password()
        if self.password_env:
            if value := os.environ.get(self.password_env):
                return value
            raise ServerError(f"password_env={self.password_env} of the address: this variable is not set")
        if not self.password_file:
            return self.password
        try:
            with open(self.password_file, encoding="utf-8") as file:
                text = file.read(4096).rstrip("\r\n")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            raise ServerError(f"password_file of the address cannot be read: {why}") from None
        if not text:
            raise ServerError("password_file of the address is empty")
        return text

    def url(self) -> str:
        """The address as `HET_PS` and `het_tf.init(ps=...)` take it, password included."""
        password = f":{quote(self.password, safe='')}" if self.password else ""
        login = f"{quote(self.user, safe='')}{password}@" if self.user or password else ""
        scheme = "unix" if self.places[0].path else "rediss" if self.tls else "redis"
        if self.service:
            scheme += "+sentinel"
        fields = (vars(self.tls) if self.tls else {}) | {name: getattr(self, name) for name in _SECRETS}
        query = "&".join(f"{name}={value}" for name, value in fields.items() if value)
        return f"{scheme}://{login}{self}{'?' if query else ''}{query}"

    def public(self) -> "Address":
        """A copy that is safe to show: without the login and the client's certificate and key."""
        tls = self.tls and dataclasses.replace(self.tls, cert="", key="")
        return Address(self.places, tls=tls, service=self.service)


def _split(text: str) -> tuple[str, str | None]:
    """Splits an address at its '?'; the second part is None without one.

    Splits at a parameter's name, since a path may have an '@' and a password a '?'; else after the login.
    """
    if text.startswith("unix:"):
        return text, None
    found = [
        text.rfind(f"?{name}=") for name in (*(field.name for field in dataclasses.fields(Tls)), *_SECRETS)
    ]
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
    head, slashes, rest = text.partition("//") if "//" in text else ("", "", text)  # it may be forgotten
    _, at, tail = rest.rpartition("@")
    return (f"{head}{slashes}...{at}{tail}" if at else text) + ("" if query is None else "?...")


def parse(text: str, ask_password: Callable[[], str] | None = None) -> Address:
    """Reads an address.

    Args:
      text: The address.
      ask_password: Gives the password of each new connection; `text` must have none.

    Raises:
      ValueError: `text` is not an address; the message says why, without the password.
    """

    def no(why: str, shown: str = text) -> ValueError:
        return ValueError(f"parameter server '{redacted(shown)}': {why}; write {FORM}")

    scheme, slashes, rest = text.partition("://")
    scheme, plus, kind = scheme.partition("+")
    sentinel = plus + kind == "+sentinel" and scheme != "unix"
    if not slashes or scheme not in ("redis", "rediss", "unix") or (plus and not sentinel):
        raise no("it begins with none of redis://, rediss://, redis+sentinel:// and unix://")
    login = service = ""
    given: dict[str, str] = {}
    if scheme == "unix":
        if rest and not rest.startswith("/") and "@/" in rest:
            login, _, rest = rest.partition("@/")
            rest = "/" + rest
    else:
        head, query = _split(text)
        rest = head.partition("://")[2].removesuffix("/")
        given = _parameters(query, scheme == "rediss", no)
        if "@" in rest:
            login, _, rest = rest.rpartition("@")
    user, _, password = login.partition(":")
    if login and "," in login and "@" in login:
        raise no("write the login once, before the first host")
    if re.search("%(?![0-9a-fA-F]{2})", login):
        raise no("a % in the login begins a character code, such as %40 for @; write %25 for a %")
    secrets = {name: given.pop(name) for name in _SECRETS if name in given}
    sources = bool(password) + len(secrets) + (ask_password is not None)
    if sources > 1:
        raise no("the password is given twice")
    if login and not sources:
        raise no("a user without a password")
    tls = Tls(**given) if scheme == "rediss" else None
    who = Address((), unquote(user), unquote(password), tls, ask_password=ask_password, **secrets)
    if scheme == "unix":
        if rest and not rest.startswith("/"):
            raise no("a path begins with a slash")
        if not 1 <= len(rest.encode()) <= MOST_PATH:
            raise no(
                f"a socket's path has 1 to {MOST_PATH} bytes, not {len(rest.encode())}", "unix://" + rest
            )
        return dataclasses.replace(who, places=(Place(path=rest),))
    if sentinel:
        rest, _, service = rest.partition("/")
        if not service or "/" in service:
            raise no("behind the Sentinels stands '/' and what they call the server, such as /mymaster")
    port = SENTINEL_PORT if sentinel else DEFAULT_PORT
    places = tuple(_place(one, port, no) for one in rest.split(","))
    return dataclasses.replace(who, places=places, service=service)


def _parameters(query: str | None, tls: bool, no: Callable[[str], ValueError]) -> dict[str, str]:
    """The parameters behind the '?'."""
    given: dict[str, str] = {}
    of_tls = [field.name for field in dataclasses.fields(Tls)]
    for one in [] if query is None else query.split("&"):
        name, _, value = one.partition("=")
        if name not in (*of_tls, *_SECRETS):
            raise no(f"'{name}' is none of {', '.join(of_tls)}, {' and '.join(_SECRETS)}")
        if name in of_tls and not tls:
            raise no(f"{name} is about TLS; use it with rediss://")
        if name in given:
            raise no(f"{name} occurs twice")
        if not value:
            raise no(f"{name} is empty")
        given[name] = value
    if "key" in given and "cert" not in given:
        raise no("a key without cert, its certificate")
    return given


def _place(one: str, standard: int, no: Callable[[str], ValueError]) -> Place:
    one, slash, number = one.partition("/")
    if slash:
        raise no(f"it has '/{number}' behind a host; tables are in database 0, so leave the number out")
    if one.startswith("["):
        host, close, port = one[1:].partition("]")
        if not close:
            raise no("'[' without ']'")
        port = port.removeprefix(":") if port else str(standard)
    else:
        host, colon, port = one.partition(":")
        port = port if colon else str(standard)
    if not host:
        raise no("a host is missing")
    if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise no(f"the port '{port}' is not in 1..65535")
    return Place(host, int(port))
