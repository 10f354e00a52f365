#!/bin/sh
# libmoe with musl, by PyPI's ziglang: the library and its archive, the program, the C and C++ examples (the same bytes
# as with glibc) and the tests of the rooms. Programs run with the loader of Debian's package musl, which is unpacked, not installed.
#   tests/gates/musl_gate.sh SOURCE_DIR BUILD_DIR WORK_DIR      exit 77: zig or the loader cannot be had
#
# All tests of all rooms run here but those through libffi (its package is glibc's) and test_released (allocations that fail
# inside the runtime of a release, which is GCC's). Examples in other languages are programs of glibc.
set -eu
source=$1
build=$2
work=$3
machine=$(uname -m)
rooms='base scheme config vllm hf oracle convert kernels io weights run api'
mkdir -p "$work/include"

fail() {
  echo "musl gate: $*" >&2
  exit 1
}

step() { # a command whose output is shown when it fails
  "$@" >"$work/log" 2>&1 || { grep -A5 -E 'error|FAILED' "$work/log" | head -40; tail -5 "$work/log"; fail "$*"; }
}

absent() { # WHAT: the last line of the log says why
  echo "musl gate: not run, $1 cannot be had: $(tail -1 "$work/log")"
  exit 77
}

# --- the compiler and the loader ---
zig=$(echo "$work"/venv/lib/python3*/site-packages/ziglang/zig)
if [ ! -x "$zig" ]; then
  { python3 -m venv --clear "$work/venv" && "$work/venv/bin/pip" install --quiet 'ziglang>=0.13'; } >"$work/log" 2>&1 || absent ziglang
  zig=$(echo "$work"/venv/lib/python3*/site-packages/ziglang/zig)
fi
loader=/lib/ld-musl-$machine.so.1
if [ ! -e "$loader" ]; then
  loader=$work/loader/lib/$machine-linux-musl/libc.so
  [ -e "$loader" ] || (cd "$work" && rm -f musl_*.deb && apt-get download musl && dpkg -x musl_*.deb loader) >"$work/log" 2>&1 || absent musl
fi
for language in cc c++; do
  printf '#!/bin/sh\nexec "%s" %s -target %s-linux-musl "$@"\n' "$zig" $language "$machine" >"$work/zig-$language"
  chmod +x "$work/zig-$language"
done
dynamic="-dynamic -Wl,--dynamic-linker=$loader"
export CCACHE_COMPILERTYPE=clang # under the name zig-c++ it does not know it

# --- built as for another system; of this one it takes headers of the packages, and none of glibc's ---
packages=
for row in NLOHMANN:nlohmann SPDLOG:spdlog FMT:fmt XXHASH:xxhash.h; do
  folder=$(sed -n "s/^MOE_${row%%:*}_INCLUDE:PATH=//p" "$build/CMakeCache.txt")
  ln -sfn "$folder/${row#*:}" "$work/include/${row#*:}"
  packages="$packages -D MOE_${row%%:*}_INCLUDE=$work/include"
done
targets='libmoe_shared libmoe_static'
tool=$(sed -n 's/^MOE_CLI11_INCLUDE:PATH=//p' "$build/CMakeCache.txt") # empty or not found: without the program
if [ -e "$tool/CLI/App.hpp" ]; then
  ln -sfn "$tool/CLI" "$work/include/CLI"
  packages="$packages -D MOE_TOOL=ON -D MOE_CLI11_INCLUDE=$work/include"
  targets="$targets libmoe_tool"
else
  tool=
  packages="$packages -D MOE_TOOL=OFF"
fi
for room in $rooms; do targets="$targets libmoe_test_$room"; done
# shellcheck disable=SC2086
{
  step cmake -S "$source" -B "$work/build" -G Ninja -D CMAKE_BUILD_TYPE=None -D "CMAKE_CXX_FLAGS=-O1 -DNDEBUG" -D CMAKE_SYSTEM_NAME=Linux \
    -D CMAKE_SYSTEM_PROCESSOR="$machine" -D CMAKE_C_COMPILER="$work/zig-cc" -D CMAKE_CXX_COMPILER="$work/zig-c++" \
    -D CMAKE_EXE_LINKER_FLAGS="$dynamic" -D "MOE_MERGE_OBJECTS=ld;-r;--force-group-allocation" -D MOE_BUILD_STATIC=ON \
    -D MOE_BUILD_EXAMPLES=OFF -D MOE_TEST_BATCHES=ON $packages
  step cmake --build "$work/build" --target $targets
}

# --- the library: needs musl's libc alone, exports the same functions ---
so=$work/build/libmoe.so.0
needed=$(readelf -d "$so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ "$needed" = libc.so ] || fail "libmoe.so needs '$needed', expected libc.so"
readelf -V "$so" | grep -q GLIBC && fail "libmoe.so asks for versions of glibc"
nm -D --defined-only "$so" | sed -n 's/.* T \(.*\)/\1/p' | sort >"$work/names"
sort "$source/abi_check/symbols.txt" | diff - "$work/names" || fail "other functions are exported"

# --- the tests of the rooms ---
for room in $rooms; do
  step "$work/build/tests/test_$room" --gtest_brief=1
  echo "$room: $(grep -o '\[  PASSED  \].*' "$work/log")"
done

# --- the examples ---
rm -rf "$work/prefix" "$work/outputs"
mkdir -p "$work/outputs"
step cmake --install "$work/build" --prefix "$work/prefix"
if [ -n "$tool" ]; then
  readelf -V "$work/prefix/bin/moe" | grep -q GLIBC && fail "moe asks for versions of glibc"
  step "$work/prefix/bin/moe" --version
  grep -q "^libmoe .*/prefix/bin/\.\./lib/libmoe\.so\.0$" "$work/log" || fail "moe has another library: $(cat "$work/log")"
  step "$work/prefix/bin/moe" doctor --seconds 0.1
fi
step "$source/bindings_examples/make_checkpoint" "$work/checkpoint" --shape tiny
example() { # NAME OUTPUT
  step "$source/bindings_examples/example" "$1" "$work/checkpoint" "$work/outputs/$2"
}
export MOE_WORK="$work/examples"
(
  export MOE_PREFIX="$work/prefix" CC="$work/zig-cc" CXX="$work/zig-c++"
  for name in c_pkgconfig c_dlopen cpp; do MOE_EXAMPLE_CFLAGS="$dynamic" example $name $name; done
  export PKG_CONFIG_LIBDIR="$work/prefix/lib/pkgconfig"
  # shellcheck disable=SC2046
  step "$CC" -O2 "$source/bindings_examples/examples/c_pkgconfig/main.c" $(pkg-config --static --cflags --libs libmoe-static) -o "$work/static"
)
file "$work/static" | grep -q 'statically linked' || fail "$(file "$work/static")"
step "$work/static" "$work/checkpoint" "$work/outputs/static"
(
  step cmake --install "$build" --prefix "$work/glibc"
  MOE_PREFIX="$work/glibc" example c_pkgconfig glibc
)
step "$source/bindings_examples/checks/same_output" "$work"/outputs/*
echo "musl gate: ok"
