"""Certificates for `het ps up --tls`.

    DIR/tls/ca.crt, ca.key          a CA for this store only; ca.key makes further servers and clients
    DIR/tls/server.crt, server.key  certificate of all servers of the directory, for workers and each other

The directory is 0700 and keys are 0600. No message and no process argument has the path of a key.
"""

import shutil
import subprocess
from pathlib import Path

from het_tf.ext.ps.python.errors import ServerError

DAYS = 3650  # of both certificates

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
    itself = ["-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=het-ps CA"]
    _run(directory, openssl, *common, "-extensions", "ca", *itself)
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
