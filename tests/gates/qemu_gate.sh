#!/bin/sh
# Runs test programs on an emulated older CPU: the rows that it lacks must not be chosen, and nothing else may use
# its instructions. The rows themselves are tested where they run fast: here a few cases of each will do.
#   tests/gates/qemu_gate.sh QEMU CPU PROGRAM...
set -eu
qemu=$1
cpu=$2
shift 2
export MOE_TEST_SHARE=20
for program in "$@"; do
  echo "$cpu: $program"
  # /proc/cpuinfo is the host's there, so it says nothing about the emulated CPU
  "$qemu" -cpu "$cpu" "$program" --gtest_brief=1 --gtest_filter=-Detect.AgreesWithProcCpuinfo
done
