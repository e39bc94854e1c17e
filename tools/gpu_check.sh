#!/usr/bin/env bash
# Builds the cache for the GPU of this machine and checks it: needs bash, nvcc and a C++17 compiler; no
# TensorFlow, no CMake, no packages.
#
#   tools/gpu_check.sh                 build, check, measure: a few minutes
#   tools/gpu_check.sh --build-only    stop after building; needs no GPU
#   tools/gpu_check.sh --host          everything, with the host in the GPU's place; needs no nvcc
#   tools/gpu_check.sh --prebuilt      build nothing: run what --build-only --arch N has made in build/gpu, here or
#                                      on another machine; needs no nvcc
#
#   --arch N       compute capability to build for, such as 90; without it that of the GPU (75 where there is none)
#   --seconds N    of random schedules (60)
#   --seed S       of them; without it a fresh one
#   --jobs N       compilers at a time (the machine's cores)
#
# What is run, what matters most first: a few random schedules of device_check (every answer compared with the
# reference's, bit for bit); benchmarks/gpu_cache, twice; schedules with fresh inputs, then with large ones,
# then the library against itself; some under compute-sanitizer's memcheck, initcheck and synccheck (its
# racecheck is about shared memory, which no kernel has). Results go to the folder OUT (build/gpu/results), the
# table of them comes last. Exit status: 0 all well, 1 something is wrong, 2 it could not be tried.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 2

say() { printf '%s\n' "gpu_check: $*"; }
die() {
  printf '%s\n' "gpu_check: $*" >&2
  exit 2
}

host=0 build_only=0 prebuilt=0 arch="" seconds=60 seed="" jobs="$(nproc 2>/dev/null || echo 2)"
while [ $# -gt 0 ]; do
  case "$1" in
    --host) host=1 ;;
    --build-only) build_only=1 ;;
    --prebuilt) prebuilt=1 ;;
    --arch | --seconds | --seed | --jobs)
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
[ -n "$seed" ] || seed="$(date +%s)"
[ "$prebuilt$host$build_only" = 100 ] || [ "$prebuilt" = 0 ] || die "--prebuilt goes without --host and --build-only"

# --- what there is here
cxx="${CXX:-}"
[ -n "$cxx" ] || cxx="$(command -v g++ || command -v c++ || command -v clang++)" || [ "$prebuilt" = 1 ] ||
  die "there is no C++ compiler (g++, c++, clang++). Remedy: install one, or set CXX"
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
mkdir -p "$folder/objects" "$results" || die "cannot make $folder and $results"
cxx_flags=(-std=c++17 -O2 -fPIC -fvisibility=hidden -ffp-contract=off -fno-math-errno -Wall -Wextra -I.)
architectures="sm_$arch"
commands="$folder/commands"
: >"$commands"

# Notes the command for an object that is older than any source; prints the object's path.
object() { # GROUP SOURCE COMMAND...
  local out
  out="$folder/objects/$1_$(tr '/.' '__' <<<"$2").o"
  shift
  local source="$1"
  shift
  if [ ! -e "$out" ] || [ -n "$(find het_tf tests/ext/gpu/device tests/testing/random.h benchmarks/gpu_cache tools/gpu_check.sh -newer "$out" \
    \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name 'nvcc.options' -o -name 'gpu_check.sh' \) \
    -print -quit)" ]; then
    printf '%s\n' "$* -c $source -o $out" >>"$commands"
  fi
  printf '%s\n' "$out"
}

kernels=het_tf/kernels/cuda
# Of the core, what optimizers need; it needs neither Boost nor a JSON library.
core=(het_tf/core/row/optimizer.cc het_tf/core/row/schema.cc het_tf/core/row/initializer.cc het_tf/core/base/alloc.cc
  het_tf/core/row/optimizers/*.cc)
reference_objects=() check_objects=() bench_objects=() library_objects=()
for source in "${core[@]}" tests/ext/gpu/device/reference/*.cc; do
  reference_objects+=("$(object plain "$source" "$cxx" "${cxx_flags[@]}")")
done
for source in tests/ext/gpu/device/check/*.cc; do
  check_objects+=("$(object plain "$source" "$cxx" "${cxx_flags[@]}")")
done
bench_objects=("$(object plain benchmarks/gpu_cache/cuda_cache.cc "$cxx" "${cxx_flags[@]}")"
  "$folder/objects/plain_tests_ext_gpu_device_check_library_cc.o")
if [ "$host" = 1 ]; then
  library="$folder/libhet_cuda_host.so"
  for source in "$kernels"/*.cu; do
    [[ "$source" == */cuda_*.cu ]] && continue
    library_objects+=("$(object host "$source" "$cxx" "${cxx_flags[@]}" -O3 -x c++)")
  done
  for source in tests/ext/gpu/device/host/*.cc; do
    library_objects+=("$(object host "$source" "$cxx" "${cxx_flags[@]}" -O3)")
  done
else
  library="$folder/libhet_cuda.so"
  for source in "$kernels"/*.cu; do
    library_objects+=("$(object "sm$arch" "$source" "$nvcc" -ccbin "$cxx" --options-file "$kernels/nvcc.options" \
      -Werror all-warnings -Xcompiler -Werror "-gencode=arch=compute_$arch,code=sm_$arch" "-DHET_CUDA_ARCHITECTURES='\"$architectures\"'" -I.)")
  done
fi

say "compiler $cxx, nvcc ${nvcc:-not used}, GPU (capability, driver, name) $gpu, compute-sanitizer ${sanitizer:-none}"
if [ "$prebuilt" = 1 ]; then
  for file in "$library" "$folder/libhet_device_reference.so" "$folder/device_check" "$folder/cuda_cache"; do
    [ -e "$file" ] || die "--prebuilt: there is no $file. Remedy: --build-only --arch N first, and bring $folder along"
  done
else
  say "building $(wc -l <"$commands") objects in $folder, $jobs at a time"
  xargs -P "$jobs" -d '\n' -I{} bash -c '{}' <"$commands" || die "a compiler failed; what it said is above"
  "$cxx" -shared -static-libstdc++ -o "$folder/libhet_device_reference.so" "${reference_objects[@]}" ||
    die "the reference could not be linked"
  "$cxx" -static-libstdc++ -o "$folder/device_check" "${check_objects[@]}" -ldl || die "device_check could not be linked"
  "$cxx" -static-libstdc++ -o "$folder/cuda_cache" "${bench_objects[@]}" -ldl || die "cuda_cache could not be linked"
  if [ "$host" = 1 ]; then
    "$cxx" -shared -pthread -o "$library" "${library_objects[@]}" -Wl,--no-undefined \
      -Wl,--version-script=cmake/cuda.map || die "$library could not be linked"
  else
    "$nvcc" -ccbin "$cxx" "-gencode=arch=compute_$arch,code=sm_$arch" -shared -cudart static "${library_objects[@]}" \
      -o "$library" -Xcompiler -static-libstdc++ -Xlinker --no-undefined -Xlinker --version-script=cmake/cuda.map ||
      die "$library could not be linked"
  fi
fi
if [ "$build_only" = 1 ]; then
  say "built $library, $folder/libhet_device_reference.so, $folder/device_check and $folder/cuda_cache; nothing was run"
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

reference="$folder/libhet_device_reference.so"
check=("$folder/device_check" "$library" "$reference" --seed "$seed")
run "a few schedules" device_check_few.log "${check[@]}" --rounds 20
for turn in 1 2; do
  run "measure, turn $turn" "cuda_cache_$turn.txt" "$folder/cuda_cache" "$library" --json "$results/cuda_cache_$turn.json"
done
large=30
[ "$host" = 0 ] || large=4
run "random schedules" device_check.log "${check[@]}" --seconds "$seconds"
run "large batches" device_check_large.log "${check[@]}" --rounds 3 --size "$large"
run "equal calls, equal bytes" device_check_again.log "$folder/device_check" "$library" "$library" --seed "$seed" \
  --rounds 20 --size 3
for tool in memcheck initcheck synccheck; do
  if [ -n "$sanitizer" ]; then
    run "$tool" "$tool.log" "$sanitizer" --tool "$tool" --error-exitcode 9 "${check[@]}" --rounds 4 --size 0.3 \
      --operations 30
  elif [ "$host" = 1 ]; then
    leave_out "$tool" "compute-sanitizer is for a GPU"
  else
    leave_out "$tool" "there is no compute-sanitizer beside nvcc"
  fi
done

# --- the table
{
  printf '\nGPU (capability, driver, name): %s\nseed: %s\n\n' "$gpu" "$seed"
  for i in "${!names[@]}"; do printf '  %-26s %s\n' "${names[$i]}" "${outcomes[$i]}"; done
  printf '\n'
  cat "$results/cuda_cache_1.txt" "$results/cuda_cache_2.txt"
} | tee "$results/gpu_check.txt"
say "results are in $results"
exit "$wrong"
