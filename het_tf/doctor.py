"""The command `het doctor`: checks whether the plugin loads, and Horovod, servers and a GPU are usable.

This file uses only the standard library, so that it runs without TensorFlow
and the native library; checks that could crash run in another process.
"""

import importlib.util
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from het_tf._version import __version__
from het_tf.ext.ps.python import programs
from het_tf.python import versions
from het_tf.python.cli import JSON, Group, Options, answer
from het_tf.python.show import size


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        name: The check.
        works: Whether it succeeded.
        text: The finding.
        remedy: The command that helps, or that shows a crash; empty if nothing is to be done.
    """

    name: str
    works: bool
    text: str
    remedy: str = ""


def plugin() -> str:
    """Checks that the libraries load where Keras runs, and that the engine's has this version."""
    asked = os.environ.get("KERAS_BACKEND", "tensorflow")
    if asked == "tensorflow" and importlib.util.find_spec("tensorflow") is None:
        install = versions.pip_install(f"tensorflow-cpu=={versions.TESTED}")
        raise ImportError(f"TensorFlow is not installed; run: {install}")
    from het_tf.python import backend
    from het_tf.python.session import native

    if backend.TENSORFLOW:
        from het_tf.inputs.python import native as inputs  # noqa: F401, loads it

        where = f"TensorFlow {native.tf.__version__}"
    else:
        where = f"Python for Keras on {backend.NAME}"
    info = native.build_info()
    text = (
        f"{native.LIBRARY}: {info['version']}, {info['build_type']}, built by {info['compiler']} for "
        f"{info['march'] or 'the baseline CPU'}; loads into {where}"
    )
    if info["version"] != __version__:
        raise ImportError(f"{text}; the Python files are {__version__}; run: {versions.build_command()}")
    return text


def server() -> str:
    """Checks that a program for parameter servers is installed."""
    path = programs.find_server()
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
    version = re.search(r"\d+\.\d+\.\d+", done.stdout)
    return f"{path}, {version[0] if version else 'of an unknown version'}"


def server_module() -> str:
    """Checks that het.so, which the server loads, is built."""
    return f"valkey-server --loadmodule {programs.find_module()}"


def of_horovod() -> str:
    """Checks that Horovod imports with this TensorFlow."""
    script = f"{versions.TREE or 'the source tree'}/tools/install_horovod.sh {sys.prefix}"
    spec = importlib.util.find_spec("horovod")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"Horovod is not installed; run: {script}")
    metadata = Path(spec.submodule_search_locations[0], "metadata.json")
    built = json.loads(metadata.read_text()).get("tensorflow") if metadata.exists() else None
    built_with = f"built with TensorFlow {built or 'of an unknown version'}"
    try:
        import horovod.tensorflow
    except Exception as error:
        raise ImportError(f"Horovod, {built_with}, does not import ({error}); run: {script}") from None
    return f"{horovod.__version__}, {built_with}"


def gpu() -> str:
    """Checks that caches on the GPU work: TensorFlow sees a GPU, and both libraries load."""
    from het_tf.ext.gpu.python import device
    from het_tf.python.session import native

    device.start()
    found = json.loads(native.call("HetDescribeDevice"))
    return (
        f"{found['name']}, compute capability {found['compute_capability'] / 10:.1f}, driver for CUDA "
        f"{found['driver_version'] / 1000:.1f}, {size(found['free_bytes'])} of {size(found['memory_bytes'])} "
        f"free; {device.device_library()}"
    )


CHECKS: dict[str, Callable[[], str]] = {
    "plugin": plugin,
    "server": server,
    "server module": server_module,
    "Horovod": of_horovod,
    "GPU": gpu,
}


def tell(name: str) -> None:
    """Runs a check in this process, and prints the input of `look`."""
    try:
        found = {"works": True, "text": CHECKS[name]()}
    except Exception as error:
        line = " ".join(str(error).split()) or type(error).__name__
        text, _, remedy = line.partition("; run: ")
        found = {"works": False, "text": text, "remedy": remedy}
    print("\n" + json.dumps(found), flush=True)


def look(name: str) -> Finding:
    """Runs a check in another process: an import may crash, or print anything."""
    path = os.pathsep.join(filter(None, (str(versions.PACKAGE.parent), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-c", f"from het_tf import doctor; doctor.tell({name!r})"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=600, env={**os.environ, "PYTHONPATH": path}
        )
    except subprocess.TimeoutExpired:
        return Finding(name, False, "no answer in 10 minutes")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        return Finding(name, False, f"the process of the check ended with {how}", shlex.join(command))
    return Finding(name, **json.loads(lines[-1]))


HET = Group("""\
Checks whether the plugin loads, and Horovod, servers and a GPU are usable.
Prints a line for each check, and the remedy under each failure. Exit status 1:
the plugin, which everything needs, fails.""")


@HET.command("", "check this installation", JSON)
def main(options: Options) -> int:
    """Het doctor."""
    text = (
        f"het_tf {__version__} in {versions.PACKAGE}, Python {platform.python_version()} ({sys.executable})"
    )
    with ThreadPoolExecutor() as pool:
        findings = list(pool.map(look, CHECKS))
    for one in findings:
        optional = "" if one.works or one.name == "plugin" else "optional, "
        text += f"\n  {'ok' if one.works else 'fails':7}{one.name:15}{optional}{one.text}"
        if one.remedy:
            text += f"\n  {'':22}remedy: {one.remedy}"
    ready = findings[0].works
    text += "\nReady." if ready else "\nNot ready: plugin."
    answer(options, [vars(one) for one in findings], text)
    return int(not ready)
