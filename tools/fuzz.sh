#!/bin/bash
# Fuzzes everything that reads bytes from elsewhere, with libFuzzer, ASan and UBSan, and keeps what reaches new code.
#
#   tools/fuzz.sh [SECONDS a target] [TARGET ...]      (default: 600, all)
#
# Targets are tests/fuzz/*_target.cc; `make test` replays tests/fuzz/corpus/*.pack. Needs clang with libFuzzer
# (apt-get install clang). A crash ends the run with status 1 and leaves its
# input in build/fuzz/found/TARGET; once it is mended, the next run keeps the input.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
shift || true
[[ $seconds =~ ^[0-9]+$ ]] || { echo "usage: tools/fuzz.sh [SECONDS] [TARGET ...]" >&2; exit 2; }
compiler=$(compgen -c clang++ | sort -V | tail -1 || true)
[ -n "$compiler" ] || { echo "error: clang++ is missing. Remedy: apt-get install clang" >&2; exit 1; }

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for source in tests/fuzz/*_target.cc; do targets+=("$(basename "$source" _target.cc)"); done
fi
python=$PWD/.venv/bin/python  # of `make setup`: it has the headers of Boost and of nlohmann/json
[ -x "$python" ] || python=$(command -v python3)
cmake --preset fuzz -DCMAKE_CXX_COMPILER="$compiler" -DPython3_EXECUTABLE="$python" >/dev/null
cmake --build build/fuzz -j 2 --target "${targets[@]/%/_fuzzer}" fuzz_replay | tail -1

status=0
for target in "${targets[@]}"; do
  pack=tests/fuzz/corpus/$target.pack
  work=build/fuzz/work/$target
  found=build/fuzz/found/$target
  rm -rf "$work" && mkdir -p "$work"/{seeds,old,new,kept} "$found" tests/fuzz/corpus
  replay=(build/fuzz/tests/fuzz_replay "$target")
  "${replay[@]}" --seeds "$work/seeds"
  [ ! -e "$pack" ] || "${replay[@]}" --unpack "$pack" "$work/old"
  echo "==> $target for $seconds s (log: build/fuzz/$target.log)"
  if ! UBSAN_OPTIONS=print_stacktrace=1 "build/fuzz/tests/${target}_fuzzer" \
    -max_total_time="$seconds" -max_len=4096 -timeout=20 -rss_limit_mb=2048 -artifact_prefix="$found/" \
    "$work"/{new,old,seeds} "$found" >build/fuzz/"$target".log 2>&1; then
    echo "    FAILED:"
    grep -m 3 -E "ERROR|runtime error|fuzz target" build/fuzz/"$target".log || true
    status=1
  fi
  grep -E "DONE|BINGO" build/fuzz/"$target".log | tail -1 || true
  # The fewest inputs that reach all of it, the small ones first.
  "build/fuzz/tests/${target}_fuzzer" -merge=1 -max_len=1024 "$work"/{kept,old,new,seeds} "$found" >/dev/null 2>&1
  "${replay[@]}" --pack "$work/kept" "$pack"
  echo "    kept $(find "$work/kept" -type f | wc -l) inputs, $(stat -c %s "$pack") bytes"
done
exit $status
