"""Scripts that are no package's modules, such as those of tools/, made modules; and programs of Python."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))  # of what they import of each other


def script(name: str) -> ModuleType:
    """A new module of the script ROOT/`name`.py."""
    spec = importlib.util.spec_from_file_location(Path(name).name, ROOT / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def python(
    *words: object, status: int | None = 0, cwd: object = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs `python WORDS` with more variables in a process of its own, and checks its exit status."""
    command, env = [sys.executable, *map(str, words)], {**os.environ, **variables}
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert status in (None, done.returncode), f"{words}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done
