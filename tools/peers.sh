#!/usr/bin/env bash
# Makes the environments of the systems that the benchmarks compare with: each has its own under
# .peers/, since none can live beside the TensorFlow that het_tf is tested with.
#   tools/peers.sh            makes what is missing
#   tools/peers.sh --check    and trains a table for a few steps in each
#   PEERS=DIR PYTHON=python3.11
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
peers=${PEERS:-$root/.peers}
python=${PYTHON:-$(command -v python3.11 || echo python3)}
mkdir -p "$peers"

# make_peer NAME PIP-ARGUMENTS... [-- PIP-ARGUMENTS...]: one pip call for each list; a finished one is kept.
make_peer() {
  local name=$1 venv=$peers/$1 stamp call=()
  shift
  stamp=$venv/.made-$(echo "$@" | sha256sum | cut -c1-12)
  [ -e "$stamp" ] && return
  echo "==> $venv: $*"
  "$python" -m venv --clear "$venv"
  for word in "$@" --; do
    if [ "$word" = -- ]; then
      "$venv/bin/python" -m pip install --disable-pip-version-check "${call[@]}" >"$peers/$name.log" 2>&1 || {
        tail -n 20 "$peers/$name.log" >&2
        echo "error: pip could not install ${call[*]}; the whole output is in $peers/$name.log" >&2
        exit 1
      }
      call=()
    else
      call+=("$word")
    fi
  done
  touch "$stamp"
}

# TFRA 0.8.1 was built for TF 2.16 and Keras 2; tf-keras asks for the GPU wheel, hence --no-deps.
make_peer tfra tensorflow-cpu==2.16.2 tensorflow-recommenders-addons==0.8.1 'setuptools<81' \
  -- --no-deps tf-keras==2.16.0
# A CPU build of PyTorch, where pip's index serves one; a GPU build works too.
make_peer fbgemm torch==2.13.0 numpy fbgemm-gpu-cpu==1.8.0

if [ "${1:-}" = --check ]; then
  echo "==> TFRA: a cuckoo-hash table trains"
  TF_USE_LEGACY_KERAS=1 TF_CPP_MIN_LOG_LEVEL=3 "$peers/tfra/bin/python" "$root/tools/peer_check_tfra.py"
  echo "==> FBGEMM: a table in host memory trains"
  "$peers/fbgemm/bin/python" "$root/tools/peer_check_fbgemm.py"
fi
