"""`make wheel` gives a wheel that installs into a fresh environment, trains there, and brings het-ps."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[3]
TRAIN = """
import het_tf, keras, numpy as np, pathlib, sys
assert pathlib.Path(het_tf.__file__).is_relative_to(sys.prefix), het_tf.__file__

table = het_tf.TableConfig("t", dim=4, optimizer=het_tf.optimizers.RowWiseAdagrad(0.05))
model = keras.Sequential([
    keras.Input((), dtype="int64"),
    het_tf.keras.Embedding(table),
    keras.layers.Dense(1),
])
model.compile("adam", "mse")
ids = np.arange(256) % 32
labels = (ids % 2).astype("float32")
loss = model.fit(ids, labels, batch_size=32, epochs=5, verbose=0).history["loss"]
print(het_tf.__file__, loss)
assert loss[-1] < 0.9 * loss[0], loss
"""


def run(*command, **options):
    # This environment's copy of the source tree is not used.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["HET_CUDA_ARCH"] = "ptx"  # the quickest to build
    if command[0] != "make":  # the tools of this environment (cmake, ninja) are
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(
        [str(part) for part in command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
        **options,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    if list(Path(sys.prefix).glob(".het-*")) and shutil.which("make"):
        run("make", "wheel", f"VENV={sys.prefix}", f"DIST={directory}", cwd=ROOT)
    else:  # make would set up this environment, which is not its own: what it does then
        # No isolation: the TensorFlow headers are those of this environment, so nothing is downloaded.
        run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", directory, ROOT)
    (path,) = directory.glob("het_tf-*.whl")
    return path


def test_wheel_holds_the_package_and_the_plugin_only(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for library in ("libhet_tf.so", "libhet_inputs.so", "libhet_follow.so", "het.so"):
        assert f"het_tf/lib/{library}" in names
    # That of `make wheel` has no code for GPUs, which is bound to one TensorFlow; that of pip has.
    portable = "-manylinux_2_28_" in wheel.name
    assert ("het_tf/lib/libhet_tf_gpu.so" in names) is not portable
    assert "het_tf/__init__.py" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"het_tf"}
    assert not [name for name in names if name.endswith((".cc", ".h", ".pyc"))]
    # One binary for every Python 3 and every supported TensorFlow.
    assert f"-py3-none-{'manylinux_2_28_' if portable else 'linux_'}" in wheel.name


def test_wheel_trains_in_a_fresh_environment(wheel, tmp_path):
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    python = venv / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    # TensorFlow comes from this environment. A path added by a .pth file has its own .pth files
    # ignored, so the source tree stays out of sight.
    site_packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site_packages / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    print(run(python, "-c", TRAIN, cwd=tmp_path))
    het_ps = python.with_name("het-ps")
    assert "het-ps up --shards 2" in run(het_ps, "--help", cwd=tmp_path)
    # It finds the module that the wheel brought.
    assert f"loadmodule {venv}/lib" in run(het_ps, "conf", cwd=tmp_path)
