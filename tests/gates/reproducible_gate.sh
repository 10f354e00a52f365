#!/bin/sh
# The files of a release, made twice from the same sources: in folders of other names, later, under another umask.
# They must be the same bytes.
#   tests/gates/reproducible_gate.sh SOURCE_DIR WORK_DIR [CMAKE_ARGUMENT...]
# Compiles everything twice: a compiler cache would hand the objects of the first to the second. (MOE_REPRODUCIBLE_CACHE=1
# lets it, to try the rest.)
set -eu
source=$1
work=$2
shift 2
[ -n "${MOE_REPRODUCIBLE_CACHE-}" ] || export CCACHE_DISABLE=1
export SOURCE_DATE_EPOCH=1700000000
export CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
rm -rf "$work"

make_in() { # make_in FOLDER UMASK [CMAKE_ARGUMENT...]
  folder=$1 mask=$2
  shift 2
  mkdir -p "$work/$folder"
  (cd "$source" && cp -R CMakeLists.txt LICENSE include_c impl pkgconfig abi_check "$work/$folder")
  (umask "$mask" && CCACHE_BASEDIR=$work/$folder "$work/$folder/pkgconfig/make_packages" "$work/out_$folder" "$@") >"$work/$folder.log" 2>&1 ||
    { tail -40 "$work/$folder.log"; echo "reproducible gate: $folder is not built" >&2; exit 1; }
}

make_in a 022 "$@"
make_in another_folder 077 "$@"
cat "$work/out_a/SHA256SUMS"
files=1
! command -v dpkg >/dev/null || files=4
[ "$(wc -l <"$work/out_a/SHA256SUMS")" = $files ] || { echo "reproducible gate: $files files are made" >&2; exit 1; }
cmp "$work/out_a/SHA256SUMS" "$work/out_another_folder/SHA256SUMS" || { echo "reproducible gate: other bytes" >&2; exit 1; }
echo "reproducible gate: ok"
