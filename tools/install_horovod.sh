#!/usr/bin/env bash
# Builds and installs Horovod into a virtual environment that already holds TensorFlow.
#   tools/install_horovod.sh VENV
# pip keeps the wheel that it builds, so the second environment on a machine gets it for free. pip
# does not know, however, which TensorFlow that wheel was built for; so the import is tested, and a
# wheel that does not fit is built afresh.
set -euo pipefail
venv=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
version=0.28.1

# Horovod's CMakeLists needs a CMake older than 4 and its setup.py pkg_resources (setuptools < 81);
# both are in requirements/build.txt, and the environment's own bin directory must come first.
export PATH="$venv/bin:$PATH"
export HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
export HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 MAKEFLAGS=-j2
# Horovod's xla_mpi_ops.cc includes XLA headers that moved after TensorFlow 2.18. Without CUDA all code in that
# file is switched off, so empty headers will do. A GPU build of Horovod needs another way.
export CXXFLAGS="-I$root/tools/horovod_shims ${CXXFLAGS:-}"

install() {
  "$venv/bin/python" -m pip install --disable-pip-version-check --no-build-isolation \
      --no-binary horovod "$@" "horovod==$version"
}
fits() { "$venv/bin/python" -c "import horovod.tensorflow" 2>&1; }

install || {
  echo "error: Horovod $version did not build (above). Remedy: apt-get install g++ cmake; pip install -r requirements/build.txt" >&2
  exit 1
}
if ! fits >/dev/null; then
  echo "The cached Horovod was built for another TensorFlow; building it again."
  install --force-reinstall --no-deps --no-cache-dir
  if ! reason=$(fits); then
    echo "$reason" | tail -5 >&2
    echo "error: Horovod $version was built but 'import horovod.tensorflow' fails (above). Remedy: rm -r $venv and call make again" >&2
    exit 1
  fi
fi
echo "Horovod $version works with $("$venv/bin/python" "$root/cmake/find_tensorflow.py" | cut -d';' -f1)"
