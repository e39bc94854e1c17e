"""Writes what is linked into a wheel's libraries, in CycloneDX's JSON, for its .dist-info/sboms (PEP 770).

    sbom.py CMAKE_CACHE FILE

Versions are those of the headers that the build has used.
"""

import json
import re
import subprocess
import sys
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# name: variable of CMake's cache, header, what the header says of its version, licence, package URL
LINKED = {
    "boost-unordered": (
        "boost_headers_INCLUDE_DIR", "boost/version.hpp", (r'BOOST_LIB_VERSION "(\w+)"',), "BSL-1.0",
        "pkg:github/boostorg/boost@boost-{}",
    ),
    "nlohmann-json": (
        "nlohmann_json_INCLUDE_DIR", "nlohmann/detail/abi_macros.hpp",
        (r"VERSION_MAJOR (\d+)", r"VERSION_MINOR (\d+)", r"VERSION_PATCH (\d+)"), "MIT",
        "pkg:github/nlohmann/json@v{}",
    ),
    "hiredis": (
        "HIREDIS_INCLUDE_DIR", "hiredis/hiredis.h",
        (r"HIREDIS_MAJOR (\d+)", r"HIREDIS_MINOR (\d+)", r"HIREDIS_PATCH (\d+)"), "BSD-3-Clause",
        "pkg:github/redis/hiredis@v{}",
    ),
    "xxHash": (
        "XXHASH_INCLUDE_DIR", "xxhash.h",
        (r"VERSION_MAJOR\s+(\d+)", r"VERSION_MINOR\s+(\d+)", r"VERSION_RELEASE\s+(\d+)"), "BSD-2-Clause",
        "pkg:github/Cyan4973/xxHash@v{}",
    ),
}  # fmt: skip


def version_of(folder: str, header: str, patterns: tuple[str, ...]) -> str:
    """What a header says, such as 1.2.13."""
    text = (Path(folder) / header).read_text(errors="replace")
    found = [re.search(pattern, text) for pattern in patterns]
    if not all(found):
        raise SystemExit(f"error: {folder}/{header} does not say its version. Remedy: correct cmake/sbom.py")
    return ".".join(match.group(1) for match in found if match).replace("_", ".")


def main() -> None:
    """Writes the file."""
    cache = Path(sys.argv[1]).read_text()
    components = []
    for name, (variable, header, patterns, licence, url) in LINKED.items():
        folder = re.search(rf"^{variable}:PATH=(.*)$", cache, re.MULTILINE)
        if folder is None:
            raise SystemExit(f"error: {sys.argv[1]} has no {variable}. Remedy: correct cmake/sbom.py")
        version = version_of(folder.group(1), header, patterns)
        components.append((name, version, licence, url.format(version)))
    compiler = subprocess.run(["g++", "-dumpfullversion"], check=True, capture_output=True, text=True)
    gcc = compiler.stdout.strip()
    components.append(("libstdc++", gcc, "GPL-3.0-or-later WITH GCC-exception-3.1", f"pkg:generic/gcc@{gcc}"))
    own = re.findall(r'__version__ = "([^"]+)"', (ROOT / "het_tf" / "_version.py").read_text())[0]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {"component": {"type": "library", "name": "het_tf", "version": own}},
        "components": [
            {
                "type": "library",
                "name": name,
                "version": number,
                "purl": url,
                "licenses": [{"expression": terms}],
            }
            for name, number, terms, url in components
        ],
    }
    Path(sys.argv[2]).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
