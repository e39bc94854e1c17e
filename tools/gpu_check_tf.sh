#!/usr/bin/env bash
# Runs the Python tests of caches on a GPU on this machine's GPU: TensorFlow, Keras and het_tf together. What the
# GPU computes by itself is checked by tools/gpu_check.sh.
#
#   tools/gpu_check_tf.sh              build for this GPU and this TensorFlow, and test: a few minutes
#   tools/gpu_check_tf.sh --host       with the host in the GPU's place (any TensorFlow): checks this script
#
#   --python P     a Python with a TensorFlow that has CUDA, with cmake, ninja and pytest (.venv/bin/python, else
#                  python3); `make setup TENSORFLOW=tensorflow`, and then .venv/bin/python -m pip install
#                  "tensorflow[and-cuda]" (the version that is there), makes one
#   HET_TEST_SERVER  in the environment: another server than redis-server; without one its tests are left out
#   --jobs N       compilers at a time (the machine's cores)
#
# Exit status: 0 all well, 1 a test failed, 2 it could not be tried.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 2

say() { printf '%s\n' "gpu_check_tf: $*"; }
die() {
  printf '%s\n' "gpu_check_tf: $*" >&2
  exit 2
}

host=0 python="" jobs="$(nproc 2>/dev/null || echo 2)"
while [ $# -gt 0 ]; do
  case "$1" in
    --host) host=1 ;;
    --python | --jobs)
      [ $# -ge 2 ] || die "$1 takes an argument"
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    -h | --help)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
      exit 0
      ;;
    *) die "unknown argument $1; see --help" ;;
  esac
  shift
done
if [ -z "$python" ]; then
  [ -x .venv/bin/python ] && python=.venv/bin/python || python="$(command -v python3)" || die "there is no python3"
fi
python="$(command -v "$python")" || die "there is no such Python; see --help"

# --- what there is here
export TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-2}"
found="$("$python" - <<'EOF'
import tensorflow as tf
gpus = tf.config.list_physical_devices("GPU")
capability = tf.config.experimental.get_device_details(gpus[0]).get("compute_capability", (0, 0)) if gpus else (0, 0)
name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "") if gpus else "none"
print(tf.__version__, int(tf.test.is_built_with_cuda()), len(gpus), "%d%d" % capability, name, sep="|")
EOF
)" || die "$python has no TensorFlow that imports. Remedy: make setup TENSORFLOW=tensorflow; see --help"
IFS='|' read -r version cuda gpus arch name <<<"$(tail -n 1 <<<"$found")"
say "TensorFlow $version of $python, $gpus GPU(s), the first: $name"
if [ "$host" = 0 ]; then
  [ "$cuda" = 1 ] || die "this TensorFlow is built without CUDA. Remedy: $python -m pip install 'tensorflow[and-cuda]==$version'"
  [ "$gpus" != 0 ] || die "TensorFlow sees no GPU. Remedy: see what nvidia-smi says; --host tests without one"
fi

# --- build
PATH="$(dirname "$python"):$PATH"
build=build/gpu_tf
options=(-G Ninja -DCMAKE_BUILD_TYPE=Release -DHET_INSTALL_IN_TREE=ON "-DPython3_EXECUTABLE=$python")
targets=(het_plugin)
if [ "$host" = 1 ]; then
  name="the host in the GPU's place"
  options+=(-DHET_BUILD_TESTS=ON -DHET_CUDA=OFF)
  targets+=(het_poisoned_gpu het_cuda_host)
else
  options+=(-DHET_BUILD_TESTS=OFF -DHET_CUDA=ON "-DHET_CUDA_ARCH=$arch")
fi
cmake -S . -B "$build" "${options[@]}" || die "cmake failed (above)"
cmake --build "$build" --target "${targets[@]}" -j "$jobs" || die "the build failed (above)"

# --- test
[ "$host" = 1 ] || export HET_TEST_GPU=real
unset HET_DEVICE_LIBRARY
HET_TEST_BUILD="$PWD/$build" "$python" -m pytest -q -rA tests/ext/gpu/test_gpu_cache.py
status=$?
[ "$status" = 0 ] && say "all well on $name with TensorFlow $version" || say "failed on $name with TensorFlow $version"
[ "$status" -le 1 ] && exit "$status" || exit 2
