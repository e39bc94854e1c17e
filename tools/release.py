"""Makes what is published of a version, and with --upload publishes it (docs/releasing.md).

    python tools/release.py VERSION --wheel FOLDER --to FOLDER [--image NAME] [--upload]

`make release` calls it behind `make release-check`, which has tried the wheel with the newest TensorFlow.

1. The version is that of het_tf/_version.py and of CHANGELOG.md's first section, the tree is committed, and
   the tag is free. Without --upload a fault is told at the end; with it, it ends the command.
2. The wheel, which is one for all TensorFlows, is tried with the others that it is tested with.
3. Writes wheel, SBOM, notes (the section of the changelog) and SHA256SUMS; builds the image where Docker
   answers.
4. With --upload: the wheel to the package index, the image to its registry, and the tag to origin. Logins are
   those of twine, docker and git.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import container

ROOT = Path(__file__).resolve().parent.parent
OTHERS = ("tf216.txt", "tf220.txt")  # of requirements/; `make release-check` has tried tensorflow.txt
RELEASE_TOOLS = Path(sys.executable).parent


def main() -> int:
    """Runs the steps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version")
    parser.add_argument("--wheel", type=Path, required=True, help="folder with the wheel")
    parser.add_argument("--to", type=Path, required=True, help="folder for what is published; made anew")
    parser.add_argument("--image", default="het-ps", help="name of the server's image, with its registry")
    parser.add_argument("--python", default=sys.executable, help="the Python 3.11 of tools/release_check.py")
    parser.add_argument("--upload", action="store_true", help="publish it")
    options = parser.parse_args()
    faults = unready(options.version)
    if faults and options.upload:
        raise SystemExit("\n".join(f"error: {fault}" for fault in faults))
    wheel = options.wheel / f"het_tf-{options.version}-py3-none-manylinux_2_28_x86_64.whl"
    if not wheel.exists():
        raise SystemExit(f"error: there is no {wheel}. Remedy: make release VERSION={version_of_tree()}")
    parts = sbom(wheel)  # of the environment that `make release-check` has left
    for name in OTHERS:
        say(f"the wheel with requirements/{name}")
        run(options.python, ROOT / "tools/release_check.py", wheel, "--venv", ROOT / "build/installed",
            "--constraints", ROOT / "requirements" / name, "--no-container")  # fmt: skip
    target = options.to
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    shutil.copy(wheel, target)
    say("SBOM, notes, checksums")
    (target / f"het_tf-{options.version}.cdx.json").write_text(json.dumps(parts, indent=1) + "\n")
    (target / "NOTES.md").write_text(section()[1] + "\n")
    files = sorted(target.iterdir())
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (target / "SHA256SUMS").write_text("".join(sums))
    run(RELEASE_TOOLS / "twine", "check", "--strict", target / wheel.name)
    image = build_image(wheel, f"{options.image}:{options.version}")
    uploads = [[str(RELEASE_TOOLS / "twine"), "upload", str(target / wheel.name)]]
    uploads += [["docker", "push", image]] if image else []
    uploads += [["git", "tag", "-a", f"v{options.version}", "-m", f"het_tf {options.version}"]]
    uploads += [["git", "push", "origin", f"v{options.version}"]]
    print("".join(sums), end="")
    for command in uploads:
        if options.upload:
            run(*command)
        else:
            print(f"    not run: {shlex.join(command)}")
    if not options.upload:
        print(
            "\n".join(f"    to do before: {fault}" for fault in faults)
            or f"{target} is ready: UPLOAD=yes publishes it"
        )
    return 0


def say(what: str) -> None:
    """Tells what begins."""
    print(f"==> {what}", flush=True)


def run(*command: object) -> None:
    """Runs a command and shows what it prints; its failure ends the release."""
    words = [str(word) for word in command]
    if subprocess.run(words, cwd=ROOT, check=False).returncode != 0:
        raise SystemExit(f"error: {shlex.join(words)[:200]} failed (above)")


def output(*command: object) -> str:
    """What a command prints."""
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def version_of_tree() -> str:
    """What het_tf/_version.py says."""
    return re.findall(r'__version__ = "([^"]+)"', (ROOT / "het_tf/_version.py").read_text())[0]


def section() -> tuple[str, str]:
    """The heading and the text of the changelog's first section."""
    text = (ROOT / "CHANGELOG.md").read_text()
    found = re.search(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return (found[1], found[2].strip()) if found else ("", "")


def unready(version: str) -> list[str]:
    """What keeps a version from being published."""
    faults = []
    if version != version_of_tree():
        faults.append(f"het_tf/_version.py says {version_of_tree()}, not {version}")
    heading, _ = section()
    if not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", heading):
        faults.append(f"CHANGELOG.md begins with '## {heading}', not with '## {version} (YYYY-MM-DD)'")
    if changed := output("git", "status", "--porcelain").splitlines():
        faults.append(f"{len(changed)} files are not committed, such as {changed[0][3:]}")
    if output("git", "tag", "--list", f"v{version}").strip():
        faults.append(f"there is a tag v{version} already")
    return faults


def sbom(wheel: Path) -> dict[str, Any]:
    """CycloneDX: the packages that the wheel was tried with, and what is linked into its libraries.

    The first are those of the environment, by cyclonedx-py; the wheel brings the second list (cmake/sbom.py).
    """
    python = ROOT / "build/installed/bin/python"
    pip = [RELEASE_TOOLS / "python", "-m", "pip", "--python", python]
    with tempfile.TemporaryDirectory() as place:
        name = Path(place, "sbom.json")
        output(*pip, "install", "-qq", "--no-deps", "--force-reinstall", wheel)
        output(RELEASE_TOOLS / "cyclonedx-py", "environment", "--of", "JSON", "-o", name, python)
        document: dict[str, Any] = json.loads(name.read_text())
    with zipfile.ZipFile(wheel) as archive:
        (inside,) = [one for one in archive.namelist() if one.endswith("sboms/het_tf.cdx.json")]
        linked = json.loads(archive.read(inside))["components"]
    names = {component["name"] for component in document["components"]}
    if "het_tf" not in {name.replace("-", "_") for name in names} or "tensorflow-cpu" not in {
        name.replace("_", "-") for name in names
    }:
        raise SystemExit(f"error: the SBOM names only {sorted(names)}")
    document["components"] += linked
    own = {"type": "library", "name": "het_tf", "version": version_of_tree()}
    document.setdefault("metadata", {})["component"] = own
    return document


def build_image(wheel: Path, name: str) -> str:
    """Builds the server's image with the wheel's module; returns its name, "" where no Docker answers."""
    if not container.docker_answers():
        print(f"    not run: docker build of {name}, as no Docker answers here")
        return ""
    with tempfile.TemporaryDirectory() as place:
        module = Path(zipfile.ZipFile(wheel).extract("het_tf/lib/het.so", place))
        module.chmod(0o755)
        container.build(module, "-t", name)
    return name


if __name__ == "__main__":
    sys.exit(main())
