#!/bin/sh
# nvcc.sh REPORT NVCC ARGUMENT...: runs nvcc; what ptxas says of each kernel (registers, stack, spills) goes to REPORT, the rest is shown.
set -u
report=$1
shift
"$@" >"$report" 2>&1
status=$?
grep -v -e '^ptxas info' -e 'bytes stack frame' -e '^ *$' "$report" >&2
exit $status
