#!/bin/sh
# The benchmarks for CUDA devices, on the tests' software model of one: they tune as train.tune says, choose what is computed again as `flatout
# train` does, refuse what does not fit before they take it, say what was planned, taken and tuned; every part of bench/gpu/run comes to its
# end at a small size, and at full size lies within the memory that an H200 leaves.
. "$(dirname "$0")/lib.sh"
needs_engine
[ -n "${FLATOUT_SOFT_CUDA:-}" ] || { echo "$name: no software device in this build"; exit 77; }
build=${FLATOUT_SOFT_CUDA%/tests/cuda}
steps=$build/bench_train_vs_torch operations=$build/bench_gpu
[ -x "$steps" ] && [ -x "$operations" ] || { echo "$name: bench_gpu and bench_train_vs_torch are not built"; exit 77; }
FLATOUT_CUDA_LIBRARIES=$FLATOUT_SOFT_CUDA FLATOUT_CACHE=$tmp/cache
export FLATOUT_CUDA_LIBRARIES FLATOUT_CACHE
model="--model.layers=4 --model.hidden=64 --model.heads=4 --model.kv-heads=2 --model.head-dim=16 --model.ffn=128 --model.vocab=128 --data.seq=64"

# bench CODE PROGRAM OPTION...: output in ./out and ./err
bench() {
	want=$1 program=$2
	shift 2
	code=0
	"$program" "$@" >out 2>err </dev/null || code=$?
	judge "$(basename "$program") $*"
}
# step CODE OPTION...
step() {
	want_of_step=$1
	shift
	bench "$want_of_step" "$steps" $model --train.device=cuda --bench.rounds=1 --bench.warm=0 "$@"
}
valid_lines() {
	cp "$1" lines.jsonl
	valid lines.jsonl
}
# number KEY [FILE]: of the last line that has it; "null" counts as no number
number() { sed -n "s/.*\"$1\":\\([0-9.e+-]*\\)[,}].*/\\1/p" "${2:-out}" | tail -n 1; }
text() { sed -n "s/.*\"$1\":\"\\([^\"]*\\)\".*/\\1/p" "${2:-out}" | tail -n 1; }

# ---- tuning: each name does what it says; nothing said is `on` ----

# tuned PROGRAM MODE MEASURED KEPT: 0: none, 1: some
tuned() {
	[ "$(text mode)" = "$2" ] || wrong "$1 --train.tune=$2 says '$(text mode)'"
	for pair in "measured $3" "kept $4"; do
		n=$(number "${pair% *}")
		[ -n "$n" ] && [ $((n > 0)) = "${pair#* }" ] || wrong "$1 --train.tune=$2: '$n' products ${pair% *}"
	done
	[ "$(number proposed)" -gt 0 ] && [ -n "$(number gain)" ] || wrong "$1: not told what was proposed and gained"
}
for program in "$steps" "$operations"; do
	set -- $model --bench.rounds=1 --bench.warm=0 --train.device=cuda
	[ "$program" = "$steps" ] || set -- $model --bench.seconds=0.001 --bench.square=64 --bench.block=0.001
	short=$(basename "$program")
	rm -rf cache
	bench 0 "$program" "$@" --train.tune=kept
	tuned "$short" kept 0 0
	bench 0 "$program" "$@" --train.tune=off
	tuned "$short" off 0 0
	bench 0 "$program" "$@"
	valid_lines out
	tuned "$short" on 1 0
	bench 0 "$program" "$@" --train.tune=kept
	tuned "$short" kept 0 1
	bench 0 "$program" "$@" --train.tune=off
	tuned "$short" off 0 0
done

# ---- what the step line holds ----

step 0 --train.micro-batches=2 --train.tune=kept --pass.wgrad-lane=yes
valid_lines out
keys out choice recompute parts_ms parts_sum_ms timed_step_ms round_ms planned_bytes measured_bytes products code nvml joules_per_token mfu_causal
for phase in forward backward wgrad; do
	grep -q "\"operation\":\"matmul\",\"phase\":\"$phase\",\"unit\":\"layer\",\"lane\":\"[a-z0-9_]*\",\"count\":[0-9]*,\"ms\":" out || wrong "no time of layers' products, $phase"
done
# The parts are those of the operations of both lanes that compute, a moment in which both run half of each: their sum, and what the lanes
# waited for others, is the timed step without its gaps.
awk -v sum="$(number parts_sum_ms)" -v data="$(number data)" '/"lane":"(compute|wgrad)"/ && match($0, /"operation":.*"ms":[0-9.e+-]*/) { sub(/.*"ms":/, ""); sub(/,.*/, ""); s += $0 }
	END { d = s + data - sum; exit !(sum > 0 && d < 0.001 * sum + 1e-6 && d > -0.001 * sum - 1e-6) }' out ||
	wrong "the operations' times do not sum to parts_sum_ms"
cp out ran

# ---- the plan of a device that is not there: that of the one that is, its workspaces at least what they were ----

step 0 --train.micro-batches=2 --bench.plan=8GiB --pass.wgrad-lane=yes
valid out
for key in arena_bytes persistent_bytes; do
	[ "$(number $key)" = "$(number $key ran)" ] || wrong "$key: planned $(number $key), taken $(number $key ran)"
done
[ "$(number workspace_bytes)" -ge "$(number workspace_bytes ran)" ] || wrong "workspaces: planned $(number workspace_bytes), taken $(number workspace_bytes ran)"
cp out plan.steps
bench 0 "$operations" $model --train.micro-batches=2 --bench.plan=8GiB --pass.wgrad-lane=yes
same out plan.steps

# ---- memory: the choice of `flatout train`, or a sentence ----

wide="--train.rows=32 --train.micro-batches=1 --train.tune=off --train.inputs-ahead=no --pass.fuse-loss=512" # activations of 16 MiB, of which 6 are left where all is computed again
make_text text
size=18 # MiB: nothing computed again does not fit, something does
FLATOUT_SOFT_COUNTERS=$tmp/counters
export FLATOUT_SOFT_COUNTERS
run 0 train $model $wide --data.path=text --train.device=cuda --dry-run --eval.every=0 --memory.limit=${size}MiB --run.dir=no
chosen=$(tr '\n' ' ' <out | sed -n 's/  */ /g; s/.* [Aa]uto:* *recomputes \([^:]*\): [0-9.]* % of.*/\1/p')
case $chosen in '' | nothing) wrong "train computes nothing again at $size MiB: $(cat out)" ;; esac
step 0 $wide --memory.limit=${size}MiB
[ "$(text recompute)" = "$chosen" ] || wrong "train computes again '$chosen', the step benchmark '$(text recompute)'"
[ "$(number planned_bytes)" -le $((size << 20)) ] || wrong "planned $(number planned_bytes) of $size MiB"
bench 0 "$operations" $model $wide --memory.limit=${size}MiB --bench.only=embed --bench.seconds=0.001 --bench.square=64
[ "$(text recompute)" = "$chosen" ] || wrong "train computes again '$chosen', the benchmark of operations '$(text recompute)'"
for program in "$steps" "$operations"; do
	rm -f counters
	bench 3 "$program" $model $wide --train.device=cuda --memory.limit=${size}MiB --pass.recompute=none
	grep -q "^$(basename "$program"): the run plans at least .* and may use " err && grep -q "^hint: .*pass.recompute" err || wrong "not refused in a sentence: $(cat err)"
	# What plans of attention are tried on, given back; the arena that is refused takes more than $size MiB.
	[ "$(sed -n 's/.*"live_bytes": *\([0-9]*\).*/\1/p' counters)" = 0 ] && [ "$(sed -n 's/.*"peak_bytes": *\([0-9]*\).*/\1/p' counters)" -lt $((2 << 20)) ] ||
		wrong "memory was taken before the refusal: $(cat counters)"
done
unset FLATOUT_SOFT_COUNTERS

# ---- some operations alone ----

bench 0 "$operations" $model --bench.only=attention --pass.fuse-rope=no --bench.seconds=0.001 --bench.square=64
[ "$(grep '"operation":' out | sed 's/.*"operation":"\([^"]*\)".*/\1/' | tr '\n' ' ')" = "attention attention_bwd " ] || wrong "attention alone: $(cat out)"
bench 2 "$operations" $model --bench.only=nothing --bench.square=64
says "no operation of this step has 'nothing' in its name"

# ---- a product without a pause ----

bench 0 "$operations" --bench.sustain=0.3 --bench.square=64
valid_lines out
[ "$(grep -c '"window":' out)" -ge 2 ] || wrong "no windows: $(cat out)"
for key in burst_tflop_s settled_tflop_s settled_of_burst settled_seconds; do
	[ -n "$(number $key)" ] || wrong "no $key"
done
case $(text nvml) in "not readable: "*) ;; *) wrong "without NVML it says '$(text nvml)'" ;; esac
clock_is_1410() { awk -v hz="$(number sm_clock_hz)" 'BEGIN { exit !(hz > 1409.9e6 && hz < 1410.1e6) }'; } # a mean: the last bits are its own
if [ -n "${FLATOUT_FAKE_NVML:-}" ]; then
	FLATOUT_NVML=$FLATOUT_FAKE_NVML FAKE_NVML_PCI=0000:00:00.0 FAKE_NVML_CLOCKS=1980,1410
	export FLATOUT_NVML FAKE_NVML_PCI FAKE_NVML_CLOCKS
	bench 0 "$operations" --bench.sustain=0.3 --bench.square=64
	clock_is_1410 || wrong "the clock of the last half is '$(number sm_clock_hz)'"
	[ -n "$(number watts)" ] && [ -n "$(number hottest_c)" ] || wrong "power or temperature is missing: $(tail -n 1 out)"
	step 0 --train.tune=off
	clock_is_1410 && [ -n "$(number joules_per_token)" ] || wrong "the step has no clock or energy: $(tail -n 1 out)"
	unset FLATOUT_NVML FAKE_NVML_PCI FAKE_NVML_CLOCKS
fi

# ---- bench/gpu/run ----

parts="sustained ceilings long 8b fp8 small ladder torch torch1b"
# by_part FOLDER: results.jsonl, a file for each part
by_part() {
	awk -v folder="$1" 'match($0, /^{"part":"[a-z0-9]*"/) { part = substr($0, 10, RLENGTH - 10) } { print >(folder "/" part ".jsonl") }' "$1/results.jsonl"
}
GPU_SOFTWARE=$build
export GPU_SOFTWARE
# At full size, without a device: every step fits.
GPU_PLAN=plan "$source/bench/gpu/run" -o plans $parts >out 2>err || wrong "a part does not fit: $(grep failed out)$(cat err)"
by_part plans
awk '
	function number(key) { return match($0, "\"" key "\":[0-9-]+") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : -1 }
	/"plan_for"/ {
		n++
		may = number("total_bytes") - number("context_bytes") - number("reserve_bytes")
		if (number("arena_bytes") + number("persistent_bytes") + number("workspace_bytes") > may || number("left_bytes") < 0 || may > 147.1e9) bad++
		if (number("workspace_bytes") < 32 * 2 ^ 20) bad++ # cuBLASLt alone may ask for that
		if (number("seq") == 32768) long++
		if (/"model":"llama-3.1-8b","seq":8192,"recompute":"[^n]/) bad++ # 8k needs nothing computed again
	}
	END { exit !(n >= 36 && long >= 2 && !bad) }' plans/results.jsonl || wrong "plans at full size: $(grep plan_for plans/results.jsonl | cut -c 1-600)"
[ "$(grep -c '"command"' plans/fp8.jsonl)" = "$(grep -c '"command".*--pass.fp8-scale-precompute=yes' plans/fp8.jsonl)" ] ||
	wrong "a part of fp8 casts weights in every micro-batch"
GPU_PLAN=64GiB "$source/bench/gpu/run" -o small 8b >out 2>err && wrong "an 8B at 8k is said to fit 64 GiB"
grep -q "^8B, 8k, bf16 *failed (status 3)" out || wrong "what does not fit: $(cat out err)"

# At a small size, to the end; PyTorch's place takes a stand-in that answers as torch_train.py does.
mkdir path
cat >path/python3 <<'END'
#!/bin/sh
case $1 in
-c) exit 0 ;;
*/torch_train.py) ;;
*) exit 1 ;;
esac
line='{"step":0,"seconds":0.5,"tokens":32,"loss":5}'
case " $* " in
*" --lockstep "*) while read -r _; do echo "$line"; done ;;
*) for _ in 1 2 3 4 5; do echo "$line"; done ;;
esac
END
chmod +x path/python3
PATH=$PWD/path:$PATH "$source/bench/gpu/run" -o whole $parts >out 2>err || wrong "bench/gpu/run: $(grep failed out)$(cat err)"
! grep -q failed out || wrong "$(grep failed out)"
for part in $parts; do
	grep -q "^== $part$" out || wrong "part $part did not begin"
done
by_part whole
for file in sustained ceilings steps fp8 ladder torch torch1b; do
	[ -s whole/$file.jsonl ] || wrong "no $file.jsonl"
	valid_lines whole/$file.jsonl
done
# One object per command of ours that says what a run of flatout train would have said.
for file in steps fp8 ladder; do
	[ "$(grep -c '"command"' whole/$file.jsonl)" = "$(grep -c '"rounds":.*"choice":.*"products":' whole/$file.jsonl)" ] || wrong "$file.jsonl lacks results"
done
[ "$(grep -c '"step_ms_without_gaps":' whole/ceilings.jsonl)" = 2 ] && [ "$(grep -c '"ratio_median":' whole/torch1b.jsonl)" = 2 ] ||
	wrong "ceilings.jsonl or torch1b.jsonl lack results"
finish
