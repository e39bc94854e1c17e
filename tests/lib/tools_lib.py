"""Scripts that are no package's modules, such as those of tools/, made modules."""

import importlib.util
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
