#!/bin/sh
# Writes the baselines again: after an addition, or after MOE_ABI_VERSION was raised. Refuses an incompatible change
# under an unchanged MOE_ABI_VERSION.
#   abi_check/update.sh LIBRARY [LIBRARY_OF_ANOTHER_ARCHITECTURE ...]     release builds with -g
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=/usr/bin/python3
[ -x $python ] || python=python3
number() { sed -n 's/^ *"abi_version": *\([0-9]*\).*/\1/p' "$1"; }

"$python" "$here/generate.py"
abi=$(number "$here/moe_abi.json")
for library in "$@"; do
  arch=$(LC_ALL=C readelf -h "$library" | awk '/Machine:/ {print ($0 ~ /AArch64/) ? "aarch64" : "x86_64"}')
  baseline=$here/libmoe-$abi.$arch.abi
  if [ -e "$baseline" ] && [ "$(number "$here/baseline/moe_abi.json")" = "$abi" ]; then
    "$here/check.sh" "$library" "$baseline" || {
      echo "update.sh: an incompatible change needs a new MOE_ABI_VERSION in moe.h (now $abi)" >&2
      exit 1
    }
  fi
  "$here/dump.sh" "$library" "$baseline.new"
  mv "$baseline.new" "$baseline"
  echo "wrote $baseline: $(grep -c '<class-decl.* size-in-bits=' "$baseline") types"
done
mkdir -p "$here/baseline"
cp "$here/moe_abi.json" "$here/baseline/moe_abi.json"
