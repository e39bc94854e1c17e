#!/usr/bin/env bash
# Makes (or repairs) a virtual environment and installs requirement files into it, in their order.
#   tools/make_venv.sh PYTHON VENV REQUIREMENTS...
set -euo pipefail
python=$1 venv=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)

"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
  echo "error: $python is $("$python" -V); het_tf's pinned packages need Python 3.11. Remedy: make PYTHON=/path/to/python3.11" >&2
  exit 1
}
# An environment whose Python has gone away is made anew.
"$venv/bin/python" -c "" 2>/dev/null || "$python" -m venv --clear "$venv"

for requirements in "$@"; do
  "$venv/bin/python" -m pip install --disable-pip-version-check -r "$requirements" || {
    echo "error: pip could not install $requirements (above). Remedy: check the network or pip's index, then call make again" >&2
    exit 1
  }
done
# Python finds het_tf in this tree, from every directory; the shell its commands, which are those of pip.
# An environment of another tree stays that tree's: here it only builds.
pth=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/het_tf_tree.pth
other=$(cat "$pth" 2>/dev/null || true)
if [ -n "$other" ] && [ "$other" != "$root" ] && [ -e "$other/het_tf/__init__.py" ]; then
  echo "$venv is the environment of $other, and stays so; rm $pth before this to make it that of $root" >&2
else
  echo "$root" >"$pth"
fi
"$venv/bin/python" - "$root/pyproject.toml" <<'EOF'
import sys
import tomllib
from pathlib import Path

for name, place in tomllib.loads(Path(sys.argv[1]).read_text())["project"]["scripts"].items():
    module, function = place.split(":")
    script = Path(sys.prefix, "bin", name)
    call = f"import sys\nfrom {module} import {function}\nsys.exit({function}())\n"
    script.write_text(f"#!{sys.executable}\n{call}")
    script.chmod(0o755)
EOF
