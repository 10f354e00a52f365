#!/bin/sh
# Proves that check.sh bites: builds small libraries that differ from a first one in one way each and looks at its verdict.
#   abi_check/self_test.sh CC
set -eu
cc=$1
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
wrong=0

# Ten structs so that the baseline counts as one with types; moe_s is the one that changes. The header is public, what is
# behind moe_config is not.
library() { # library NAME MEMBERS RETURN PARAMETER HANDLE [EXTRA]
  mkdir -p "$dir/$1"
  {
    echo "#include <stdint.h>"
    for i in 1 2 3 4 5 6 7 8 9; do echo "struct t$i { int32_t a$i; }; int32_t moe_f$i(struct t$i* p);"; done
    echo "struct moe_config; struct moe_s { uint32_t struct_size; $2 }; $3 moe_g(struct moe_s* s, $4 n, struct moe_config* c);"
  } >"$dir/$1/moe.h"
  {
    echo "#include \"$1/moe.h\""
    for i in 1 2 3 4 5 6 7 8 9; do echo "int32_t moe_f$i(struct t$i* p) { return p->a$i; }"; done
    echo "struct moe_config { int hidden$5; };"
    echo "$3 moe_g(struct moe_s* s, $4 n, struct moe_config* c) { return ($3)(s->struct_size + (uint64_t)n + (uint64_t)c->hidden$5); }"
    echo "${6:-}"
  } >"$dir/$1.c"
}
json() { # json NAME MEMBERS FUNCTIONS
  cat >"$dir/$1.json" <<J
{"abi_version": 0, "version": "0.1.0", "pointer_size": 8, "constants": {}, "handles": [], "callbacks": [], "enums": [],
 "functions": [{"name": "moe_g", "returns": "i32", "params": [{"name": "s", "type": "ptr:moe_s"}, {"name": "n", "type": "$3"}], "threads": "any", "since": "0.1.0"}],
 "structs": [{"name": "moe_s", "size": $4, "v1_size": 16, "align": 8, "members": [{"name": "struct_size", "type": "u32", "offset": 0}$2]}]}
J
}
build() { "$cc" -g -I "$dir" -fPIC -shared -Wl,-soname,libmoe.so.0 "$dir/$1.c" -o "$dir/$1.so"; }
expect() { # expect NAME STATUS
  build "$1"
  status=0
  "$here/check.sh" "$dir/$1.so" "$dir/base.abi" "$dir/base.json" "$dir/$1.json" >"$dir/log" 2>&1 || status=$?
  if [ $status != "$2" ]; then
    wrong=$((wrong + 1))
    echo "$1: status $status, wanted $2"
    cat "$dir/log"
  fi
}

B=', {"name": "b", "type": "u64", "offset": 8}'
library base 'uint64_t b;' int32_t int64_t 0
json base "$B" i64 16
build base
"$here/dump.sh" "$dir/base.so" "$dir/base.abi" "$dir/base"

cp "$dir/base.c" "$dir/same.c"; cp "$dir/base.json" "$dir/same.json"; expect same 0
library function_added 'uint64_t b;' int32_t int64_t 0 'void moe_new(void); void moe_new(void) {}'
cp "$dir/base.json" "$dir/function_added.json"; expect function_added 0
library appended 'uint64_t b; uint64_t c;' int32_t int64_t 0
json appended "$B"', {"name": "c", "type": "u64", "offset": 16}' i64 24; expect appended 0
library handle_changed 'uint64_t b;' int32_t int64_t 1
cp "$dir/base.json" "$dir/handle_changed.json"; expect handle_changed 0
library inserted 'uint64_t c; uint64_t b;' int32_t int64_t 0
json inserted ', {"name": "c", "type": "u64", "offset": 8}, {"name": "b", "type": "u64", "offset": 16}' i64 24; expect inserted 4
library parameter 'uint64_t b;' int32_t int32_t 0
json parameter "$B" i32 16; expect parameter 4
grep -v moe_f3 "$dir/base.c" >"$dir/function_removed.c"
cp "$dir/base.json" "$dir/function_removed.json"; expect function_removed 8

sed 's/<class-decl/<class/' "$dir/base.abi" >"$dir/untyped.abi"
"$here/check.sh" "$dir/base.so" "$dir/untyped.abi" "$dir/base.json" "$dir/base.json" >/dev/null 2>&1 && { echo "a baseline without types passed"; wrong=1; }

# A header whose lists of statuses have a fault gives no description.
probes=8
refused() { # refused SED_SCRIPT MESSAGE
  probes=$((probes + 1))
  sed "$1" "$here/../include_c/moe/moe.h" >"$dir/moe.h"
  if python3 "$here/abi_from_header.py" "$dir/moe.h" >/dev/null 2>"$dir/log" || ! grep -q "$2" "$dir/log"; then
    wrong=$((wrong + 1))
    echo "sed '$1': wanted '$2'"
    cat "$dir/log"
  fi
}
if command -v clang-14 >/dev/null || command -v clang >/dev/null; then
  refused 's/^ *\(.*\) Statuses: common, IO, CANCELLED, CALLBACK\./\1/' 'moe_packed_save: its comment has 0 lists'
  refused 's/Statuses: common, IO, CANCELLED/Statuses: common, IOO, CANCELLED/' 'moe_packed_save: MOE_ERR_IOO is no status'
  refused 's/Statuses: common, IO, CANCELLED/Statuses: IO, CANCELLED/' 'moe_packed_save: its statuses do not begin'
fi
echo "check.sh self-test: $probes probes, $wrong wrong verdicts"
[ $wrong = 0 ]
