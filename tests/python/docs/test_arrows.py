"""tools/check_arrows.py: an include or import that points upward is named with its line and the rule."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def check(root):
    command = [sys.executable, ROOT / "tools/check_arrows.py", root]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


def test_the_tree_has_none():
    done = check(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("name", "included", "allowed"),
    [
        ("core/plan/x.h", "core/engine/engine.h", False),
        ("core/plan/x.h", "core/row/schema.h", True),
        ("core/row/optimizers/x.cc", "core/row/schema.h", True),
        ("core/device/x.cc", "kernels/cuda/table.h", False),
        ("kernels/gpu/x.cc", "capi/management.h", False),
        ("kernels/gpu/x.cc", "kernels/device_node.h", True),
        ("kernels/x.cc", "core/serve/online_reader.h", True),
        ("kernels/cuda/x.cu", "core/device/abi.h", True),
        ("ps/module/x.cc", "ps/client/cluster.h", False),
        ("capi/x.cc", "ps/client/remote_engine.h", True),
        ("somewhere/x.cc", "core/base/span.h", False),
    ],
)
def test_an_include_that_points_upward(tmp_path, name, included, allowed):
    path = tmp_path / "het_tf" / name
    path.parent.mkdir(parents=True)
    path.write_text(f'#include <vector>\n#include "het_tf/{included}"\n')
    done = check(tmp_path)
    assert done.returncode == (0 if allowed else 1)
    assert (f"het_tf/{name}:2: includes het_tf/{included}" in done.stdout) != allowed


@pytest.mark.parametrize(
    ("name", "line", "allowed"),
    [
        ("layer/x.py", "from het_tf.python.session.native import tf", True),
        ("layer/x.py", "from het_tf.python.checkpoint.keras import h5", True),
        ("layer/x.py", "from het_tf.python.checkpoint.model import save", False),
        ("layer/x.py", "from het_tf.python.checkpoint.model.save import save", False),
        ("session/x.py", "def later():\n    import het_tf.python.table.registry", False),
        ("session/x.py", "from het_tf.python import ps", True),
        ("table/x.py", "from het_tf import doctor", False),
        ("models/x.py", "from het_tf._version import __version__", True),
        ("somewhere/x.py", "from het_tf.python.show import size", False),
    ],
)
def test_an_import_that_points_upward(tmp_path, name, line, allowed):
    path = tmp_path / "het_tf/python" / name
    path.parent.mkdir(parents=True)
    path.write_text(f"import os\n{line}\n")
    done = check(tmp_path)
    assert done.returncode == (0 if allowed else 1)
    number = 1 + len(f"import os\n{line}".splitlines()[:-1])
    assert (f"het_tf/python/{name}:{number}: imports het_tf" in done.stdout) != allowed
