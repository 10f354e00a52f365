#!/bin/sh
# Generates the layout assertions of moe_abi.json and lets C, C++, Rust and Python check them; then changes one offset
# in the description and sees that each of them notices.
#   abi_check/layout_check.sh PYTHON INCLUDE_DIR OUT_DIR CC CXX [LIBRARY]
set -eu
python=$1
include=$2
out=$3
cc=$4
cxx=$5
library=${6:-}
here=$(cd "$(dirname "$0")" && pwd)
rust=$(rustc --version 2>/dev/null | awk '{print $2}') || rust=

all() { # all DESCRIPTION OUT: the languages that agree with the description, on one line
  "$python" "$here/layouts.py" "$1" "$2" --rust-version "${rust:-1.77.0}"
  cd "$2"
  "$cc" -std=c11 -Wall -Wextra -Werror -I "$include" -fsyntax-only layout.c 2>c.log && printf 'c '
  "$cxx" -x c++ -std=c++17 -Wall -Wno-cast-function-type -Werror -I "$include" -fsyntax-only layout.c 2>cxx.log && printf 'cxx '
  "$python" layout.py ${library:+"$library" "$1"} >python.log 2>&1 && printf 'python '
  if [ -n "$rust" ]; then
    rustc --edition 2021 layout.rs -o layout_rust 2>rust.log && ./layout_rust >>rust.log 2>&1 && printf 'rust '
  fi
  cd "$here"
}

wanted="c cxx python ${rust:+rust }"
good=$(all "$here/moe_abi.json" "$out/good" || true)
echo "agree with moe_abi.json: $good${rust:+(rustc $rust)}"
if [ "$good" != "$wanted" ]; then
  cat "$out"/good/*.log
  exit 1
fi
sed 's/\("name": "data", "type": "ptr", "offset": \)16/\120/' "$here/moe_abi.json" >"$out/changed.json"
cmp -s "$here/moe_abi.json" "$out/changed.json" && { echo "the probe changed nothing" >&2; exit 1; }
bad=$(all "$out/changed.json" "$out/bad" || true)
echo "agree with a wrong offset: ${bad:-none}"
[ -z "$bad" ]
