# Sourced by the other files of this folder, each of which builds a package from what `stage` lays out, installs it into an empty place and runs
# what its README shows. All of them take
#
#   MOE_PREFIX=installed/tree MOE_WORK=scratch/dir MOE_TEST_CHECKPOINT=dir [MOE_BUILD_DIR=instead/of/build] packages/NAME
#
# and end with status 77 where something that they need is not there; the message says what.
# shellcheck shell=bash disable=SC2034 # variables are for those who source this
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) # bindings_examples
root=$(dirname "$here")
staged=${MOE_BUILD_DIR:-$root/build}/packages # `stage NAME` writes to $staged/NAME

fail() {
  echo "packages/$(basename "$0"): $*" >&2
  exit 1
}

missing() {
  echo "packages/$(basename "$0"): not run, $*" >&2
  exit 77
}

# --- what is there: the checkpoint, the installed library, its papers ---
checkpoint=$(cd "$MOE_TEST_CHECKPOINT" && pwd)
mkdir -p "$MOE_WORK"
MOE_WORK=$(cd "$MOE_WORK" && pwd)
MOE_PREFIX=$(cd "$MOE_PREFIX" && pwd)
description=$(find "$MOE_PREFIX" -name libmoe.pc -print -quit)
[ -n "$description" ] || fail "no libmoe.pc under $MOE_PREFIX: is libmoe installed there?"
export MOE_WORK MOE_PREFIX
libdir=$(PKG_CONFIG_PATH=${description%/*} pkg-config --variable=libdir libmoe)
library=$libdir/libmoe.so.0
version=$(PKG_CONFIG_PATH=${description%/*} pkg-config --modversion libmoe)
papers=("$MOE_PREFIX"/share/doc/libmoe/{NOTICE,notices,libmoe.spdx.json}) # they go with the library, with LICENSE

# An empty folder outside the tree, removed at the end (Go makes files of its modules read-only).
empty=$(mktemp -d)
trap 'chmod -R u+w "$empty" && rm -rf "$empty"' EXIT

# --- packages that compile the library: by the compiler cache where there is one, also in a folder of another name (those
# that compile elsewhere than in the tree say where) ---
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER-ccache} CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
fi
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)} # ninja takes two more
export CMAKE_BUILD_PARALLEL_LEVEL

block() { # block LANGUAGE README: the first block of code in that language
  local text
  text=$(awk -v fence="\`\`\`$1" '$0 == fence { on = 1; next } on && $0 == "```" { exit } on' "$2")
  [ -n "$text" ] || fail "no block of $1 in $2"
  printf '%s\n' "$text"
}

# The library of another machine, for packages that have both: MOE_AARCH64_LIBRARY, else what packages/python_aarch64 built
# last. Empty: neither is there.
aarch64_library() {
  echo "${MOE_AARCH64_LIBRARY:-$(find "$MOE_WORK/packages_python_aarch64/wheel" -name libmoe.so.0 -print -quit 2>/dev/null)}"
}

# check_aarch64 LIBRARY: its machine, exports and needs, and, under qemu where that is there, the bytes that it computes.
check_aarch64() {
  [[ $(readelf -h "$1") =~ Machine:\ +AArch64 ]] || fail "$1 is not of AArch64"
  if ! command -v qemu-aarch64 >/dev/null || ! command -v aarch64-linux-gnu-gcc >/dev/null; then
    echo "$1: of AArch64; no more is checked, no qemu-aarch64 or no aarch64-linux-gnu-gcc"
    return
  fi
  python3 "$root/tests/gates/library_gate.py" "$1" "$root/abi_check/symbols.txt" --soname libmoe.so.0 \
    --strip aarch64-linux-gnu-strip >"$empty/gate" || { cat "$empty/gate"; fail "$1 is not what a library must be"; }
  aarch64-linux-gnu-gcc -std=c11 -O2 -o "$empty/c_dlopen" "$here/examples/c_dlopen/main.c" -ldl
  LIBMOE_PATH=$1 qemu-aarch64 -L /usr/aarch64-linux-gnu "$empty/c_dlopen" "$checkpoint" "$empty/aarch64.bin"
  "$here/example" c_dlopen "$checkpoint" "$empty/expected.bin"
  cmp "$empty/aarch64.bin" "$empty/expected.bin"
}
