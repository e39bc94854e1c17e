"""`python -m het_tf.doctor`: right about what is there, helpful about what is not, never a stack trace."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import gpu_lib
import pytest

from het_tf import doctor
from het_tf.python import versions

ROOT = Path(__file__).resolve().parents[3]


def run_doctor(python=sys.executable, tree=ROOT, cwd="/", **environment):
    environment = {**os.environ, "PYTHONPATH": str(tree), **environment}
    done = subprocess.run(
        [python, "-m", "het_tf.doctor"], cwd=cwd, env=environment, capture_output=True, text=True, timeout=600
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, done.stdout


def line_of(name, output):
    return next(line for line in output.splitlines() if line.split()[1:2] == [name])


@pytest.mark.slow
def test_reports_this_environment():
    import tensorflow as tf

    there = gpu_lib.DEVICE_LIBRARY.exists()
    status, output = run_doctor(**({"HET_DEVICE_LIBRARY": str(gpu_lib.DEVICE_LIBRARY)} if there else {}))
    assert status == 0, output
    assert line_of("TensorFlow", output).split()[:3] == ["ok", "TensorFlow", tf.__version__]
    assert "tested: 2.15.1, 2.21.0" in line_of("TensorFlow", output)
    plugin = line_of("plugin", output)
    assert plugin.split()[0] == "ok"
    assert str(ROOT / "het_tf" / "lib" / "libhet_tf.so") in plugin
    assert "GNU" in plugin or "Clang" in plugin
    assert line_of("het-ps", output).split()[0] == "ok"
    assert output.splitlines()[-1] == "Ready."
    of_gpus = {line.split()[2]: line for line in output.splitlines() if line.split()[1:2] == ["GPU"]}
    if gpu_lib.GPU_OPS.exists():
        built_for = versions.gpu_ops_tensorflow(gpu_lib.GPU_OPS)
        assert of_gpus["ops"].split()[0] == ("ok" if built_for == tf.__version__ else "wrong")
        assert "alone" in of_gpus["ops"]
    assert not there or of_gpus["library"].split()[0] == "ok", of_gpus


def test_missing_plugin_is_named_with_its_remedy(tmp_path):
    found = doctor.check_plugin({}, tmp_path / "libhet_tf.so")
    assert found.state == "missing" and found.fatal and found.remedy == versions.build_command()


def test_libraries_for_gpus_are_of_another_wheel(tmp_path, monkeypatch):
    """In a wheel the remedy was to build the wheel that has no code for GPUs."""
    checks = (doctor.check_gpu_ops, doctor.check_device_library)
    assert [check({}, tmp_path / "none.so").remedy for check in checks] == [versions.build_command()] * 2
    monkeypatch.setattr(versions, "TREE", None)
    for check in checks:
        found = check({}, tmp_path / "none.so")
        assert found.remedy.startswith("make wheel-gpu in het_tf's source tree, then ")
        assert found.remedy.endswith("-m pip install dist/het_tf_gpu-*.whl")


def test_het_ps_needs_redis_py_and_is_no_need():
    there = doctor.check_het_ps({"redis": "8.1.0"})
    assert there.state == "ok" and "--help" in there.text
    missing = doctor.check_het_ps({"redis_error": "No module named 'redis'"})
    assert missing.state == "missing" and not missing.fatal
    assert "No module named 'redis'" in missing.text and "-m pip install redis==" in missing.remedy


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
    assert line_of("plugin", output).split()[0] == "wrong"
    assert "does not load" in output


@pytest.mark.long
def test_missing_tensorflow_is_named_with_its_remedy(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    status, output = run_doctor(python=tmp_path / "bare" / "bin" / "python")
    assert status == 1
    for name in ("TensorFlow", "Keras", "NumPy", "het-ps"):
        assert line_of(name, output).split()[0] == "missing"
    assert "-m pip install tensorflow-cpu==2.21.0" in output


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("2.14.1", "wrong"),
        ("2.15.0", "ok"),
        ("2.21.0", "ok"),
        ("2.22.0rc1", "untested"),
        ("3.0.0", "untested"),
    ],
)
def test_states_which_tensorflows_are_supported(version, state):
    assert doctor.check_tensorflow({"tensorflow": version}).state == state


def test_horovod_of_another_tensorflow_is_told_but_not_fatal(tmp_path, monkeypatch):
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").touch()
    (tmp_path / "horovod" / "metadata.json").write_text('{"tensorflow": "2.18.1"}')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "horovod", raising=False)
    finding = doctor.check_horovod({"tensorflow": "2.21.0", "horovod_error": "built for another"})
    assert finding.state == "wrong"
    assert not finding.fatal
    assert "built with TensorFlow 2.18.1" in finding.text


def test_cpu_of_the_build_is_read_from_the_file(tmp_path):
    plugin = tmp_path / "plugin.so"
    plugin.write_bytes(b"\x7fELF...x86-64-v3\0...")
    assert doctor.plugin_march(plugin) == "x86-64-v3"
    plugin.write_bytes(b"\x7fELF...")
    assert doctor.plugin_march(plugin) == ""


def test_cpu_that_lacks_the_level_is_refused_before_loading(tmp_path, monkeypatch):
    plugin = tmp_path / "plugin.so"
    plugin.write_bytes(b"x86-64-v3\0")
    real = Path.read_text
    monkeypatch.setattr(
        Path,
        "read_text",
        lambda self: "flags\t\t: fpu sse4_2\n" if str(self) == "/proc/cpuinfo" else real(self),
    )
    assert "avx2" in doctor.cpu_lacks("x86-64-v3")
    finding = doctor.check_plugin({}, plugin)
    assert finding.fatal
    assert "this CPU lacks" in finding.text
    assert "HET_MARCH=" in finding.remedy
    assert doctor.cpu_lacks("") == []
