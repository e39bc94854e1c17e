"""Every command and every block of Python in README.md and docs/quickstart.md is run or checked.

Python blocks of one file run in one process, in order. `python ...` lines of shell blocks run as they stand.
`make` lines: `make test` is what runs this test; `make train` and `make wheel` run here, where the
environment was made by make; of the others the target must exist.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/quickstart.md"]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str]]:
    return [
        (page, line)
        for page in PAGES
        for block in blocks(page, "bash")
        for line in block.splitlines()
        if line
    ]


def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    env = dict(os.environ, PYTHONPATH=str(ROOT), TF_CPP_MIN_LOG_LEVEL="2")
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=900,
        **options,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}"
    return done


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run(page: str, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page, "python")))
    output = run([sys.executable, str(script)]).stdout
    assert "rows" in output


@pytest.mark.slow
@pytest.mark.parametrize(("page", "command"), commands())
def test_commands_run(page: str, command: str) -> None:
    words = command.split()
    if words[0] == "python":
        run([sys.executable, *words[1:]])
        return
    assert words[0] == "make", f"{page}: no check for {command!r}"
    target = words[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), (
        f"{page}: no target {target}"
    )
    if target in ("train", "wheel"):
        if not list(Path(sys.prefix).glob(".het-*")):
            pytest.skip(f"`make {target}` would set up {sys.prefix}, which make did not make")
        if shutil.which("make") is None:
            pytest.skip("there is no make")
        run(["make", target, f"VENV={sys.prefix}"])
    else:
        assert target == "test", f"{page}: run `make {target}` here, or say why not"
