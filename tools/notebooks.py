#!/usr/bin/env python3
"""Executes the tutorials, docs/tutorials/*.ipynb, each in a directory and a kernel of its own.

python tools/notebooks.py [--write] [NAME ...]     NAME: a file, or a part of its name; none: all

A notebook whose library this environment lacks is left out, with a line: that of PyTorch has its own, of
`make notebook-pytorch`. It ends at the first cell that fails, with the notebook, the cell and the error. With
--write the outputs are stored, without what differs between two runs and machines for no reason: times,
metadata, paths.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "docs" / "tutorials"
CELL_SECONDS = 300
NEEDS = {"07-pytorch": "torch"}  # the others need tensorflow
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
NOISE = (  # of TensorFlow, once a process, whatever is run
    "oneDNN custom operations are on",
    "oneDNN supports DT_HALF only on",
    "All log messages before absl::InitializeLog()",
    "INFO:tensorflow:Assets written to",
)
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class Failure(Exception):
    """A notebook that does not run; the message names it and the cell."""


def chosen(names: list[str]) -> list[Path]:
    """The notebooks that are named, in their order."""
    notebooks = sorted(NOTEBOOKS.glob("*.ipynb"))
    unknown = [name for name in names if not any(name in str(path) for path in notebooks)]
    if unknown:
        stems = ", ".join(path.stem for path in notebooks)
        raise Failure(f"there is no notebook {unknown[0]!r}; give a part of one of these names: {stems}")
    return [path for path in notebooks if not names or any(name in str(path) for name in names)]


def environment(home: Path) -> dict[str, str]:
    """Of the kernel, and of the commands that its cells start: this tree, and this environment's programs."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "jupyter"),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "NO_COLOR": "1",
        # Keras 3.12 and newer warn of the default of `fit`.
        "PYTHONWARNINGS": "ignore:`shuffle=True` was passed",
    }


def execute(path: Path) -> Any:
    """Returns the notebook with the outputs of its cells, which ran in an empty directory.

    Raises:
      Failure: A cell failed.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="tutorial-") as directory:
        home, work = Path(directory, "home"), Path(directory, "work")
        home.mkdir()
        work.mkdir()
        client = NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": str(work)}},
            record_timing=False,
            coalesce_streams=True,
            extra_arguments=["--log-level=ERROR"],
        )
        try:
            client.execute(env=environment(home))
        except (CellExecutionError, CellTimeoutError, DeadKernelError, RuntimeError) as error:
            raise Failure(f"{path.name}, {place(notebook)}:\n{COLOURS.sub('', str(error))}") from None
        clean(notebook, str(work))
    return notebook


def place(notebook: Any) -> str:
    """Where execution has stopped: the number of the first code cell that failed or has not run."""
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "code":
            failed = any(output.output_type == "error" for output in cell.outputs)
            if failed or cell.execution_count is None:
                return f"cell {number}"
    return "after its last cell"


def clean(notebook: Any, work: str) -> None:
    """Takes metadata and noise out, and the working directory out of what was printed."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        for output in cell.get("outputs", ()):
            if "text" in output:
                lines = output.text.replace(work, "~/tutorial").splitlines(keepends=True)
                output.text = "".join(line for line in lines if not any(noise in line for noise in NOISE))
            if "metadata" in output:
                output.metadata = nbformat.from_dict({})
            data = output.get("data", {})
            if "text/plain" in data:
                data["text/plain"] = data["text/plain"].replace(work, "~/tutorial")
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("text") != ""]


def main() -> int:
    """The exit status is 1 when a notebook fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part of a notebook's name; none: all")
    parser.add_argument("--write", action="store_true", help="store the outputs in the notebooks")
    options = parser.parse_args()
    try:
        for path in chosen(options.names):
            needed = NEEDS.get(path.stem, "tensorflow")
            if importlib.util.find_spec(needed) is None:
                print(f"{path.stem}: left out, {sys.executable} has no {needed}", flush=True)
                continue
            begin = time.monotonic()
            notebook = execute(path)
            if options.write:
                nbformat.validate(notebook)
                nbformat.write(notebook, path)
            print(f"{path.stem}: {time.monotonic() - begin:.0f} s", flush=True)
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
