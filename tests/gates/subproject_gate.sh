#!/bin/sh
# libmoe as engines take it: built with an engine whose flags are -Ofast -march=native (add_subdirectory, engine/), and
# installed (find_package, consumer/), shared and static each. All of them calculate the same bits as this build does, with
# the rows of every instruction set.
#   tests/gates/subproject_gate.sh SOURCE_DIR BUILD_DIR WORK_DIR CC CXX
# Builds the whole library once more, with little optimisation (the bits do not depend on it); WORK_DIR is kept, so that the
# next run builds what changed.
set -eu
source=$1
build=$2
work=$3
export CC="$4" CXX="$5" CFLAGS= CXXFLAGS=
gates=$source/tests/gates
mkdir -p "$work"

fail() {
  echo "subproject gate: $*" >&2
  exit 1
}

# configure_and_build DIR TARGETS CMAKE_ARGUMENT...
configure_and_build() {
  dir=$1
  targets=$2
  shift 2
  cmake -G Ninja -B "$dir" -D CMAKE_C_FLAGS='-Ofast -march=native' -D CMAKE_CXX_FLAGS='-Ofast -march=native' "$@" >"$dir.log" 2>&1 &&
    cmake --build "$dir" --target $targets >>"$dir.log" 2>&1 || { tail -40 "$dir.log"; fail "$dir does not build"; }
}

# --- built with an engine ---
configure_and_build "$work/engine" all -S "$gates/engine" -D LIBMOE="$source" -D CMAKE_BUILD_TYPE=Debug -D CMAKE_CXX_FLAGS_DEBUG=-O1
"$CC" -O1 "$gates/consumer/float_state.c" -o "$work/float_state" -ldl
"$work/float_state" "$work/engine/libmoe/libmoe.so" || fail "loading the library changes how the processor calculates"

# --- installed ---
rm -rf "$work/prefix"
cmake --install "$build" --prefix "$work/prefix" >/dev/null
kinds=shared
[ -z "$(find "$work/prefix" -name libmoe.a)" ] || kinds='shared static'
for kind in $kinds; do
  static=OFF
  [ $kind = shared ] || static=ON
  configure_and_build "$work/package_$kind" layer -S "$gates/consumer" -D CMAKE_PREFIX_PATH="$work/prefix" -D STATIC=$static
done

# --- the same bits ---
"$CC" -O1 -I "$source/include_c" "$gates/consumer/layer.c" "$build/libmoe.so" -Wl,-rpath,"$build" -o "$work/plain"
MOE_MAX_ISA=scalar "$work/plain" >"$work/expected"
[ "$(wc -c <"$work/expected")" = 4608 ] || fail "two layers give 4608 bytes"
for program in plain engine/layer_shared engine/layer_static package_shared/layer package_static/layer; do
  [ -x "$work/$program" ] || continue
  for isa in scalar avx2 avx512vnni ''; do # the words of another processor change nothing
    MOE_MAX_ISA=$isa "$work/$program" >"$work/bits" 2>"$work/rows" || fail "$program: $(cat "$work/rows")"
    cmp "$work/expected" "$work/bits" || fail "other bits from $program (MOE_MAX_ISA '$isa')"
    echo "$program: $(tr '\n' ' ' <"$work/rows")"
  done
done
echo "subproject gate: ok"
