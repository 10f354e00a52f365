#!/bin/sh
# clang-tidy over impl/ with the compile commands of a Clang build.
#   tests/gates/tidy.sh BUILD_DIR JOBS [FILE...]
set -eu
build=$1
jobs=$2
shift 2
cd "$(dirname "$0")/../.."
tidy=$(command -v clang-tidy-14 || command -v clang-tidy) || {
  echo "clang-tidy is not installed (package clang-tidy-14 or clang-tidy)" >&2
  exit 1
}
[ $# -gt 0 ] || set -- $(find impl -name '*.cpp' | sort)
echo "clang-tidy: $# files"
printf '%s\n' "$@" | xargs -P "$jobs" -n 2 "$tidy" -p "$build" --quiet
