"""Which symbols does the plugin take out of TensorFlow, and which TensorFlow lacks one of them?

    tools/tf_symbols.py                        # libhet_{tf,inputs}.so in het_tf/lib, this Python's TensorFlow
    tools/tf_symbols.py --wheel FILE           # the plugins in a wheel of het_tf
    tools/tf_symbols.py --tensorflow all       # every supported release (downloads 270 MB for each)
    tools/tf_symbols.py --tensorflow 2.20.0 2.19.1

The plugin may take functions of TensorFlow's C API (TF_*), and nothing else that is not of glibc, libstdc++
or libgcc: TensorFlow exports zlib and more, and a symbol that is taken from there by accident is an error.
Ends with 1 where a symbol is missing.
"""

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = ("2.16.2", "2.17.1", "2.18.1", "2.19.1", "2.20.0", "2.21.0")
FRAMEWORK = "tensorflow/libtensorflow_framework.so.2"
SYSTEM = re.compile(r"\(?(GLIBC|GLIBCXX|CXXABI|GCC)_")


def symbols(library: Path) -> tuple[set[str], set[str]]:
    """Names that a library takes from elsewhere, those of the system left out, and names that it exports."""
    dump = subprocess.run(["objdump", "-T", library], check=True, capture_output=True, text=True).stdout
    taken, exported = set(), set()
    for line in dump.splitlines():
        words = line.split()
        if len(words) < 5 or not re.fullmatch("[0-9a-f]{16}", words[0]):
            continue
        if "*UND*" not in words:
            exported.add(words[-1])
        elif SYSTEM.search(line) is None and " w " not in line:  # weak: may be missing
            taken.add(words[-1])
    return taken, exported


def unpacked(wheel: Path, pattern: str, directory: Path) -> list[Path]:
    """The files of a wheel whose names match."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(pattern, name)]
        return [Path(archive.extract(name, directory)) for name in names]


def framework(release: str, directory: Path) -> Path:
    """TensorFlow's library, out of the wheel of a release for a Python that it supports."""
    python = "3.11"
    command = [
        sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
        "--python-version", python, "-d", str(directory), f"tensorflow-cpu=={release}",
    ]  # fmt: skip
    subprocess.run(command, check=True)
    wheel = next(directory.glob(f"tensorflow_cpu-{release}-*.whl"))
    library = unpacked(wheel, re.escape(FRAMEWORK), directory)[0]
    wheel.unlink()
    return library


def main() -> None:
    """Prints a line for each TensorFlow."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="a wheel of het_tf")
    parser.add_argument(
        "--tensorflow", nargs="+", metavar="RELEASE", help="releases, or all of those supported"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="het_symbols_") as place:
        plugins = [ROOT / "het_tf" / "lib" / f"libhet_{name}.so" for name in ("tf", "inputs")]
        if arguments.wheel:
            plugins = unpacked(arguments.wheel, r"het_tf/lib/(.*/)?libhet_(tf|inputs)\.so", Path(place))
        taken = set().union(*(symbols(plugin)[0] for plugin in plugins))
        if not taken:
            raise SystemExit("error: no plugin, or one that takes nothing. Remedy: make build")
        foreign = sorted(name for name in taken if not name.startswith("TF_"))
        print(f"{len(taken)} symbols are taken from TensorFlow's C API")
        bad = bool(foreign)
        if foreign:
            print(f"error: these are not of it: {', '.join(foreign)}. Remedy: link their library statically")
        releases = arguments.tensorflow or ["installed"]
        for release in SUPPORTED if releases == ["all"] else releases:
            if release == "installed":
                package = importlib.util.find_spec("tensorflow")
                if package is None or package.origin is None:
                    raise SystemExit(
                        "error: this Python has no TensorFlow. Remedy: run it by .venv/bin/python"
                    )
                library = Path(package.origin).parent / Path(FRAMEWORK).name
            else:
                library = framework(release, Path(place))
            missing = sorted(taken - symbols(library)[1] - set(foreign))
            print(f"TensorFlow {release}: {'lacks ' + ', '.join(missing) if missing else 'has all of them'}")
            bad = bad or bool(missing)
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
