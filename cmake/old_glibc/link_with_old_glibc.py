"""Makes what a library is linked with so that it runs on an older glibc than the one here.

    link_with_old_glibc.py 2.28 DIRECTORY

A program asks for each function of glibc in the newest version of the library that it is linked with.
glibc keeps the older versions, but a linker takes no choice. So this writes libc.so.6, libm.so.6,
libpthread.so.0 and libdl.so.2 without code: every symbol of this machine's glibc in the newest version that
is not above the given one, in the file where that glibc had it. Functions that are newer are not in them, and
the linker names those that are missing; compat.o has the ones that we need (compat.c).
"""

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
# A line of `objdump -T`: value, flags of which the last is O for data, section, size, version, name.
LINE = re.compile(
    r"^[0-9a-f]+ .{6}(?P<kind>.) (?P<section>\S+)\s+[0-9a-f]+\s+"
    r"\(?(?P<version>GLIBC_[0-9.]+)\)?\s+(?P<name>\S+)$"
)
# Until 2.34 these were libraries of their own; a symbol that moved has its old version and one of 2.34.
MOVED = ((re.compile(r"^_?_?dl"), "libdl.so.2"), (re.compile(r"."), "libpthread.so.0"))


def number(version: str) -> tuple[int, ...]:
    """GLIBC_2.2.5 -> (2, 2, 5)."""
    return tuple(int(part) for part in version.removeprefix("GLIBC_").split("."))


def output(*command: str) -> str:
    """What a program prints, in English."""
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def symbols(library: str) -> dict[str, dict[str, bool]]:
    """{name: {version: is data}} of a library of this machine."""
    path = output("cc", f"-print-file-name={library}").strip()
    found: dict[str, dict[str, bool]] = defaultdict(dict)
    for line in output("objdump", "-T", path).splitlines():
        match = LINE.match(line)
        if match and match["section"] not in ("*UND*", "*ABS*"):
            found[match["name"]][match["version"]] = match["kind"] == "O"
    return found


def write_stub(directory: Path, library: str, chosen: dict[str, tuple[str, bool]]) -> None:
    """Links one library without code."""
    code = [".text"]
    versions = defaultdict(list)
    for index, (name, (version, is_data)) in enumerate(sorted(chosen.items())):
        kind = "object" if is_data else "function"
        code += [f".globl s{index}", f".type s{index}, @{kind}", f"s{index}: .quad 0", f".size s{index}, 8"]
        code += [f".symver s{index}, {name}@@{version}, remove"]
        versions[version].append(name)
    source, script = directory / f"{library}.s", directory / f"{library}.map"
    source.write_text("\n".join(code) + "\n")
    script.write_text("".join(f"{version} {{}};\n" for version in sorted(versions, key=number)))
    subprocess.run(
        ["cc", "-shared", "-nostdlib", f"-Wl,-soname,{library}", f"-Wl,--version-script={script}",
         "-o", directory / library, source],
        check=True,
    )  # fmt: skip


def main() -> None:
    """Writes the libraries and compat.o."""
    newest, directory = number(sys.argv[1]), Path(sys.argv[2])
    directory.mkdir(parents=True, exist_ok=True)
    chosen: dict[str, dict[str, tuple[str, bool]]] = defaultdict(dict)
    for library in ("libc.so.6", "libm.so.6"):
        for name, versions in symbols(library).items():
            old = [version for version in versions if number(version) <= newest]
            if old:
                version = max(old, key=number)
                moved = library == "libc.so.6" and "GLIBC_2.34" in versions
                file = next(file for of, file in MOVED if of.match(name)) if moved else library
                chosen[file][name] = (version, versions[version])
    for library, of_library in chosen.items():
        write_stub(directory, library, of_library)
    compile_compat = ["cc", "-O2", "-fPIC", "-c", HERE / "compat.c", "-o", directory / "compat.o"]
    subprocess.run(compile_compat, check=True)


if __name__ == "__main__":
    main()
