"""Does what a user does with a wheel, in an environment that has nothing else.

    python tools/release_check.py WHEEL_OR_FOLDER --venv FOLDER --constraints requirements/tensorflow.txt

1. The wheel holds the package and its libraries, and nothing else.
2. Installs it with the extra `cpu`: what pyproject.toml declares, in the versions of the constraints.
3. Runs README's program.
4. Starts two servers with `het ps up`, runs the same with the tables there and exports the model, asks
   `status`, stops them. TensorFlow alone loads the export, which answers with the rows of the servers.
5. Uninstalls it: nothing of it is left.
6. Builds the server's image by examples/deploy/Dockerfile with Docker, or where there is none follows the
   recipe in an empty folder, and runs a server in it with compose.yaml's command. One line says what was not
   run.

The first failure ends it. The environment is made anew, and stays with the package uninstalled.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import container

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("libhet_tf.so", "libhet_inputs.so", "libhet_engine.so", "het.so")
LEVELS = ("", "x86-64-v3/")
EXPORT = """
het_tf.export(model, "exported", verbose=False)
# The rows of the store: what the model reads from a server is rounded (docs/concepts.md).
np.save("expected.npy", head(het_tf.Table("item").lookup(ids[:64], stored=True)))
np.save("ids.npy", ids[:64])
"""
LOAD = """
import sys
import numpy as np
import tensorflow as tf
serve = tf.saved_model.load("exported").signatures["serving_default"]
(name,) = serve.structured_input_signature[1]
(answer,) = serve(**{name: tf.constant(np.load("ids.npy"))}).values()
np.testing.assert_allclose(answer, np.load("expected.npy"), rtol=1e-5, atol=1e-6)
assert "het_tf" not in sys.modules
print("64 answers are those of the servers' rows")
"""


class User:
    """Calls the programs of an environment from a folder of its own, with none of this tree on the path."""

    def __init__(self, venv: Path, place: Path) -> None:
        self.venv, self.place = venv, place

    def run(self, *command: object, **variables: str) -> str:
        """Returns what a command has printed; a failure ends the check."""
        words = [str(word) for word in command]
        words[0] = str(self.venv / "bin" / words[0])
        kept = {
            name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "LANG", "SSL_", "HTTP"))
        }
        environment = {
            **kept,
            "HOME": os.environ.get("HOME", "/tmp"),
            "PATH": f"{self.venv / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "CUDA_VISIBLE_DEVICES": "",
            **variables,
        }
        done = subprocess.run(
            words, cwd=self.place, env=environment, text=True, timeout=600,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            shown = f"{shlex.join(words)[:200]} ended with {done.returncode}"
            raise SystemExit(f"{done.stdout[-5000:]}\nerror: {shown} (above)")
        return done.stdout


def expect(condition: object, what: str) -> None:
    """Ends the check if something is not so."""
    if not condition:
        raise SystemExit(f"error: {what}")


def check_contents(wheel: Path) -> None:
    """The package, libraries for both levels of CPUs, and a list of what is linked into them."""
    files = {file.filename: file for file in zipfile.ZipFile(wheel).infolist()}
    names = list(files)
    for name in (f"het_tf/lib/{level}{library}" for level in LEVELS for library in LIBRARIES):
        expect(name in names, f"{wheel.name} has no {name}")
        # Redis and Valkey load no module that nobody may execute.
        expect(files[name].external_attr >> 16 & 0o111, f"{wheel.name}: {name} is not executable")
    tops = {name.split("/")[0].split("-")[0] for name in names}
    expect(tops == {"het_tf"}, f"{wheel.name} holds {sorted(tops)}, not het_tf alone")
    stray = [name for name in names if name.endswith((".cc", ".h", ".pyc")) or "libhet_tf_gpu" in name]
    expect(not stray, f"{wheel.name} holds {stray}")
    expect(any(name.endswith("sboms/het_tf.cdx.json") for name in names), f"{wheel.name} has no SBOM")
    expect("-py3-none-manylinux_2_28_" in wheel.name, f"{wheel.name} is for one Python or an unknown glibc")


def install(wheel: Path, venv: Path, constraints: Path | None) -> None:
    """Into an empty environment, with the dependencies that the wheel declares."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
    limits = ["-c", constraints] if constraints else []
    subprocess.run(
        [venv / "bin/python", "-m", "pip", "install", "-qq", "--no-compile", f"{wheel}[cpu]", *limits],
        check=True, env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip


def readme_program() -> str:
    """The program of README.md."""
    (block,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    return block


def check_use(user: User) -> None:
    """README's program, an export and servers."""
    program = readme_program()
    (user.place / "program.py").write_text(program)
    expect(" rows" in (said := user.run("python", "program.py")), f"README's program prints\n{said}")
    print(f"    README's program: {said.splitlines()[-1]}")
    (user.place / "exporting.py").write_text(program + EXPORT)
    up = user.run("het", "ps", "up", "--shards", 2, "--dir", "servers", "--port", free_ports(2))
    try:
        address = re.search(r"^HET_PS=(\S+)$", up, re.MULTILINE)
        expect(address, f"het ps up prints\n{up}")
        user.run("python", "exporting.py", HET_PS=address[1] if address else "")
        servers = json.loads(user.run("het", "ps", "status", "--dir", "servers", "--json"))["servers"]
    finally:
        user.run("het", "ps", "down", "--dir", "servers")
    rows = [server["rows"] for server in servers]
    expect(len(rows) == 2 and all(rows), f"the servers hold {rows} rows")
    print(f"    het ps: two servers with {rows} rows, stopped")
    print("    export:", user.run("python", "-c", LOAD).splitlines()[-1])


def free_ports(count: int) -> int:
    """The first of `count` ports that nobody uses; so are those of a cluster's bus, 10,000 above."""
    for first in range(21000, 29000, 10):
        with contextlib.ExitStack() as stack:
            try:
                for port in [first + n + bus for n in range(count) for bus in (0, 10000)]:
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise SystemExit("error: no ports are free")


def check_uninstall(user: User) -> None:
    """Nothing is left."""
    user.run("python", "-m", "pip", "uninstall", "-q", "-y", "het_tf")
    left = [path for path in user.venv.rglob("*het*") if re.match(r"(lib)?het[-_.]", path.name)]
    expect(not left, f"pip uninstall leaves {left}")


def main() -> int:
    """Runs the steps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path, help="a wheel, or a folder: its newest wheel")
    parser.add_argument("--venv", type=Path, required=True, help="the environment, which is made anew")
    parser.add_argument("--constraints", type=Path, help="versions, as in requirements/*.txt")
    parser.add_argument("--no-container", action="store_true", help="leave the image out")
    options = parser.parse_args()
    wheel, venv = options.wheel.absolute(), options.venv.absolute()
    if wheel.is_dir():
        wheels = sorted(wheel.glob("het_tf-*.whl"), key=lambda path: path.stat().st_mtime)
        expect(wheels, f"{wheel} has no wheel of het_tf")
        wheel = wheels[-1]
    check_contents(wheel)
    print(f"    {wheel.name}: {wheel.stat().st_size} bytes")
    install(wheel, venv, options.constraints)
    with tempfile.TemporaryDirectory() as place:
        user = User(venv, Path(place))
        check_use(user)
        (module,) = venv.glob("lib/python*/site-packages/het_tf/lib/het.so")
        if not options.no_container:
            print("    container:", container.check(module))
        check_uninstall(user)
    print("    uninstalled: nothing is left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
