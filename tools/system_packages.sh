#!/usr/bin/env bash
# Installs the Debian packages that the native build needs. When all are there it needs neither root
# nor the network.
#   tools/system_packages.sh PYTHON
set -euo pipefail
python=$1
packages=(g++ make cmake ninja-build ccache libgtest-dev libgmock-dev libhiredis-dev libxxhash-dev redis-server openssl valgrind)

if ! command -v "$python" >/dev/null; then
  echo "error: $python is missing. Remedy: apt-get install python3.11 python3.11-venv, or make PYTHON=/path/to/python3.11" >&2
  exit 1
fi
# Debian ships venv and pip's bootstrap apart from Python.
if ! "$python" -c "import ensurepip, venv" 2>/dev/null; then
  packages+=("python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv")
fi

if ! command -v dpkg-query >/dev/null; then
  for tool in g++ cmake ninja; do
    command -v $tool >/dev/null || {
      echo "error: $tool is missing, and this is no Debian or Ubuntu system. Remedy: install your system's packages for ${packages[*]}" >&2
      exit 1
    }
  done
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  # Status 'installed' exactly: a removed package may still be known by its configuration files.
  dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "error: Debian packages are missing and this user may not install them. Remedy, as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  sudo=(sudo)
fi
echo "installing ${missing[*]}"
"${sudo[@]}" apt-get update -qq || true  # an old list may do
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" || {
  echo "error: apt-get could not install ${missing[*]}. Remedy: see apt's message above; then call make again" >&2
  exit 1
}
