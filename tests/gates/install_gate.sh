#!/bin/sh
# Installs the build into an empty root, moves it, and builds and runs a host program against it in every promised way.
#   tests/gates/install_gate.sh SOURCE_DIR BUILD_DIR CC
set -eu
source=$1
build=$2
cc=$3
consumer=$source/tests/gates/consumer
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
  echo "install gate: $*" >&2
  exit 1
}

run() { # run LIBRARY_PATH PROGRAM
  LD_LIBRARY_PATH=$1 "$2" || fail "$2 ended with status $?"
}

# --- what is installed, and by which component ---
DESTDIR=$dir/runtime cmake --install "$build" --prefix /usr --component Runtime >/dev/null
DESTDIR=$dir/all cmake --install "$build" --prefix /usr >/dev/null
list() { (cd "$1" && find . ! -type d | sed 's|^\./||' | sort); }
libdir=$(dirname "$(list "$dir/runtime" | head -1)") # usr/lib/x86_64-linux-gnu or usr/lib
docs='usr/share/doc/libmoe/(LICENSE|NOTICE|libmoe\.spdx\.json|notices/[a-z0-9-]+)'
tools='usr/(bin/moe|share/(man/man1/moe\.1|bash-completion/completions/moe|zsh/site-functions/_moe|fish/vendor_completions\.d/moe\.fish))'
# Of each MPI of this build.
mpis=$(sed -n 's/^MOE_MPI:[A-Z]*=//p' "$build/CMakeCache.txt" | tr ';' '|')
mpi="$libdir/(($mpis)/libmoe_mpi\.so(\.[0-9.]+)?|pkgconfig/libmoe-mpi-($mpis)\.pc|cmake/moe/moeMpi_($mpis)Targets(-[a-z]+)?\.cmake)|usr/include/moe/moe_mpi\.h"
[ -n "$mpis" ] || mpi='no MPI'
list "$dir/runtime" | grep -Evx "$libdir/libmoe\.so\.[0-9.]+|$docs" && fail "not of component Runtime"
list "$dir/all" | grep -Evx "$libdir/(libmoe\.(so(\.[0-9.]+)?|a)|libmoe-(abi[0-9]+\.(so|a)|static\.a)|pkgconfig/libmoe(-static)?\.pc|cmake/moe/moe(Config|ConfigVersion|(Static)?Targets|(Static)?Targets-[a-z]+)\.cmake)|usr/include/moe/(moe\.h|moe\.hpp|cpp/[a-z]+\.hpp)|usr/share/moe/moe_abi\.json|$tools|$mpi|$docs" && fail "unexpected file"
for f in $libdir/libmoe.so $libdir/libmoe.so.0 $libdir/pkgconfig/libmoe.pc usr/include/moe/moe.h usr/include/moe/moe.hpp usr/include/moe/cpp/error.hpp usr/share/moe/moe_abi.json; do
  [ -e "$dir/all/$f" ] || fail "$f is missing"
done
for m in $(echo "$mpis" | tr '|' ' '); do
  for f in "$libdir/$m/libmoe_mpi.so" "$libdir/pkgconfig/libmoe-mpi-$m.pc" usr/include/moe/moe_mpi.h; do
    [ -e "$dir/all/$f" ] || fail "$f is missing"
  done
done
cmp "$source/LICENSE" "$dir/runtime/usr/share/doc/libmoe/LICENSE" || fail "LICENSE"
sed -n 's/^- \([a-z0-9-]*\) .*(.*/\1/p' "$dir/runtime/usr/share/doc/libmoe/NOTICE" >"$dir/packages"
[ "$(wc -l <"$dir/packages")" -ge 4 ] || fail "NOTICE names no packages"
while read -r package; do
  grep -qi copyright "$dir/runtime/usr/share/doc/libmoe/notices/$package" || fail "no notice of $package"
done <"$dir/packages"

major=$("$cc" -dumpversion | cut -d . -f 1) # not another compiler's that stands earlier in the alphabet
[ ! -e "/usr/share/doc/gcc-$major-base/copyright" ] || grep -q "/gcc-$major-base/copyright\"" "$build/cmake_install.cmake" ||
  fail "the notice of the GNU runtime is not that of gcc-$major-base"

# --- stripped; what was taken away is installed on request, by the build id ---
so=$(readlink -f "$dir/all/$libdir/libmoe.so")
readelf -SW "$so" | grep -E ' \.(debug_|symtab|strtab)' && fail "the installed library is not stripped"
DESTDIR=$dir/debug cmake --install "$build" --prefix /usr --component Debug >/dev/null
id=$(readelf -n "$so" | sed -n 's/.*Build ID: //p')
file=usr/lib/debug/.build-id/$(echo "$id" | cut -c1-2)/$(echo "$id" | cut -c3-).debug
[ "$(list "$dir/debug")" = "$file" ] || fail "component Debug is not $file alone"
readelf -SW "$dir/debug/$file" | grep -q ' \.debug_info' || fail "no debug information in $file"
readelf -n "$dir/debug/$file" | grep -q "$id" || fail "$file is of another library"

# --- the program: stripped, and finds the library beside its folder and nowhere else ---
if grep -q '^MOE_TOOL:BOOL=ON' "$build/CMakeCache.txt"; then
  DESTDIR=$dir/tools cmake --install "$build" --prefix /usr --component Tools >/dev/null
  list "$dir/tools" | grep -Evx "$tools" && fail "not of component Tools"
  moe=$dir/tools/usr/bin/moe
  readelf -SW "$moe" | grep -E ' \.(debug_|symtab|strtab)' && fail "the installed program is not stripped"
  readelf -d "$moe" | grep -qF "runpath: [\$ORIGIN/../${libdir#usr/}]" || fail "the installed program has $(readelf -d "$moe" | grep PATH)"
  "$moe" --version >"$dir/log" 2>&1 && fail "the program runs without the library: $(cat "$dir/log")"
fi

# --- the tree somewhere else ---
mv "$dir/all/usr" "$dir/moved"
if [ -e "$dir/moved/bin/moe" ]; then
  (cd / && "$dir/moved/bin/moe" --version) >"$dir/log" || fail "the program of a moved tree does not run"
  grep -q "^libmoe .*  $dir/moved/bin/../${libdir#usr/}/libmoe.so.0$" "$dir/log" || fail "it found another library: $(cat "$dir/log")"
fi
grep -rlE "$dir/all|$source|$build" "$dir/moved" --include='*.cmake' --include='*.pc' && fail "absolute path in the files above"
lib=$dir/moved/${libdir#usr/}

# --- loaded and unloaded: nothing is left behind, by calls and worker threads neither ---
# (What malloc keeps for the next call of a size, and an arena for each thread, count as in use: without those.)
export GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1
"$cc" -O1 "$consumer/load_cycles.c" -o "$dir/load_cycles" -ldl
"$dir/load_cycles" "$lib/libmoe.so" || fail "loading and unloading leaks"
for plugin in consumer layer; do
  "$cc" -O1 -shared -fPIC -Dmain=plugin_main -I "$dir/moved/include" "$consumer/$plugin.c" -o "$dir/$plugin.so" "$lib/libmoe.so" -Wl,-rpath,"$lib"
  "$dir/load_cycles" "$lib/libmoe.so" "$dir/$plugin.so" >/dev/null 2>"$dir/log" || { tail -1 "$dir/log"; fail "loading and unloading $plugin leaks"; }
done
unset GLIBC_TUNABLES

# --- linked, where another project's libmoe comes first on every search path ---
decoy=$dir/decoy
mkdir "$decoy"
echo 'int decoy(void) { return 0; }' >"$decoy/decoy.c"
"$cc" -shared -fPIC -Wl,-soname,libmoe.so.1.5 "$decoy/decoy.c" -o "$decoy/libmoe.so"
"$cc" -c "$decoy/decoy.c" -o "$decoy/decoy.o"
ar rc "$decoy/libmoe.a" "$decoy/decoy.o"
needs() { # needs PROGRAM LIBRARY...: these of ours and of the other project, and no more
  program=$1
  shift
  [ "$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(libmoe.*\)\]/\1/p')" = "$*" ] || fail "$program does not need '$*'"
}

export PKG_CONFIG_LIBDIR="$lib/pkgconfig"
[ "$(pkg-config --variable=abi_version libmoe)" = 0 ] || fail "abi_version of libmoe.pc"
[ -s "$(pkg-config --variable=abi_json libmoe)" ] || fail "abi_json of libmoe.pc leads nowhere"
echo "pkg-config:"
"$cc" -std=c99 -Wall -Werror $(pkg-config --cflags libmoe) "$consumer/consumer.c" -L"$decoy" $(pkg-config --libs libmoe) -o "$dir/shared"
needs "$dir/shared" libmoe.so.0
run "$lib" "$dir/shared"
cmake -S "$consumer" -B "$dir/pkg" -D BY_PKG_CONFIG=ON -D CMAKE_BUILD_TYPE=Release -D CMAKE_EXE_LINKER_FLAGS="-L$decoy" >/dev/null
cmake --build "$dir/pkg" >"$dir/log" 2>&1 || { head -20 "$dir/log"; fail "consumer does not build"; }
needs "$dir/pkg/consumer" libmoe.so.0
run "$lib" "$dir/pkg/consumer"

echo "find_package:"
for kind in OFF ON; do
  [ $kind = OFF ] || [ -e "$lib/libmoe.a" ] || continue
  cmake -S "$consumer" -B "$dir/consumer_$kind" -D CMAKE_PREFIX_PATH="$dir/moved" -D STATIC=$kind -D CMAKE_BUILD_TYPE=Release \
    -D CMAKE_EXE_LINKER_FLAGS="-L$decoy" >/dev/null
  cmake --build "$dir/consumer_$kind" >"$dir/log" 2>&1 || { head -20 "$dir/log"; fail "consumer does not build"; }
  run "" "$dir/consumer_$kind/consumer"
done
needs "$dir/consumer_OFF/consumer" libmoe.so.0
mkdir "$dir/other_component"
printf '%s\n' 'cmake_minimum_required(VERSION 3.16)' 'project(other C)' 'find_package(moe REQUIRED COMPONENTS statik)' \
  >"$dir/other_component/CMakeLists.txt"
cmake -S "$dir/other_component" -B "$dir/other_component/build" -D CMAKE_PREFIX_PATH="$dir/moved" >"$dir/log" 2>&1 &&
  fail "component statik is found"
grep -q 'no component statik' "$dir/log" || { cat "$dir/log"; fail "the unknown component is not named"; }

if [ -e "$lib/libmoe.a" ]; then
  needs "$dir/consumer_ON/consumer"
  echo "static archive:"
  nm -g --defined-only "$lib/libmoe.a" 2>/dev/null | grep -E ' [A-Zu] ' | awk '{print $3}' | sort >"$dir/names"
  sed 's/@.*//' "$source/abi_check/symbols.txt" | sort | cmp - "$dir/names" || fail "global names of libmoe.a are not abi_check/symbols.txt"
  "$cc" $(pkg-config --cflags libmoe-static) "$consumer/consumer.c" -L"$decoy" $(pkg-config --static --libs libmoe-static) -o "$dir/static"
  needs "$dir/static"
  run "" "$dir/static"
  # what the guide for callers says of libmoe.pc
  "$cc" $(pkg-config --cflags libmoe) "$consumer/consumer.c" -L"$decoy" $(pkg-config --static --libs libmoe) -o "$dir/not_static"
  needs "$dir/not_static" libmoe.so.0
  [ "$(pkg-config --libs libmoe-static)" = "$(pkg-config --static --libs libmoe-static)" ] || fail "libmoe-static.pc needs --static"
  # shellcheck disable=SC2046
  "$cc" -static $(pkg-config --cflags libmoe) "$consumer/consumer.c" -L"$decoy" $(pkg-config --static --libs libmoe) -o "$dir/whole" 2>"$dir/log" ||
    { cat "$dir/log"; fail "cc -static with libmoe.pc"; }
  run "" "$dir/whole"
  rm "$lib"/libmoe.a "$lib"/cmake/moe/moeStatic*
  cmake -S "$consumer" -B "$dir/no_static" -D CMAKE_PREFIX_PATH="$dir/moved" -D STATIC=ON >"$dir/log" 2>&1 && fail "component static without libmoe.a"
  grep -q 'no component static' "$dir/log" || { cat "$dir/log"; fail "the missing component is not named"; }
fi

# --- an absolute libdir is written as it is ---
cmake -S "$source" -B "$dir/absolute" -D MOE_BUILD_TESTS=OFF -D MOE_BUILD_EXAMPLES=OFF -D CMAKE_INSTALL_LIBDIR=/opt/moe/lib64 >/dev/null
grep -qx 'libdir=/opt/moe/lib64' "$dir/absolute/pkgconfig/libmoe.pc" || fail "absolute libdir in libmoe.pc"
echo "install gate: ok"
