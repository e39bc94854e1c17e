#!/usr/bin/env bash
# Runs a target of the Makefile and ends with a table of its stages. One that fails keeps only those from running
# that need what it makes; the exit status says at the end that there was one:
#   tools/stages.sh TARGET "LEFT=what it left out" ...
# Each LEFT is one stage that was left out, as `make LEFT` runs it.
set -euo pipefail
target=$1
shift
mkdir -p build/log
: >build/log/stages.tsv
status=0
make --keep-going "$target" || status=$?

echo
awk -F '\t' '
  BEGIN { printf "%-38s %9s %11s %11s\n", "stage", "tests", "seconds", "CPU seconds" }
  {
    printf "%-38s %9s %11.0f %11.0f%s\n", $1, $2, $3, $4, $5 == 0 ? "" : "  FAILED"
    tests += $2; wall += $3; cpu += $4
  }
  END { printf "%-38s %9d %11.0f %11.0f\n", "all", tests, wall, cpu }' build/log/stages.tsv
if [ $# -gt 0 ]; then
  echo
  echo "left to make test-all; each can be called alone:"
  for stage in "$@"; do printf '  make %-22s %s\n' "${stage%%=*}" "${stage#*=}"; done
fi
failed=$(awk -F '\t' '$5 != 0 { printf " %s", $1 }' build/log/stages.tsv)
[ -z "$failed" ] || printf '\nFAILED:%s (build/log/STAGE.log has the whole output of each)\n' "$failed" >&2
exit $status
