#!/bin/sh
# flatout predict: a small profile by hand, what it says of a step, and a run beside its prediction.
. "$(dirname "$0")/lib.sh"

# row KIND VARIANT DTYPE FLOP BYTES SECONDS SHAPE
row() {
	printf '{"kind":"%s","variant":"%s","dtype":"%s","set":"ref","threads":1,"shape":[%s],"flop":%s,"bytes":%s,"quiet_median_s":%s,"quiet_best_s":%s,"quiet":40,"median_s":%s,"best_s":%s,"spans":40,"date":"2026-11-21T12:00:00Z"}' \
		"$1" "$2" "$3" "$7" "$4" "$5" "$6" "$6" "$6" "$6"
}
# profile SECONDS: a product of 1 GFLOP and a copy of 100 MB take so long.
profile() {
	cat <<-END
	{"schema":1,"cpu":"Example","isa":"ref","cache_bytes":1048576,"date":"2026-11-21T12:00:00Z","method":"by hand",
	"peaks":[{"dtype":"bf16","threads":1,"set":"ref","best_flop_s":2e11,"median_flop_s":2e11,"bursts":40,"clean_bursts":40,"date":"2026-11-21T12:00:00Z","method":"by hand"}],
	"rows":[$(row matmul forward bf16 1e9 1e6 "$1" "64, 64, 64"),$(row copy plain - 0 1e8 "$1" 100000000)]}
	END
}
profile 0.01 >one.json
profile 0.02 >two.json
# number KEY FILE
number() { sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*\$/\1/p" "$2" | head -n 1; }

run 0 predict $tiny --profile=one.json
says "^Predict: .*: 2 micro-batches x 2 rows x 32 tokens, bf16" "^Machine: *Example, 1 thread" "^MFU: " "^Memory: " "^ *matmuls  " "^ *operations  "
if LC_ALL=C.UTF-8 awk 'length($0) > 80' out | grep -q .; then
	wrong "wider than 80 columns: $(awk 'length($0) > 80' out | head -n 2)"
fi
# A step that is mostly guessed says so first and marks its time; no row is nothing; no two rows are called alike.
head -n 1 out | grep -q '^Guessed: .* % of the step time' || wrong "does not begin with what is guessed: $(head -n 1 out)"
says "^Step: *~" "of the step alone" "flatout train --dry-run"
! grep -E ' 0\.0 %' out || wrong "rows of nothing"
! grep -q 'RUN.YAML' out || wrong "a file that nobody named"
run 0 predict $tiny --profile=one.json --all
sed -n '/^ *operations /,$p' out | sed -n '3,$p' | sed 's/^ *//; s/  .*//' | sort | uniq -d >twice
[ ! -s twice ] || wrong "rows alike: $(cat twice)"
says "layer.b matmul.backward wqkv"
run 0 predict $tiny --profile=one.json --timeline=t.fot --json
cp out one
valid one
keys one operand schema model machine threads step_seconds tokens_per_second mfu mfu_causal mfu_document mfu_6n hfu peak_flop_s arena_bytes \
	persistent_bytes sure_share parts_seconds operations predicted_seconds sure
[ -s t.fot ] || wrong "no timeline was written"
# Parts sum to the step, and so do the operations here, where the executor's overhead was not measured.
step=$(number step_seconds one)
awk -v step="$step" '/"parts_seconds"/ { on = 1; next } on && /}/ { exit } on { gsub(",", ""); sum += $2 }
	END { exit !(sum > 0.999999 * step && sum < 1.000001 * step) }' one || wrong "parts do not sum to the step"
awk -v step="$step" -F': ' '/"predicted_seconds"/ { gsub(",", ""); sum += $2 } END { exit !(sum > 0.999999 * step && sum < 1.000001 * step) }' one ||
	wrong "operations do not sum to the step"
# A machine of half the speed takes twice as long; its MFU is half.
run 0 predict $tiny --profile=two.json --json
cp out two
awk -v a="$step" -v b="$(number step_seconds two)" 'BEGIN { exit !(b / a > 1.999 && b / a < 2.001) }' || wrong "half the speed: $step s, then $(number step_seconds two) s"
# A table of this machine's runs is scored with the same figure; what cannot be predicted says why.
mkdir table && cp one.json table/
printf 'group,ranks,mesh,options,profile,step_seconds\nhere,1,1x1,%s,one.json,%s\nhere,1,1x1,--nope=1,one.json,1\nhere,1,none,%s,absent.json,1\n' \
	"$tiny" "$step" "$tiny" >table/runs.csv
run 0 score table/runs.csv --json
awk -F': ' '/"mean_abs_error"/ { gsub(",", ""); exit !($2 < 1e-5) }' out || wrong "a run as predicted is not scored as exact: $(cat out)"
run 0 score table/runs.csv
says "2 of 3 rows were left out" "unknown option '--nope'" "absent.json"
run 0 score table/runs.csv --machine two.json --out=rows.csv
grep -q '^2,.*,"here","1x1",' rows.csv || wrong "rows.csv lacks the run: $(cat rows.csv)"
says "here .*1x1 .*+100.0"
# The memory is what flatout program plans.
run 0 program $tiny --json
[ "$(number arena_bytes out)" = "$(number arena_bytes one)" ] || wrong "another arena than flatout program's"
# Documents end attention: less of it is executed, and nothing else changes.
run 0 predict $tiny --profile=one.json --documents=4 --json
awk -v a="$(number hfu one)" -v d="$(number step_seconds out)" -v s="$step" 'BEGIN { exit !(d < s) }' || wrong "documents take as long as unbroken rows"
# Nothing near was measured here, and that is said.
run 0 predict $tiny --profile=one.json
says "^Sure: .*0 %.*" "guessed"
# What cannot be.
FLATOUT_CACHE=$tmp/none
export FLATOUT_CACHE
: >run.yaml
refused 3 "has not been measured" predict $tiny
says "'flatout calibrate' makes one"
refused 2 "cannot train model 'gpt2'" predict --model.name=gpt2
refused 3 "no times of matmuls and memory with 3 threads" predict $tiny --run.threads=3 --profile=one.json
refused 2 "is not a machine profile" predict $tiny --profile="$0"
refused 3 "nowhere" predict $tiny --profile=nowhere.json
refused 2 "would say it twice" predict run.yaml --compare=run --profile=one.json
refused "2|3" "nowhere" predict --compare=nowhere --profile=one.json
# Without run.threads the prediction is of the run that training makes here: with as many threads, or of none.
FLATOUT_CACHE=$tmp/own
run 3 predict $tiny
own=$(sed -n "s/.*there is no profile '\(.*\)'.*/\1/p" err)
mkdir -p "$tmp/own"
cp one.json "$own" || wrong "no path of the profile: $(cat err)"
all=$(printf '%s' "$tiny" | sed 's/--run.threads=1//')
echo 'model: {layers: 1}' >some.yaml
run 0 predict $tiny
if [ "$(nproc)" -gt 1 ]; then
	refused 3 "no times of matmuls and memory with [0-9]* threads" predict some.yaml $all
	says "^hint: 'flatout calibrate some.yaml' with the options given here measures what this run needs"
	threads=$(sed -n 's/.*memory with \([0-9]*\) threads.*/\1/p' err)
	refused 3 "with $threads threads" predict some.yaml
	says "^hint: 'flatout calibrate some.yaml' measures what this run needs"
fi
FLATOUT_CACHE=$tmp/none
# Options beside a program that was made otherwise.
run 0 program $tiny --pass.recompute=full --dump=full.txt
run 0 predict --program.file=full.txt --profile=one.json
refused 2 "contradict the program in 'full.txt': pass.recompute is full there, not none" predict --program.file=full.txt \
	--pass.recompute=none --profile=one.json
refused 2 "contradict .*model.layers is 1 there, not 7" predict --program.file=full.txt --model.layers=7 --profile=one.json
# Without a peak there is no MFU, and the rest stands.
sed 's/"dtype":"bf16","threads":1,"set":"ref","best/"dtype":"f32","threads":1,"set":"ref","best/' one.json >nopeak.json
run 0 predict $tiny --profile=nopeak.json
says "^MFU: *not known"
run 0 predict $tiny --profile=nopeak.json --json
grep -q '"mfu": null' out || wrong "an MFU without a peak"
valid out

[ -n "${FLATOUT_HAS_ENGINE:-}" ] || finish
make_text text
if [ -n "${threads:-}" ]; then
	run 0 train $all --run.dir=threads
	grep -q "\"event\":\"start\".*\"threads\":$threads[,}]" threads/log.jsonl || wrong "predict took $threads threads, training others: $(head -n 1 threads/log.jsonl)"
fi
run 0 train $tiny --run.dir=run
run 0 predict --compare=run --profile=one.json --all
says "^Compared: " "of the timeline" "train.metered-every" "^ *where it is off most" "adamw_master_many"
! grep -w nan out || wrong "a figure that is not known is printed as nan"
! awk 'length($0) > 80' out | grep . || wrong "wider than 80 columns"
run 0 predict --compare=run --profile=one.json --json
valid out
keys out compared with steps measured_seconds predicted_seconds useful_tokens_per_second attention_pairs
grep -q '"with": "timeline"' out || wrong "compared with something else than the timeline"
# Documents of the run end its attention: fewer pairs than two rows of 32 tokens have.
awk -v p="$(number attention_pairs out)" 'BEGIN { exit !(p > 0 && p < 1056) }' || wrong "$(number attention_pairs out) pairs in a micro-batch"
# Metered steps are preferred.
run 0 train $tiny --run.dir=metered --train.metered-every=2
run 0 predict --compare=metered --profile=one.json --json
grep -q '"with": "metered"' out || wrong "metered steps were not used"
run 0 predict --compare=metered --profile=one.json
says "metered step" "quiet spans"
# A run folder without what is needed.
rm run/timeline.fot
refused 2 "neither metered steps nor a timeline" predict --compare=run --profile=one.json
rm metered/program.txt
refused 2 "no program.txt" predict --compare=metered --profile=one.json
finish
