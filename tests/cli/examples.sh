#!/bin/sh
# The traces of examples/trace: they say what their README says they say, and come from the script beside them.
. "$(dirname "$0")/lib_expect.sh"
folder=$FLATOUT_SOURCE/examples/trace
run="--model llama-3.2-1b --seq 2048 --tokens-per-step 8192"

# shellcheck disable=SC2086 # words on purpose
expect 1 "Bottleneck:  the GPU waits for data: 29.9 % of the step" diagnose "$folder/slow-loader.json.gz" $run
grep -q '^MFU: *32\.2 %' "$tmp/out" && grep -q 'DataLoader(num_workers=) (now 0)' "$tmp/out" || { echo "FAILED: $(cat "$tmp/out")"; failed=1; }
# shellcheck disable=SC2086
expect 1 "45.8 % (rule mfu, bf16)" diagnose "$folder/four-workers.json.gz" $run
grep -q 'waits for data' "$tmp/out" && { echo "FAILED: the cured run is told to wait for data"; failed=1; }
expect 0 "B's step takes 0.704 times as long as A's" compare "$folder/slow-loader.json.gz" "$folder/four-workers.json.gz"
awk 'length > 80' "$tmp/out" | grep . && { echo "FAILED: lines over 80 columns"; failed=1; }

for file in slow-loader four-workers; do
	size=$(stat -c %s "$folder/$file.json.gz")
	[ "$size" -le 102400 ] || { echo "FAILED: $file.json.gz has $size bytes"; failed=1; }
done
# Compressors differ between versions, what they pack does not.
if command -v python3 >/dev/null 2>&1; then
	python3 "$folder/make_trace.py" "$tmp/slow-loader.json.gz" && python3 "$folder/make_trace.py" --workers 4 --seed 2 "$tmp/four-workers.json.gz" || failed=1
	for file in slow-loader four-workers; do
		gzip -dc "$folder/$file.json.gz" >"$tmp/committed"
		gzip -dc "$tmp/$file.json.gz" | cmp - "$tmp/committed" || { echo "FAILED: make_trace.py makes another $file.json.gz"; failed=1; }
	done
else
	echo "examples: no python3 here: make_trace.py was not run"
fi
exit $failed
