#!/bin/sh
# Figures for other tools, while training and by flatout export: which files, what they say without anybody else's reader
# (tests/cli/readers.sh has those), what is refused.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text
# metric FILE NAME: the value of a metric without further labels.
metric() { sed -n "s/^flatout_$2{run=\"[^\"]*\"} //p" "$1"; }
# logged FIELD STEP: as the log has it.
logged() { sed -n "s/^{\"event\":\"step\",\"step\":$2,.*\"$1\":\([^,}]*\)[,}].*/\1/p" r/log.jsonl | tail -n 1; }

run 0 train $tiny --run.dir=r --report.tensorboard=yes --report.prometheus=r.prom
[ "$(ls r/tensorboard | wc -l)" = 1 ] || wrong "not one event file: $(ls r/tensorboard)"
[ "$(metric r.prom step)" = 6 ] || wrong "r.prom has step $(metric r.prom step)"
[ "$(metric r.prom loss_nats)" = "$(logged loss 6)" ] || wrong "r.prom has loss $(metric r.prom loss_nats), the log $(logged loss 6)"
[ "$(metric r.prom checkpoint_step)" = 6 ] || wrong "r.prom has checkpoint $(metric r.prom checkpoint_step)"
[ ! -e r.prom.tmp ] || wrong "a half-made file is left"
awk '/^# HELP / { help = $3; next } /^# TYPE / { if ($3 != help || $4 != "gauge") exit 1; type = $3; next }
	{ n = $1; sub(/[{].*/, "", n); if (n != type || NF < 2) exit 1 }' r.prom || wrong "r.prom is not in the text format"
grep -q '^flatout_[a-z_]*{.*model="custom"' r.prom || wrong "r.prom names another model than what was trained: $(grep model= r.prom)"
# Nothing of it changes the run.
run 0 train $tiny --run.dir=plain
losses r >lr
losses plain >lp
same lr lp
[ ! -e plain/tensorboard ] || wrong "event files that nobody asked for"
# Goes on with a file of its own; a run that is done writes none.
run 0 train $tiny --run.dir=r --train.steps=8 --report.tensorboard=yes
run 0 train $tiny --run.dir=r --train.steps=8 --report.tensorboard=yes
[ "$(ls r/tensorboard | wc -l)" = 2 ] || wrong "not two event files: $(ls r/tensorboard)"
# What cannot be written is a warning.
run 0 train $tiny --run.dir=w --report.tensorboard=text/doc00.txt/x --report.prometheus=none/x.prom
says "^warning.*nothing is written for TensorBoard: cannot " "^warning.*cannot write 'none/x.prom'"
[ "$(grep -c 'none/x.prom' err)" = 1 ] || wrong "warned more than once"

run 0 export r --tensorboard boards/r --prometheus e.prom --trace t.json
says '^wrote boards/r/events.out.tfevents.*: 8 steps' '^wrote e.prom: as of step 8' '^wrote t.json: '
[ "$(metric e.prom tokens_per_second)" != "" ] && [ "$(metric e.prom step)" = 8 ] || wrong "e.prom lacks figures"
grep -q 'model="custom"' e.prom || wrong "e.prom names another model than what was trained: $(grep model= e.prom)"
valid t.json
keys t.json traceEvents ph ts dur operands model_flop micro_batch # of the last steps, though the last command had none to do
# The size is the file's, compressed or not.
run 0 export r --trace t.json.gz
size=$(awk -v b="$(wc -c <t.json.gz)" 'BEGIN { x = b / 1024; printf x < 9.995 ? "%.2f" : x < 99.95 ? "%.1f" : "%.0f", x }')
says "^wrote t.json.gz: $size KiB; open it"
run 0 export r --trace t.json --json
valid out
keys out schema trace
run 0 predict --compare r --profile "${FLATOUT_SOURCE:-.}/fuzz/corpus/profile/two_cores.json" --run.threads=2 --timeline p.fot
run 0 export --program r/program.txt --predicted p.fot --trace p.json
valid p.json
keys p.json traceEvents
run 0 export r --predicted p.fot --trace both.json
for who in 'measured: r' 'predicted: p.fot'; do grep -q "$who" both.json || wrong "no process '$who'"; done

refused 2 'nothing to write' export r
refused 2 'which run' export --trace x.json
refused 2 '.--predicted is for a trace' export r --prometheus x.prom --predicted p.fot
refused 2 'leave out --program' export r --trace x.json --program r/program.txt
refused 2 "'text' is not a run directory" export text --trace x.json
refused 3 "'nowhere'" export nowhere --trace x.json
refused 3 "cannot write 'no/x.json'" export r --trace no/x.json
# Nothing is written where something cannot be.
refused 3 "cannot write 'no/x.json'" export r --tensorboard none --prometheus none.prom --trace no/x.json
[ ! -e none ] && [ ! -e none.prom ] || wrong "half of an export that failed"
run 0 train $tiny --run.dir=o --pass.merge-qkv=no
refused 2 "is of another step program than 'o/program.txt'" export o --trace x.json --predicted p.fot
flip r/timeline.fot
refused 2 "'r/timeline.fot' is damaged" export r --trace x.json
rm r/timeline.fot
refused 2 "there is no 'r/timeline.fot'" export r --trace x.json
says "was the run killed"
# While its lock is held it is not dead.
if command -v flock >/dev/null; then
	flock r/lock "$bin" export r --tensorboard none --trace x.json >out 2>err && wrong "a trace of a run that still trains"
	grep -q 'still training' err && ! grep -q killed err || wrong "a run that trains: $(cat err)"
	[ ! -e none ] || wrong "half of an export that failed"
fi
[ ! -e x.json ] && [ ! -e x.json.tmp ] || wrong "a trace of nothing"
finish
