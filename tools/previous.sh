#!/usr/bin/env bash
# Tests this tree's worker at the server module of the commit before, and that commit's worker at this tree's
# module; tests/ext/ps/redis/versions_test.cc says what must hold:  tools/previous.sh CMAKE_ARGUMENT ...
# The commit is the newest one before HEAD that touched het_tf/. It is built in build/previous, a worktree that stays.
set -euo pipefail
cd "$(dirname "$0")/.."
previous=$PWD/build/previous
if ! commit=$(git log -1 --format=%H HEAD~1 -- het_tf 2>/dev/null) || [ -z "$commit" ]; then
  echo "left out: git knows no commit before this one here (a tarball, or a clone of depth 1)"
  exit 0
fi
echo "the commit before: $(git log -1 --format='%h %s' "$commit")"
[ -e "$previous/.git" ] || git worktree add --quiet --force --detach "$previous" "$commit"
git -C "$previous" checkout --quiet --detach "$commit"
(cd "$previous" && cmake --preset release "$@" -DHET_BUILD_PLUGIN=OFF -DHET_CUDA=OFF &&
  cmake --build --preset release -j "${JOBS:-2}" --target het_redis_module redis) >"$previous/build.log" ||
  { tail -n 40 "$previous/build.log"; exit 1; }

program() { find "$1" -name redis -type f -executable | head -n 1; }
status=0
meet() {  # WORKER MODULE
  echo "a worker of $1 at a server with $2:"
  HET_TEST_MODULE=$2 "$1" --gtest_filter='RedisVersions.*' --gtest_brief=1 || status=1
}
meet "$(program build/check)" "$previous/build/release/het.so"
meet "$(program "$previous/build/release")" "$PWD/build/release/het.so"
exit $status
