#!/bin/sh
# Writes the ABI of a library as libabigail sees it: exported functions and the types of the public header; what is
# behind a handle is left out. Used for the baselines.
#   abi_check/dump.sh LIBRARY OUT.abi [INCLUDE_DIR]
#
# Never give --no-show-locs and --headers-dir to abidiff on both sides, or --drop-private-types to abidiff at all: the
# first hides changes of structs, the second aborts in version 2.2.
set -eu
include=${3:-$(cd "$(dirname "$0")/../include_c" && pwd)}
abidw --exported-interfaces-only --headers-dir "$include" --drop-private-types --no-show-locs --no-corpus-path \
  --no-comp-dir-path --no-elf-needed --type-id-style hash --out-file "$2" "$1"
