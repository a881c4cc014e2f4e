#!/bin/sh
# flatout verify: what it prints, that nothing unrun passes, and the check at the start of a run.
. "$(dirname "$0")/lib.sh"
needs_engine
TMPDIR=$tmp
export TMPDIR

run 0 verify --short
says 'kernels .* bf16 .* pass$' 'step .* bf16 .* stored values .* pass$' 'repeat .* equal  *pass$' \
	'checkpoint .* equal  *pass$' '^\* not checked: kernels ref: the short check runs'
tail -n 1 out | grep -q '^[1-9][0-9]* passed, 0 failed, [1-9][0-9]* not checked in ' || wrong "last line: $(tail -n 1 out)"
grep -q '^.\{81,\}' out && wrong "lines over 80 columns"
ls -d "$tmp"/flatout-verify-* 2>/dev/null && wrong "the temporary folder was left"

FLATOUT_ISA=ref
export FLATOUT_ISA
run 0 verify --short --json
valid out
keys out schema short passed failed not_checked checks group against error bound result detail
grep -q '"group": "kernels avx2"' out && grep -q '"detail": "FLATOUT_ISA lowers the instruction set to ref"\|has no avx2' out ||
	wrong "avx2 is not named among what was not checked"

# Ranks against one rank: compared where asked for, never on a device.
grep -q ' ranks ' out && wrong "ranks are compared unasked"
run 0 verify --short --ranks=3 --json
valid out
[ "$(grep -c '"group": "3 ranks ref f64"' out)" = 4 ] || wrong "not four checks of three ranks in double precision"
grep -A 5 '"group": "3 ranks' out | grep -q '"result": "FAIL"' && wrong "three ranks are not as one"
run 0 verify --short --ranks=2
says '^ *2 ranks ref f64 .* one rank .* of 1e-11  *pass$' '^ *2 ranks ref fp32 .* one rank .* pass$'
refused 2 "'--ranks' must be an integer from 1 to 64 ranks, got '0'" verify --ranks=0

# No place for a checkpoint: not checked, which is neither a pass nor a failure.
TMPDIR=$tmp/absent
run 0 verify --short --threads=1
says '^\* not checked: checkpoint, saved and read back: cannot make a temporary folder'
grep -q '^ *checkpoint .* pass' out && wrong "a checkpoint that was not made passed"

refused 2 "unknown option" verify --shrt
refused 2 "unexpected argument\|takes" verify again
FLATOUT_ISA=avx9
refused 2 "not an instruction set" verify
unset FLATOUT_ISA
TMPDIR=$tmp

# At the start of a run: one line; without the option none.
make_text text
# shellcheck disable=SC2086 # words
run 0 train $tiny --run.dir=r --run.verify=short
says '^Verify: [1-9][0-9]* checks passed, 0 failed'
# shellcheck disable=SC2086
run 0 train $tiny --run.dir=q
grep -q '^Verify:' out && wrong "a run that did not ask for it was verified"
finish
