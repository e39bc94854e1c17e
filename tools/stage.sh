#!/usr/bin/env bash
# Runs one stage of the Makefile:  tools/stage.sh [--show] LOG "what (why)" COMMAND...
# It says what it does, keeps the output in build/log/LOG.log, and on failure prints the log's tail and the
# lines that say why.
# --show prints the output as it comes as well (test results).
set -euo pipefail
show=false
if [ "$1" = --show ]; then show=true; shift; fi
log=build/log/$1.log what=$2
shift 2

mkdir -p build/log
echo "==> $what"
start=$SECONDS status=0
if $show; then
  "$@" 2>&1 | tee "$log" || status=$?
else
  "$@" >"$log" 2>&1 </dev/null || status=$?
fi
if [ $status -ne 0 ]; then
  $show || tail -n 40 "$log" >&2
  # Failed expectations and reports of sanitizers: in a log of many tests they are far above its tail.
  $show || grep -E -A 6 ': Failure$|^(==[0-9]+==)?(WARNING|ERROR|SUMMARY): [A-Za-z]*Sanitizer|: runtime error: ' \
    "$log" | head -n 40 >&2 || true
  # A script that knew the remedy said so in a line of its own; repeat it where it is seen.
  grep -m1 '^error: ' "$log" >&2 || true
  echo "==> FAILED: $what; the whole output is in $log" >&2
  exit $status
fi
$show || echo "    done in $((SECONDS - start)) s"
