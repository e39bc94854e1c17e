#!/usr/bin/env bash
# Runs one stage of the Makefile:  tools/stage.sh [--show] LOG "what (why)" COMMAND...
# It says what it does, keeps the output in build/log/LOG.log, and on failure prints the log's tail and the
# lines that say why. What it took goes to build/log/stages.tsv, of which tools/stages.sh makes a table.
# --show prints the output as it comes as well (test results).
set -euo pipefail
show=false
if [ "$1" = --show ]; then show=true; shift; fi
name=$1 log=build/log/$1.log what=$2
shift 2

mkdir -p build/log
echo "==> $what"
status=0
TIMEFORMAT='%R %U %S'
if $show; then
  { time "$@" 2>&1 | tee "$log"; } 2>"$log.time" || status=$?
else
  { time "$@" >"$log" 2>&1 </dev/null; } 2>"$log.time" || status=$?
fi
read -r wall user system < <(tail -n 1 "$log.time")
rm "$log.time"
# pytest's last line, or the lines of GoogleTest's programs.
tests=$(sed -nE 's/^(.*[^0-9])?([0-9]+) passed.* in [0-9.]+s.*/\2/p' "$log" | tail -n 1)
[ -n "$tests" ] || tests=$(sed -nE 's/^([0-9]+: )?\[  PASSED  \] ([0-9]+) tests?\.$/\2/p' "$log" |
  awk '{ sum += $1 } END { if (sum) print sum }')
printf '%s\t%s\t%s\t%s\t%s\n' "$name" "${tests:--}" "$wall" "$(awk "BEGIN { print $user + $system }")" "$status" \
  >>build/log/stages.tsv

if [ $status -ne 0 ]; then
  $show || tail -n 40 "$log" >&2
  # Failed expectations and reports of sanitizers: in a log of many tests they are far above its tail.
  $show || grep -E -A 6 ': Failure$|(WARNING|ERROR|SUMMARY): [A-Za-z]*Sanitizer|: runtime error: ' \
    "$log" | head -n 40 >&2 || true
  # A script that knew the remedy said so in a line of its own; repeat it where it is seen.
  grep -m1 '^error: ' "$log" >&2 || true
  echo "==> FAILED: $what; the whole output is in $log" >&2
  exit $status
fi
$show || echo "    done in ${wall%.*} s"
