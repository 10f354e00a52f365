#!/bin/sh
# Compares a built library with the committed baselines: types and symbols by libabigail, everything else by rule.
#   abi_check/check.sh LIBRARY [BASELINE.abi] [BASELINE.json] [NEW.json]
#
# abidiff's status is a bit field: 1 error, 2 usage, 4 the ABI changed, 8 incompatibly. 4 alone does not tell "appended"
# from "inserted" and says nothing about enums, so such a change passes only when rules.py passes as well.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
library=$1
arch=$(LC_ALL=C readelf -h "$library" | awk '/Machine:/ {print ($0 ~ /AArch64/) ? "aarch64" : "x86_64"}')
baseline=${2:-$here/libmoe-0.$arch.abi}
old=${3:-$here/baseline/moe_abi.json}
new=${4:-$here/moe_abi.json}
python=/usr/bin/python3
[ -x $python ] || python=python3

types=$(grep -c '<class-decl.* size-in-bits=' "$baseline" || true)
if [ "$types" -lt 10 ]; then
  echo "check.sh: $baseline has $types types: was it made from a library without -g?" >&2
  exit 1
fi
abidiff --exported-interfaces-only --suppressions "$here/handles.suppr" "$baseline" "$library" && status=0 || status=$?
rules=0
"$python" "$here/rules.py" "$old" "$new" || rules=1
echo "abidiff status $status (1 error, 2 usage, 4 changed, 8 incompatible), rules $([ $rules = 0 ] && echo kept || echo broken)"
[ $((status & 3)) = 0 ] || exit 1
[ $((status & 8)) = 0 ] || exit 8
[ $rules = 0 ] || exit 4
