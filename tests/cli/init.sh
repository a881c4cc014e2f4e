#!/bin/sh
# flatout init: a run file that the other commands take.
. "$(dirname "$0")/lib.sh"

run 0 init
says "^wrote run.yaml"
[ -z "$(awk 'length($0) > 80' out)" ] || wrong "wider than 80 columns: $(cat out)"
[ -s run.yaml ] || wrong "no run.yaml"
grep -q '^ *#' run.yaml || wrong "the file has no comments"
# Every option of a run is in the file, with the value that `config` shows.
if [ -n "${FLATOUT_HAS_ENGINE:-}" ]; then "$bin" help train; else "$bin" help config; fi >help
awk '/^  --[a-z]+\.[a-z-]+/ { sub(/^--/, "", $1); print $1 }' help >options
[ "$(wc -l <options)" -gt 30 ] || wrong "the help lists only $(wc -l <options) options"
while read -r key; do
	grep -qE "^(# *)?  *(# *)?${key#*.}:" run.yaml || wrong "'$key' is not in run.yaml"
done <options
run 0 config run.yaml
says "^ *model.layers  *6 layers  *run.yaml:" "^ *train.steps  *300 steps  *run.yaml:"
run 0 config run.yaml --json
cp out config.json
valid config.json
run 0 program run.yaml --no-operations
if [ -n "${FLATOUT_HAS_ENGINE:-}" ]; then
	run 0 train run.yaml --dry-run
	says "^Memory: "
	[ -z "$(awk 'length($0) > 80' out)" ] || wrong "a dry run is wider than 80 columns: $(cat out)"
	run 0 train run.yaml --dry-run --json
	valid out
	keys out schema model params flop_per_token micro_batches rows seq precision slots memory total_bytes kernels peak_flop_s
fi
# The command's own options are no keys of a run.
! grep -q '^cli' run.yaml || wrong "the file has options of the command"

# It is never overwritten, whatever it is.
cp run.yaml before.yaml
refused 2 "'run.yaml' is there and may hold somebody's changes: not replaced" init
says "^hint: another name, or --force"
same run.yaml before.yaml
refused 2 "is there" init run.yaml --train.steps=500
same run.yaml before.yaml
mkdir folder
refused 2 "'folder' is a folder" init folder
: >hollow.yaml # nothing to lose
run 0 init hollow.yaml
run 0 init run.yaml --train.steps=500 --force
grep -q "steps: 500" run.yaml || wrong "--force did not write the file anew"
refused 3 "missing/run.yaml" init missing/run.yaml
: >file
refused 3 "file/run.yaml" init file/run.yaml

# Flags and the environment go into the file.
FLATOUT_TRAIN_ROWS=3 run 0 init mine.yaml --train.steps=2000 --optim.lr=1e-3 --data.path='a "strange": #name, {x}' --sample.prompt='' \
	--model.layers=2
run 0 config mine.yaml
says "^ *train.steps  *2000 steps  *mine.yaml:" "^ *train.rows  *3 rows  *mine.yaml:" "^ *optim.lr  *0.001  *mine.yaml:" "^ *model.layers  *2 layers  *mine.yaml:" \
	'^ *data.path  *a "strange": #name, {x}  *mine.yaml:'
run 0 init named.yaml --model.name=llama-3.2-1b
run 0 config named.yaml
says "^ *model.name  *llama-3.2-1b" "^ *model.layers  *0 layers"
run 0 init object.yaml --json
valid out
grep -q '"file": *"object.yaml"' out || wrong "init --json does not name the file"

run 0 init short.yaml --train.steps=20
run 0 config short.yaml

# What follows from the number of steps still does so when that changes; two settings that cannot be together are named with both values.
run 0 config run.yaml --train.steps=25
says "^ *optim.warmup  *2 steps  *train.steps"
if [ -n "${FLATOUT_HAS_ENGINE:-}" ]; then
	run 0 train run.yaml --steps=25 --dry-run
fi
run 0 init long.yaml --train.steps=5000
run 0 config long.yaml --steps=25
run 0 init fixed.yaml --optim.warmup=30
refused 2 "optim.warmup is 30 steps, longer than train.steps (25)" config fixed.yaml --steps=25
# So do the model and the tokenizer of foreign weights.
run 0 init first.yaml --model.weights=one
refused 2 "unknown model 'two'" config first.yaml --model.weights=two

# What is wrong is not written.
refused 2 "train.steps' must be an integer" init bad.yaml --train.steps=many
refused 2 "optim.warmup is 500 steps, longer than train.steps" init bad.yaml --optim.warmup=500
refused 2 "unexpected argument 'b.yaml'" init a.yaml b.yaml
run 2 init bad.yaml --train.steps=0 --data.seq=1
[ "$(grep -c '^flatout: ' err)" = 2 ] || wrong "two mistakes are not two lines: $(cat err)"
[ ! -e bad.yaml ] && [ ! -e a.yaml ] || wrong "a file was written in spite of a mistake"
[ -z "$(find . -name '*.tmp')" ] || wrong "temporary files are left"
"$bin" init "$(printf 'esc\033[31m.yaml')" >out 2>err
if LC_ALL=C tr -d '\n\t\040-\176\200-\377' <out | grep -q .; then
	wrong "control characters of a file's name reach the terminal"
fi

# With foreign weights the sizes are theirs.
run 0 init weights.yaml --model.weights=somewhere
grep -q '^  hidden: 0' weights.yaml || wrong "sizes of its own beside model.weights"
run 0 init plain.yaml
grep -q '^  hidden: 256' plain.yaml || wrong "no sizes for a first run"
# The number of ranks is left to a launcher or the mesh.
grep -q '^  # ranks: 1' plain.yaml || wrong "the file insists on one rank"
run 0 program plain.yaml --mesh.shard=2 --no-operations

if [ -n "${FLATOUT_HAS_ENGINE:-}" ]; then
	make_text text
	run 0 init small.yaml $tiny --run.dir=r
	run 0 train small.yaml
	says "^step 6/6 loss"
	[ -s r/checkpoints/step-00000006/model.safetensors ] || wrong "the run of an init file leaves no checkpoint"
	grep -q '"where": "small.yaml:' r/run.json || wrong "run.json does not know the file"
fi
finish
