#!/bin/sh
# The training loop and the executor name no operation: kernels come from the sets, the rest from the program.
set -u
: "${FLATOUT_SOURCE:=.}"
cd "$FLATOUT_SOURCE" || exit 1
failed=0

ops=$(sed -n 's/^FO_OP[A-Z_]*(\([a-z_]*\),.*/\1/p' src/program/ops.def)
[ "$(printf '%s\n' "$ops" | wc -l)" -ge 15 ] || { echo "FAILED: the operations table was not understood"; exit 1; }

if grep -n 'FO_OP_' src/train/*.[ch]; then
	echo "FAILED: src/train names an operation by its enum"
	failed=1
fi
# As a string: a look-up by name would be the same thing. The words "add" and "clip" may be options or English.
for op in $ops; do
	if grep -n "\"$op\"" src/train/*.[ch]; then
		echo "FAILED: src/train names the operation '$op'"
		failed=1
	fi
done
if grep -n 'kernels_\(ref\|avx2\|avx512\|amx\)' src/train/*.[ch]; then
	echo "FAILED: src/train names a kernel set"
	failed=1
fi
exit $failed
