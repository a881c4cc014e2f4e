#!/bin/sh
# What 'flatout plan' writes for torchtitan, Megatron-LM and DeepSpeed, read by their own parsers (tests/readers/README.md);
# what is not installed is left out, and where nothing is the test is skipped.
. "$(dirname "$0")/lib.sh"
venv=${FLATOUT_FRAMEWORKS:-$source/build/venv-frameworks}
python=$venv/bin/python
[ -x "$python" ] || { echo "$name: no $venv"; exit 77; }
read=0
for framework in deepspeed megatron torchtitan; do
	status=0
	PYTHONDONTWRITEBYTECODE=1 CUDA_VISIBLE_DEVICES= "$python" "$source/tests/readers/frameworks.py" "$bin" $framework "$venv/megatron" >said 2>err || status=$?
	case $status in
	0) read=$((read + 1)) ;;
	77) echo "$name: $(grep "^$framework: " said | tail -n 1): left out" ;;
	*) wrong "$framework refuses settings: $(grep -A 3 "^$framework: REFUSED" said | head -n 12) $(tail -n 2 err)" ;;
	esac
done
[ "$read" -gt 0 ] || [ "$failed" != 0 ] || { echo "$name: none of tests/readers/frameworks.txt is installed"; exit 77; }
finish
