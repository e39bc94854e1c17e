"""Checks the Markdown files: every relative link leads somewhere, every `make x` names a target."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)(?:#[^)]*)?\)")
MAKE = re.compile(r"(?:`|^\s*\$? ?)make ([a-z][a-z0-9-]*)", re.MULTILINE)


def main() -> int:
    """Prints one line for each fault; the exit status is their presence."""
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    documents = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    faults = []
    for name in documents:
        text = (ROOT / name).read_text()
        for link in LINK.findall(text):
            if not link.startswith(("http://", "https://", "mailto:")):
                base = ROOT if link.startswith("/") else (ROOT / name).parent
                if not (base / link.lstrip("/")).exists():
                    faults.append(f"{name}: the link to {link} leads nowhere")
        faults += [f"{name}: there is no `make {t}`" for t in MAKE.findall(text) if t not in targets]
    print("\n".join(faults) or f"{len(documents)} documents: links and make targets exist")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
