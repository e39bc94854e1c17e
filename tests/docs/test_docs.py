"""Every command and every block of Python in PAGES and CONSOLE_PAGES is run or checked.

Python blocks of one file run in one process, in order. `python ...` lines of shell blocks run as they stand.
`make` lines: `make test` is what runs this test; `make train` runs here, where the environment was made by
make; `make release-check` runs `make wheel`.

Blocks marked `console` show commands after "$ " and what they print. They run in the directory in which the
page's Python has run, and every line shown must be among those printed, in this order, except numbers and
spaces. A line "..." stands for any lines. Python that names a server of the network is only compiled.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/quickstart.md", "docs/migrate.md"]
# Pages whose `console` blocks run, and what their Python takes for granted.
CONSOLE_PAGES = {
    "docs/checkpoints.md": "",
    "docs/serving.md": """
import numpy as np
import tensorflow as tf

import het_tf

item = tf.keras.Input((), dtype="int64", name="item")
rows = het_tf.keras.Embedding(8, name="items")(item)
model = tf.keras.Model({"item": item}, tf.keras.layers.Dense(1, activation="sigmoid")(rows))
model.compile("adam", "binary_crossentropy")
ids = np.random.default_rng(0).integers(0, 100, 512)
dataset = tf.data.Dataset.from_tensor_slices(({"item": ids}, ids % 2)).batch(64)
model.fit(dataset, verbose=0)
validation = dataset


def parse(text):
    return {"item": tf.strings.to_number(text, tf.int64)}


""",
}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str]]:
    found = [(page, line) for page in PAGES for block in blocks(page, "bash") for line in block.splitlines()]
    return [one for one in found if one[1]]


def run(command: list[str], cwd: Path = ROOT, path: str = "") -> subprocess.CompletedProcess[str]:
    env = dict(os.environ, PYTHONPATH=f"{ROOT}:{ROOT}/tests/lib", TF_CPP_MIN_LOG_LEVEL="2")
    if path:
        env["PATH"] = f"{path}{os.pathsep}{env['PATH']}"
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, cwd=cwd, env=env, text=True, timeout=900, **out)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}"
    return done


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", ["README.md", *(pytest.param(page, marks=pytest.mark.long) for page in PAGES[1:])]
)
def test_python_blocks_run(page: str, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page, "python")))
    assert "rows" in run([sys.executable, str(script)], cwd=tmp_path).stdout


@pytest.mark.long
@pytest.mark.parametrize(("page", "command"), commands())
def test_commands_run(page: str, command: str) -> None:
    words = command.split()
    if words[0] in ("python", "het"):
        run([sys.executable, *(["-m", "het_tf"] if words[0] == "het" else []), *words[1:]])
        return
    assert words[0] == "make", f"{page}: no check for {command!r}"
    target, makefile = words[1], (ROOT / "Makefile").read_text()
    assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page}: no target {target}"
    if target == "train":
        if not list(Path(sys.prefix).glob(".het-*")):
            pytest.skip(f"`make {target}` would set up {sys.prefix}, which make did not make")
        if shutil.which("make") is None:
            pytest.skip("there is no make")
        run(["make", target, f"VENV={sys.prefix}"])
    else:
        assert target in ("test", "wheel"), f"{page}: run `make {target}` here, or say why not"


def shown(block: str) -> list[tuple[str, list[str]]]:
    """Commands of a console block, each with the lines below it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip() not in ("", "..."):
            found[-1][1].append(line)
    return found


def without_numbers(line: str) -> str:
    line = re.sub(r"\b[0-9a-f]{32}\b", "#", line)
    line = re.sub(r"-?\d[\d.:]*(e-\d+)?( ?[kMGT]?B\b|[kMGT]\b)?", "#", line)
    return " ".join(line.split())


def commands_of_the_package(place: Path) -> str:
    """A directory with python, het ckpt and saved_model_cli, for PATH: they may not be installed."""
    place.mkdir()
    cli = "-m tensorflow.python.tools.saved_model_cli"
    for name, arguments in {"python": "", "het": "-m het_tf", "saved_model_cli": cli}.items():
        (place / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (place / name).chmod(0o755)
    return str(place)


@pytest.mark.long
@pytest.mark.parametrize("page", CONSOLE_PAGES)
def test_console_blocks_show_what_commands_print(page: str, tmp_path: Path) -> None:
    place, programs = tmp_path / "page", commands_of_the_package(tmp_path / "bin")
    place.mkdir()
    (place / "examples").symlink_to(ROOT / "examples")
    code = blocks(page, "python")
    for block in code:
        compile(block, page, "exec")
    code = [block for block in code if "redis://" not in block]
    (tmp_path / "page.py").write_text("\n".join([CONSOLE_PAGES[page], *code]))
    run([sys.executable, str(tmp_path / "page.py")], place)
    expected = [one for block in blocks(page, "console") for one in shown(block)]
    assert expected
    for command, lines in expected:
        printed = run(["bash", "-c", command], place, programs).stdout
        rest = iter([without_numbers(line) for line in printed.splitlines()])
        for line in lines:
            assert without_numbers(line) in rest, f"{page}: {line!r} is not (here) in\n$ {command}\n{printed}"
