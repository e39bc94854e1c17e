"""The command `het ps exporter`."""

import argparse
import gc
import os
from pathlib import Path

from het_tf.ext.ps.python.cli import HET, STORE, where
from het_tf.ext.ps.python.errors import ServerError
from het_tf.python.cli import Options, arg
from het_tf.python.files import local
from het_tf.python.show import log, until_signal

_LEAST_TOKEN = 16  # characters


def _listen(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is not HOST:PORT, such as 127.0.0.1:9400")
    return host.strip("[]") or "0.0.0.0", int(port)


def _token(file: Path | None) -> str:
    if file is None:
        source, token = "HET_EXPORTER_TOKEN", os.environ.get("HET_EXPORTER_TOKEN", "")
        if not token:
            return ""
    else:
        source = f"--token-file {file}"
        try:
            token = file.read_text().strip()
        except (OSError, ValueError) as error:
            why = (getattr(error, "strerror", None) or "it is not UTF-8").lower()
            raise ServerError(f"{source} cannot be read: {why}") from None
    if len(token) < _LEAST_TOKEN:
        raise ServerError(
            f"{source} has a token of {len(token)} characters; make one of {_LEAST_TOKEN} or more, such as by"
            " `openssl rand -hex 16`"
        )
    return token


@HET.command(
    "exporter",
    "serve the figures of a job to Prometheus, and show them on a page",
    STORE,
    arg("--namespace", metavar="NS", help="the job's; default: the only one at the servers"),
    arg("--listen", type=_listen, default="127.0.0.1:9400", metavar="HOST:PORT",
        help="where (%(default)s); a token is needed where other machines reach it"),
    arg("--token-file", type=local, metavar="FILE",
        help="what clients must show, as a bearer token or as the password (default: $HET_EXPORTER_TOKEN)"),
    more="One for a job: servers, tables, ranks and followers, at http://HOST:PORT/metrics; the page is at"
    " http://HOST:PORT/. Runs until SIGTERM or Ctrl-C.",
)  # fmt: skip
def run_exporter(options: Options) -> int:
    """Het ps exporter."""
    from het_tf.ext.monitor.python.web.server import Exporter  # of no other command of `het ps`

    gc.set_threshold(100_000)  # a scrape makes thousands of objects, and none in a cycle
    ended, say = until_signal(), log("het ps exporter")
    token = _token(options.token_file)
    (host, port), (address, layout) = options.listen, where(options)
    with Exporter(host, port, token, address, layout, options.namespace) as exporter:
        exporter.scrape()  # who has no rights learns it now
        say(f"{exporter.url} shows the job; {exporter.url}metrics is for Prometheus")
        exporter.run(ended)
    say("ended")
    return 0
