#!/bin/sh
# flatout calibrate: showing a profile, refusing others, and a short calibration of this machine.
. "$(dirname "$0")/lib_expect.sh"
FLATOUT_CACHE=$tmp/cache
export FLATOUT_CACHE
good=$FLATOUT_SOURCE/fuzz/corpus/profile/two_cores.json

# Plain letters where the terminal speaks no UTF-8; nothing wider than 80 columns.
LC_ALL=C expect 0 "memory 38.8 GB/s (copy)" calibrate --show "$good"
narrow
LC_ALL=C expect 0 "peak 206 GFLOP/s" calibrate --show "$good"
LC_ALL=C expect 0 "Collectives: not measured: " calibrate --show "$good"
LC_ALL=C expect 0 "512x12x12x64" calibrate --show "$good" --all
narrow
if LC_ALL=C grep -q '[^ -~]' "$tmp/out"; then
	printf 'FAILED: bytes beyond ASCII for a terminal without UTF-8\n'
	failed=1
fi
LC_ALL=C.UTF-8 expect 0 "●" calibrate --show "$good"
expect 0 '"schema": 1' calibrate --show "$good" --json

expect 0 "attention" calibrate --show "$good" --svg "$tmp/roofline.svg"
grep -q 'Example Processor &#60;2 cores&#62; &#38; &#34;quoted&#34;' "$tmp/roofline.svg" || { printf 'FAILED: names in the SVG\n'; failed=1; }
if command -v xmllint >/dev/null && ! xmllint --noout --nonet "$tmp/roofline.svg"; then
	printf 'FAILED: the SVG is not XML\n'
	failed=1
fi

expect 3 "flatout calibrate' measures this machine" calibrate --show
expect 3 "none.json" calibrate --show "$tmp/none.json"
expect 2 "two_cores.json:2: unknown key" calibrate "$good"
expect 2 "unexpected argument" calibrate --show "$good" "$good"
expect 3 "cannot" calibrate --show "$good" --svg "$tmp/no/folder/x.svg"
sed 's/"schema": 1/"schema": 7/' "$good" >"$tmp/bad.json"
expect 2 "schema is 7, expected 1" calibrate --show "$tmp/bad.json"
sed 's/"spans": 90/"spans": 1/' "$good" >"$tmp/bad.json"
expect 2 "rows[0].quiet: expected an integer" calibrate --show "$tmp/bad.json"
printf '{"schema":1,"error' >"$tmp/bad.json"
expect 2 "bad.json" calibrate --show "$tmp/bad.json" --json
expect 3 "flatout calibrate' measures this machine" mfu --params 7e9 --device this --devices 1 --tokens-per-second 1

if [ -z "${FLATOUT_HAS_ENGINE:-}" ]; then
	expect 3 "no kernels to measure" calibrate
	exit $failed
fi

# A second is enough for some rows, and for the whole way through: measure, write, read, show.
expect 0 "written to $tmp/cache/machine-" calibrate --seconds 1 --threads 1
expect 0 "memory-bound" calibrate --show
expect 0 '"kind":"matmul"' calibrate --show --json
expect 0 '"state": {' calibrate --show --json
LC_ALL=C expect 0 "Machine meanwhile: " calibrate --show
narrow
expect 0 "TFLOP/s per device, fp32, measured" mfu --params 1e6 --device this --devices 1 --tokens-per-second 1 --dtype fp32
expect 0 '"peak_kind": "measured"' mfu --params 1e6 --device this --devices 1 --tokens-per-second 1 --json
expect 2 "no published dense peak for fp8" mfu --params 1e6 --device this --devices 1 --tokens-per-second 1 --dtype fp8
expect 0 '"threads": 2' calibrate --seconds 1 --quick --threads 2 --out "$tmp/own.json" --json
expect 0 "peak" calibrate --show "$tmp/own.json"
expect 2 "threads' must be" calibrate --threads -1

# Of a run: its operations, added to what is there; the prediction then goes by nothing else.
printf 'model:\n  layers: 2\n  hidden: 64\n  heads: 2\n  kv-heads: 1\n  head-dim: 32\n  ffn: 128\n  vocab: 300\ndata:\n  seq: 64\nrun:\n  threads: 1\n' >"$tmp/run.yaml"
general() { grep -e '"kind":"\(read\|write\|copy\|overhead\)"' -e '"kind":"matmul"' "$1" | grep -v '"key"' | sed 's/,$//' | sort; }
general "$tmp"/cache/machine-*.json >"$tmp/before"
# Four seconds are enough for all rows of this run, but not where the machine is busy: what is there is kept, so again adds the rest.
all_rows()
{
	for _ in 1 2 3 4 5; do
		"$FLATOUT_BIN" predict "$tmp/run.yaml" --json 2>/dev/null | grep -qF '"exact": 1,' && return
		"$FLATOUT_BIN" calibrate "$tmp/run.yaml" --seconds 4 >/dev/null 2>&1 </dev/null
	done
}
expect 0 '"schema": 1' calibrate "$tmp/run.yaml" --seconds 4 --json
all_rows
general "$tmp"/cache/machine-*.json >"$tmp/after"
# Bit for bit: memory, products in general and the executor were not measured again.
[ -z "$(comm -23 "$tmp/before" "$tmp/after")" ] || { printf 'FAILED: a run replaced what is not its own\n'; failed=1; }
# A profile that lacks memory gets it all the same: a prediction needs it.
for _ in 1 2 3 4 5 6; do # a busy machine may have no time for a matmul: what is there is kept
	"$FLATOUT_BIN" calibrate "$tmp/run.yaml" --seconds 4 --out "$tmp/fresh.json" >/dev/null 2>&1 </dev/null
	! grep -q '"matmul' "$tmp/fresh.json" || break
done
expect 0 '"kind":"copy"' calibrate "$tmp/run.yaml" --seconds 4 --out "$tmp/fresh.json" --json
expect 0 '"kind":"overhead"' calibrate --show "$tmp/fresh.json" --json
expect 0 '"exact": 1,' predict "$tmp/run.yaml" --json
# Options that are not those of the run's shapes change nothing; of its shapes they do.
expect 0 '"exact": 1,' predict "$tmp/run.yaml" --optim.lr=1e-4 --json
expect 0 '"exact": 0' predict "$tmp/run.yaml" --data.seq=32 --json
# Documents: attention in rows of them was not measured, then it was.
# Rows of attention with their FLOP: unbroken, and with documents too. Between the two a prediction interpolates, as documents differ.
expect 0 '"sure": "interpolated"' predict "$tmp/run.yaml" --documents 10 --json
attention() { grep '"kind":"attention",' "$tmp"/cache/machine-*.json | grep -c '"key"'; }
[ "$(attention)" = 1 ] || { printf 'FAILED: %s rows of attention before documents\n' "$(attention)"; failed=1; }
for _ in 1 2 3 4 5; do
	[ "$(attention)" = 2 ] || expect 0 '"schema": 1' calibrate "$tmp/run.yaml" --seconds 4 --documents 10 --json
done
[ "$(attention)" = 2 ] || { printf 'FAILED: %s rows of attention with documents\n' "$(attention)"; failed=1; }
# What the first of the two found missing the second keeps.
general "$tmp"/cache/machine-*.json >"$tmp/again"
grep -q '"kind":"copy"' "$tmp/again" && cmp "$tmp/after" "$tmp/again" || { printf 'FAILED: memory was measured again\n'; failed=1; }
expect 2 "unknown option '--data.sqe'" calibrate "$tmp/run.yaml" --show --data.sqe=5
exit $failed
