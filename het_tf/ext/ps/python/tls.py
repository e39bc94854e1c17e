"""TLS of het ps: client connections, explanations of errors, and certificates for `het ps up --tls`.

    DIR/tls/ca.crt, ca.key          a CA for this store only; ca.key makes further servers and clients
    DIR/tls/server.crt, server.key  certificate of all servers of the directory, for workers and each other

The directory is 0700 and keys are 0600. No message and no process argument has the path of a key.
"""

import contextlib
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

from het_tf.ext.ps.python.address import Tls
from het_tf.ext.ps.python.errors import ServerError

DAYS = 3650  # of both certificates

_WANTS_TLS = "a server that speaks TLS needs rediss:// for redis://"
_WANTS_NONE = "a server that does not speak TLS needs redis:// for rediss://"
_WANTS_1_2 = "TLS 1.2 is the oldest that is spoken here: set its tls-protocols to 'TLSv1.2 TLSv1.3'"

_CONFIG = """\
[req]
distinguished_name = name
prompt = no
[name]
CN = het ps
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = DNS:localhost, {addresses}
"""


class Connection(redis.Connection):
    """A connection of redis-py under TLS. Connecting raises ServerError if a file cannot be used.

    Args:
      tls: TLS settings of the address.
      **others: As `redis.Connection` takes them.
    """

    def __init__(self, *, tls: Tls, **others: Any) -> None:
        self._tls = tls
        super().__init__(**others)  # type: ignore[no-untyped-call]

    def _connect(self) -> ssl.SSLSocket:
        context = _context(self._tls)  # reads the files again
        plain = super()._connect()  # type: ignore[no-untyped-call]
        try:
            return context.wrap_socket(plain, server_hostname=self._tls.server_name or self.host)
        except BaseException:
            plain.close()
            raise


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies the chain and the host
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.ca:
        with _using(f"ca={tls.ca}", "a file with certificates in PEM"):
            context.load_verify_locations(tls.ca)
    else:
        context.load_default_certs()
    if tls.cert:
        with _using("cert or key", "a certificate and its private key in PEM, without pass phrase"):
            context.load_cert_chain(tls.cert, tls.key or None, password=_no_pass_phrase)
    return context


def _no_pass_phrase() -> str:
    raise ValueError("the key has a pass phrase")


@contextlib.contextmanager
def _using(what: str, wanted: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        why = "" if isinstance(error, (ssl.SSLError, ValueError)) else f": {error.strerror}"
        raise ServerError(f"{what} cannot be used{why}; give {wanted}") from None


def explain(error: BaseException, tls: Tls | None, answered: bool) -> str:
    """Explains a failed connection by TLS or its absence; "" if neither is the cause.

    Args:
      error: The error of redis-py.
      tls: Settings of the connection.
      answered: The server has answered before.
    """
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    for one in chain:
        if isinstance(one, ssl.SSLCertVerificationError):
            why = one.verify_message.rstrip(".")
            return f"shows a certificate that is refused: {why}; {_remedy(one.verify_code, tls)}"
        if isinstance(one, ssl.SSLError) and one.reason:
            why = one.reason.lower().replace("_", " ")
            if "protocol version" in why or "unsupported protocol" in why:
                return f"speaks no TLS of today: {why}; {_WANTS_1_2}"
            if "alert" in why:
                return f"refuses the connection: {why}; {_client(tls)}"
            return f"breaks TLS: {why}; {_WANTS_NONE}"
    text = " ".join(map(str, chain)).lower()
    if answered:
        return ""
    if tls and ("timed out" in text or "timeout" in text):
        return f"no answer; {_WANTS_NONE}"
    if any(words in text for words in ("closed by server", "reset by peer", "eof occurred")):
        return f"closed the connection; {_client(tls) if tls else _WANTS_TLS}"
    return ""


# Codes of X509_verify_cert_error_string: chains without a known CA, and other errors that have a remedy.
_OTHER_CA = (2, 7, 18, 19, 20, 21, 30)
_REMEDIES = {
    9: "check the clocks of both machines",
    10: "renew the server's certificate, or its CA's",
    26: "it is for other uses: issue one with extendedKeyUsage = serverAuth, clientAuth (servers of a cluster"
    " show it to each other)",
    62: "connect to a host that it names, or name one by ?server_name=NAME",
    64: "connect to a host that it names, or name one by ?server_name=NAME",
}


def _remedy(code: int, tls: Tls | None) -> str:
    if code not in _OTHER_CA:
        return _REMEDIES.get(code, "look at it, and at its CA's: openssl x509 -text -in FILE")
    given = tls is not None and tls.ca
    return f"ca={given} is not the CA that signed it" if given else "give the CA that signed it by ?ca=FILE"


def _client(tls: Tls | None) -> str:
    if tls and tls.cert:
        return "its CA may not know the certificate of this client"
    return "it may want a certificate of this client: ?cert=FILE&key=FILE"


def check_server(program: str) -> None:
    """Checks that a server was built with TLS.

    Raises:
      ServerError: It was not.
    """
    # A server with TLS stops for want of a certificate, and says so.
    words = [program, "--port", "0", "--tls-port", "1", "--save", ""]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30)
    if "tls-cert-file" not in done.stdout + done.stderr:
        raise ServerError(
            f"{program} is built without TLS; leave --tls out, or run: apt-get install redis-server, whose"
            " server has it (and put its directory first on PATH)"
        )


def make_certificates(directory: Path, bind: str) -> None:
    """Makes the CA and the servers' certificate unless they exist.

    Args:
      directory: DIR/tls.
      bind: The address of this machine on which servers listen.

    Raises:
      ServerError: The program `openssl` is missing or fails.
    """
    if (directory / "server.crt").exists():
        return
    openssl = shutil.which("openssl")
    if openssl is None:
        raise ServerError(
            "--tls makes certificates with the program openssl, which is not on PATH; run: apt-get install"
            " openssl"
        )
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    addresses = ", ".join(f"IP:{address}" for address in dict.fromkeys((bind, "127.0.0.1")))
    (directory / "openssl.cnf").write_text(_CONFIG.format(addresses=addresses))
    common = ["req", "-x509", "-config", "openssl.cnf", "-days", str(DAYS), "-newkey", "ec", "-nodes"]
    common += ["-pkeyopt", "ec_paramgen_curve:prime256v1"]
    _run(
        directory,
        openssl,
        *common,
        "-extensions",
        "ca",
        "-keyout",
        "ca.key",
        "-out",
        "ca.crt",
        "-subj",
        "/CN=het-ps CA",
    )
    # Rename it into place, so that it exists only when complete.
    signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-keyout", "server.key", "-out", "server.crt.new"]
    _run(directory, openssl, *common, "-extensions", "server", *signed)
    (directory / "server.crt.new").replace(directory / "server.crt")


def _run(directory: Path, *words: str) -> None:
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, umask=0o077)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        why = said[-1] if said else "no reason given"
        raise ServerError(f"openssl (3.0 or newer is needed) fails to make certificates: {why}")
