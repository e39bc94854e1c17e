#!/usr/bin/env bash
# Builds the cache for the GPU of this machine and checks it: needs nvcc, and what `make setup` installs.
#
#   tools/gpu_check.sh                 build, check, measure: a few minutes
#   tools/gpu_check.sh --build-only    stop after building; needs no GPU
#   tools/gpu_check.sh --host          everything, with the host in the GPU's place; needs no nvcc
#   tools/gpu_check.sh --prebuilt      build nothing: run what --build-only --arch N has made in build/gpu, here or
#                                      on another machine; needs neither nvcc nor a compiler
#
#   --arch N       compute capability to build for, such as 90; without it that of the GPU (75 where there is none)
#   --schedules N  of each kind, in thousandths of what `make test-exact` plays (50)
#   --jobs N       compilers at a time (the machine's cores)
#
# What is run, what matters most first: random schedules of the protocol with caches on the device
# (tests/core/protocol/schedules_test.cc: every optimizer, whose rows equal those of one process, then every
# mode); benchmarks/gpu_cache, twice; some schedules under compute-sanitizer's memcheck, initcheck and
# synccheck (its racecheck is about shared memory, which no kernel has). Results go to the folder OUT
# (build/gpu/results), the table of them comes last. Exit status: 0 all well, 1 something is wrong, 2 it could
# not be tried.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 2

say() { printf '%s\n' "gpu_check: $*"; }
die() {
  printf '%s\n' "gpu_check: $*" >&2
  exit 2
}

host=0 build_only=0 prebuilt=0 arch="" schedules=50 jobs="$(nproc 2>/dev/null || echo 2)"
while [ $# -gt 0 ]; do
  case "$1" in
    --host) host=1 ;;
    --build-only) build_only=1 ;;
    --prebuilt) prebuilt=1 ;;
    --arch | --schedules | --jobs)
      [ $# -ge 2 ] && [[ "$2" =~ ^[0-9]+$ ]] || die "$1 takes a number"
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
[ "$schedules" -le 999 ] || die "--schedules is $schedules; give thousandths, at most 999"
[ "$prebuilt$host$build_only" = 100 ] || [ "$prebuilt" = 0 ] || die "--prebuilt goes without --host and --build-only"

# --- what there is here
nvcc="" gpu="none" sanitizer=""
if [ "$host" = 0 ]; then
  for candidate in "${NVCC:-}" "$(command -v nvcc)" "${CUDA_HOME:-}/bin/nvcc" /usr/local/cuda/bin/nvcc; do
    if [ -x "$candidate" ]; then
      nvcc="$candidate"
      break
    fi
  done
  [ -n "$nvcc" ] || [ "$prebuilt" = 1 ] ||
    die "there is no nvcc. Remedy: install the CUDA toolkit, or set NVCC; --host checks without a GPU"
  if found="$(nvidia-smi --query-gpu=compute_cap,driver_version,name --format=csv,noheader 2>/dev/null | head -n 1)" &&
    [ -n "$found" ]; then
    gpu="$found"
    [ -n "$arch" ] || arch="$(cut -d, -f1 <<<"$found" | tr -d '. ')"
  elif [ "$build_only" = 0 ]; then
    die "nvidia-smi finds no GPU here. --build-only builds without one; --host runs everything on the host"
  fi
  [ -n "$arch" ] || arch=75
  known="$("${nvcc:-true}" --list-gpu-arch 2>/dev/null | tr '\n' ' ')"
  [[ "$prebuilt" = 1 || " $known" == *" compute_$arch "* ]] ||
    die "nvcc ($nvcc) does not know compute capability $arch; it knows: $known. Remedy: a newer CUDA toolkit, or --arch"
  # As they are called by hand: nvcc may be a link that leads to where its sanitizer is.
  for candidate in "$(command -v compute-sanitizer)" "$(dirname "$(readlink -f "${nvcc:-/usr/local/cuda/bin/nvcc}")")/compute-sanitizer" \
    "${CUDA_HOME:-}/bin/compute-sanitizer" /usr/local/cuda/bin/compute-sanitizer; do
    if [ -x "$candidate" ]; then
      sanitizer="$candidate"
      break
    fi
  done
fi

# --- build
folder=build/gpu
results="${OUT:-$folder/results}"
mkdir -p "$results" || die "cannot make $results"
target=het_cuda
[ "$host" = 0 ] || target=het_cuda_host
library="$folder/lib$target.so"
say "nvcc ${nvcc:-not used}, GPU (capability, driver, name) $gpu, compute-sanitizer ${sanitizer:-none}"
if [ "$prebuilt" = 0 ]; then
  say "building $library and the tests in $folder; $results/build.log has the compiler's words"
  options=(-DHET_CUDA=OFF)
  [ "$host" = 1 ] || options=(-DHET_CUDA=ON -DHET_CUDA_ARCH="$arch" -DHET_NVCC="$nvcc" -DHET_WERROR=ON)
  cmake --preset release -B "$folder" -DHET_INSTALL_IN_TREE=OFF -DPython3_EXECUTABLE="$PWD/.venv/bin/python" \
    "${options[@]}" >"$results/build.log" 2>&1 &&
    cmake --build "$folder" -j "$jobs" --target "$target" protocol cuda_cache >>"$results/build.log" 2>&1 ||
    die "the build failed: $results/build.log says why. Remedy: make setup"
fi
for file in "$library" "$folder/tests/protocol" "$folder/tests/cuda_cache"; do
  [ -e "$file" ] || die "there is no $file. Remedy: --build-only --arch N first, and bring $folder along"
done
if [ "$build_only" = 1 ]; then
  say "built $library, protocol and cuda_cache in $folder/tests; nothing was run"
  exit 0
fi

# --- run
names=() outcomes=() wrong=0
run() { # NAME LOG COMMAND...
  local name="$1" log="$results/$2" begin=$SECONDS outcome="well"
  shift 2
  say "$name: $*"
  if ! "$@" >"$log" 2>&1; then
    outcome="WRONG, see $log"
    wrong=1
    tail -n 25 "$log"
  fi
  names+=("$name")
  outcomes+=("$outcome ($((SECONDS - begin)) s)")
}
leave_out() { # NAME REASON
  names+=("$1")
  outcomes+=("NOT RUN: $2")
}

play=(env "HET_DEVICE_LIBRARY=$library")
few="HET_TEST_SCALE=$(printf '0.%03d' "$schedules")"
protocol=("$folder/tests/protocol" --gtest_brief=1)
run "every optimizer" every_optimizer.log "${play[@]}" "$few" "${protocol[@]}" --gtest_filter='*/EveryOptimizerOnADevice'
for turn in 1 2; do
  run "measure, turn $turn" "cuda_cache_$turn.txt" "$folder/tests/cuda_cache" "$library" --json "$results/cuda_cache_$turn.json"
done
run "every mode" every_mode.log "${play[@]}" "$few" "${protocol[@]}" --gtest_filter='*/EveryMode'
for tool in memcheck initcheck synccheck; do
  if [ -n "$sanitizer" ]; then
    run "$tool" "$tool.log" "${play[@]}" HET_TEST_SCALE=0.005 "$sanitizer" --tool "$tool" --error-exitcode 9 \
      "${protocol[@]}" --gtest_filter='*/EveryOptimizerOnADevice'
  elif [ "$host" = 1 ]; then
    leave_out "$tool" "compute-sanitizer is for a GPU"
  else
    leave_out "$tool" "there is no compute-sanitizer beside nvcc"
  fi
done

# --- the table
{
  printf '\nGPU (capability, driver, name): %s\n\n' "$gpu"
  for i in "${!names[@]}"; do printf '  %-26s %s\n' "${names[$i]}" "${outcomes[$i]}"; done
  printf '\n'
  cat "$results/cuda_cache_1.txt" "$results/cuda_cache_2.txt"
} | tee "$results/gpu_check.txt"
say "results are in $results"
exit "$wrong"
