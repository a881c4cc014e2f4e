#!/bin/sh
# No command overwrites what it did not write: every option that names a file, as the program itself lists them. A new option of that
# kind is part of this test by itself; one whose command needs arguments wants them in arguments_of below.
. "$(dirname "$0")/lib.sh"
HOME=$tmp/home
export HOME
mkdir "$HOME"

# ---- what the commands need ----

rundir() {
	mkdir -p "$1"
	printf '{"schema": 1, "run": {"options": {}}, "passes": "none", "machine": {"cpu": "x", "threads": 1, "peak_flop_s": 1e11}, "seed": 1}\n' >"$1/run.json"
	awk 'BEGIN { for (i = 1; i <= 20; i++)
		printf "{\"event\":\"step\",\"step\":%d,\"loss\":%g,\"grad_norm\":1,\"lr\":0.001,\"seconds\":0.1,\"tokens\":512,\"loss_tokens\":500,\"tokens_per_second\":5000,\"mfu\":0.5,\"mfu_causal\":0.5,\"mfu_document\":0.5,\"mfu_6n\":0.5,\"hfu\":0.5,\"time\":%d}\n", i, 5 - i / 10, 1795000000 + i }' >"$1/log.jsonl"
}
rundir log
rundir log2
cat >trace.json <<'END'
{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
"traceEvents": [
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 10, "dur": 5, "args": {"correlation": 1}},
{"ph": "X", "cat": "kernel", "name": "ampere_bf16_gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 900, "args": {"device": 0, "stream": 7, "correlation": 1}}
]}
END
make_text text
for i in 1 2 3 4 5 6; do echo "iter $i: loss 2.0000, time 2000.00ms, mfu 21.23%"; done >nano.log
"$bin" program $tiny --dump=step.txt >/dev/null 2>&1 || wrong "no program"
cp "$source/tests/data/audit/titan_8b_8xh100_tuned.toml" titan.toml
profile=$source/fuzz/corpus/profile/two_cores.json
cp "$profile" profile.json
cp "$source/data/published_runs.csv" runs.csv
"$bin" predict --program.file=step.txt --run.threads=1 --profile=profile.json --timeline=step.fot >/dev/null 2>err || wrong "no timeline: $(cat err)"

# arguments_of COMMAND FLAG: with these the command succeeds in no time. "-": it does not; only its refusals are tested.
arguments_of() {
	case "$1 $2" in
	"flops "*) echo "--model=llama-3.1-8b --seq=128" ;;
	"mfu --html" | "mfu --csv") echo "nano.log" ;;
	"price "*) echo "--mfu=40 --devices=8" ;;
	"score "*) echo "runs.csv --fit=no --alone" ;;
	"audit "*) echo "titan.toml --cluster=8xHGX-H100" ;;
	"health "*) echo "nano.log" ;;
	"mfu "*) echo "--params=8B --device=h100 --devices=8 --tokens-per-second=1000" ;;
	"devices "* | "ops "* | "machine "* | "passes "* | "config "*) ;;
	"program --svg") echo "--schedule=1f1b" ;;
	"program "*) echo "$tiny" ;;
	"plan machine "*) echo "$tiny --train.rows=2 --ranks=2 --run.threads=2 --profile=profile.json --fix=tp=1,cp=1,pp=1" ;;
	"plan "* | "scale "*) echo "--model=llama-3.1-8b --cluster=1xHGX-H100 --seq=2048 --global-batch=8 --framework=deepspeed" ;;
	"predict cluster "*) echo "titan.toml --cluster=8xHGX-H100" ;;
	"ladder plan "*) echo "titan.toml --cluster=8xHGX-H100" ;;
	"predict --trace") echo "$tiny --train.rows=2 --ranks=2 --run.threads=2 --profile=profile.json" ;;
	"predict "*) echo "--program.file=step.txt --run.threads=1 --profile=profile.json" ;;
	"init "*) echo "init$n.yaml" ;;
	"compare clusters "*) echo "--clusters=1xHGX-H100,1xHGX-B200 --model=llama-3.1-8b --seq=2048 --global-batch=8 --framework=deepspeed" ;;
	"compare "*) echo "log log2" ;;
	"report "*) echo "log" ;;
	"diagnose "*) echo "trace.json" ;;
	"calibrate --out") echo "-" ;;
	"calibrate "*) echo "--show profile.json" ;;
	"export --csv" | "export --chrome") echo "trace.json" ;;
	"export --json") echo "trace.json --csv=csv$n.csv" ;;
	"export --trace") echo "--program step.txt --predicted step.fot" ;;
	"export "*) echo "log" ;;
	"status "* | "ladder "* | "demo "* | "generate "* | "eval "* | "verify "* | "data inspect "*) echo "-" ;;
	"data prepare "*) echo "text --vocab=300 --holdout=10 --out=prepared$n" ;;
	"data train-tokenizer "*) echo "text --vocab=300 --out=tokenizer$n.json" ;;
	"train "*) echo "$tiny --run.dir=run$n" ;;
	*) wrong "arguments_of wants a line for '$1 $2'" ;;
	esac
}

"$bin" completion options >options || wrong "the program does not list its options"
[ "$(grep -c '	output ' options)" -ge 30 ] || wrong "only $(grep -c '	output ' options) outputs are listed"
# A placeholder that says file or folder belongs to a row that says whether it is read or written.
grep -E '	(FILE|PATH|DIR|FOLDER|RUN)	value' options && wrong "options that name files are not marked as inputs or outputs"
# Whoever writes can be forced to.
cut -f1,4 options | grep '	output ' | cut -f1 | sort -u | while read -r command; do
	grep -q "^$command	--\(.*\.\)*force	" options || wrong "'$command' has outputs and no --force"
done

# ---- files ----

mine() { printf 'my thesis, chapter 1\n' >"$1"; }
kept() { [ "$(cat "$1" 2>/dev/null)" = 'my thesis, chapter 1' ] || wrong "$2: my file was overwritten"; }
n=0
while IFS='	' read -r command flag argument what; do
	n=$((n + 1))
	[ "$command" != ladder ] || [ -n "${FLATOUT_HAS_ENGINE:-}" ] || continue # it says that it cannot before it looks at its options
	case $what in
	"output new-names" | *-folder) continue ;; # below
	"output "*) ;;
	input)
		# What is read is not written, whatever becomes of the command.
		case "$command $flag" in "demo "* | "ladder --data.path" | "ladder --model."* | "ladder --data.tokenizer") continue ;; esac
		mine input.txt
		dry=
		[ "$command" != train ] || dry=--dry-run
		# shellcheck disable=SC2086 # words on purpose
		timeout 60 "$bin" $command $flag=input.txt $dry >out 2>err </dev/null
		kept input.txt "$command $flag"
		continue
		;;
	*) continue ;;
	esac
	with=$(arguments_of "$command" "$flag")
	words=$with
	[ "$with" != - ] || words=
	mine mine.txt
	# shellcheck disable=SC2086
	refused 2 "'mine.txt' is there and .*: not replaced" $command $words $flag=mine.txt
	says "^hint: .*--force"
	kept mine.txt "$command $flag"
	mkdir -p a.folder
	# shellcheck disable=SC2086
	refused 2 "is a folder" $command $words $flag=a.folder
	# Neither what this very command reads: not even by force, nor under another name.
	case $with in
	*.json*) input=$(printf '%s\n' $with | sed -n 's/.*=//; /\.json$/{p;q;}') ;;
	*) input= ;;
	esac
	if [ -f "$input" ]; then
		cp "$input" before
		ln -f "$input" link
		for path in "$input" link; do
			# shellcheck disable=SC2086
			refused 2 "read by this very command" $command $words $flag=$path --force
			cmp -s before "$input" || wrong "$command $flag: overwrote its own input"
		done
		rm -f link
	fi
	# As a shell would have it, where a shell does not.
	[ "$with" != - ] || continue
	rm -f "$HOME/new.out"
	# shellcheck disable=SC2086,SC2088
	run '0|1' $command $words "$flag=~/new.out"
	[ -s "$HOME/new.out" ] || wrong "$command $flag=~/new.out wrote nothing"
	[ ! -e '~' ] || wrong "$command $flag made a folder '~'"
	n=$((n + 100)) # commands that make other things find them new
	with=$(arguments_of "$command" "$flag")
	: >hollow.out
	# shellcheck disable=SC2086
	run '0|1' $command $with $flag=hollow.out
	[ -s hollow.out ] || wrong "$command $flag: an empty file is not written"
	n=$((n + 100))
	with=$(arguments_of "$command" "$flag")
	case $what in
	*tokenizer) # nothing tells it from another program's
		refused 2 "is there" $command $with $flag=hollow.out ;;
	*)
		# shellcheck disable=SC2086
		run '0|1' $command $with $flag=hollow.out ;; # our own
	esac
	n=$((n + 100))
	with=$(arguments_of "$command" "$flag")
	# shellcheck disable=SC2086
	run '0|1' $command $with $flag=mine.txt --force
	[ -s mine.txt ] && ! grep -q thesis mine.txt || wrong "$command $flag: --force does not write"
	find . -name '*flatout-tmp*' | grep . && wrong "$command $flag left a temporary file"
	case $flag in --json) valid mine.txt ;; esac
done <options

# "-" is standard output where a page or JSON is asked for, and no file of that name elsewhere.
run 0 report log --html=-
head -n 1 out | grep -q '<!DOCTYPE html>' && tail -n 1 out | grep -q '</html>' || wrong "report --html=- prints no page"
run '0|1' diagnose trace.json --html -
head -n 1 out | grep -q '<!DOCTYPE html>' && tail -n 1 out | grep -q '</html>' || wrong "diagnose --html - prints no page"
refused 2 "both write" report log --html=- --json
refused 2 "both write" diagnose trace.json --html=- --json
refused 2 "wants the name of a file" export trace.json --csv -
refused 2 "wants the name of a file" program $tiny --dump -
[ ! -e ./- ] || wrong "a file '-' was made"
refused 2 "both name 'twice.json'" export trace.json --csv twice.json --chrome twice.json
refused 2 "'--html' and '--json' both name 'twice.json'" diagnose trace.json --html=twice.json --json=twice.json
[ ! -e twice.json ] || wrong "one of two outputs in one file was written"
# shellcheck disable=SC2088
run 0 init '~/first.yaml'
[ -s "$HOME/first.yaml" ] && [ ! -e '~' ] || wrong "init '~/first.yaml' is not in HOME"
mkdir boards && mine boards/notes.txt
run 0 export log --tensorboard boards
kept boards/notes.txt "export --tensorboard"
refused 2 "only '~/' is expanded" report log '--html=~bob/x.html'

# Our own files of another kind are not what this option writes.
for other in log/run.json step.txt trace.json; do
	cp "$other" other
	refused 2 "nothing that this command wrote" report log --html=other
	refused 2 "nothing that this command wrote" flops --list --json=other
	same other "$other"
done
# A page of somebody else's, and a run's own record beside the run.
printf '<!DOCTYPE html>\n<html><body>my page</body></html>\n' >page.html
refused 2 "nothing that this command wrote" report log --html=page.html
refused 2 "nothing that this command wrote" diagnose trace.json --html=page.html
cp page.html log/report.html
refused 2 "'log/report.html' is there" report log
same page.html log/report.html
run 0 report log --force
cp log/log.jsonl before
refused 2 "lies in 'log'" report log --html=log/log.jsonl --force
same before log/log.jsonl
# An error leaves the old file as it was.
run 0 flops --list --json=list.json
cp list.json before
run 2 flops --model=nosuch --seq=1 --json=list.json
same before list.json

# A file that cannot be written whole does not take the place of the old one, and the error names it. The first write fails here, and
# what is behind it is lost.
run 0 program $tiny --json=step.json
cp step.json before
[ "$(wc -c <before)" -gt 10000 ] || wrong "step.json is too short for what follows"
code=0
(ulimit -f 8; exec "$bin" program $tiny --json=step.json >out 2>err </dev/null) || code=$?
want=3
judge "program --json=FILE with files of at most 4 KiB"
sentence
says "^flatout: cannot write 'step.json': file too large" "^hint: .*ulimit -f"
same before step.json
find . -name '*flatout-tmp*' | grep . && wrong "a file that could not be written whole was left"

# ---- at once ----

for i in 1 2 3 4; do
	"$bin" report log >"at-once.$i" 2>&1 &
	eval "pid$i=$!"
done
for i in 1 2 3 4; do
	eval "wait \$pid$i" || wrong "one of four reports at once failed: $(cat at-once.$i)"
done
tail -n 1 log/report.html | grep -q '</html>' || wrong "four reports at once left half a page"
# What lies where temporary files were: a pipe does not hang it, links lead nowhere.
mine precious
mkfifo log/report.html.tmp
run 0 report log
rm log/report.html.tmp
ln precious log/report.html.tmp
run 0 report log
ln -sf "$tmp/precious" log/report.html.tmp
run 0 report log
kept precious "report"
rm log/report.html.tmp
for i in 1 2 3; do
	mkfifo "log/.report.html.000000000000000$i.flatout-tmp"
done
run 0 report log
[ "$(ls -A log | grep -c flatout-tmp)" = 3 ] || wrong "took what is not its own, or left its own: $(ls -A log)"

# ---- the cache ----

# A relative XDG_CACHE_HOME is ignored, as its specification wants; "~/" in ours is HOME.
for cache in "XDG_CACHE_HOME=relative" "XDG_CACHE_HOME=" "FLATOUT_CACHE=~/.cache/flatout"; do
	want=3
	env -u FLATOUT_CACHE "$cache" "$bin" calibrate --show >out 2>err && wrong "a profile in an empty home"
	says "'$HOME/.cache/flatout/machine-[0-9a-f]*.json'"
done
[ ! -e relative ] || wrong "a cache in the current folder"

# ---- folders ----

if [ -n "${FLATOUT_HAS_ENGINE:-}" ]; then
	for file in run.json log.jsonl program.txt; do
		rm -rf home.dir && mkdir home.dir && mine "home.dir/$file"
		refused 2 "home.dir/$file' is there" train $tiny --run.dir=home.dir
		kept "home.dir/$file" "train --run.dir"
	done
	# A pipe under the name of a file is not read: nobody may ever write into it.
	for file in run.json data/source.txt; do
		rm -rf home.dir && mkdir -p home.dir/data && mkfifo "home.dir/$file"
		code=0
		timeout 60 "$bin" train $tiny --run.dir=home.dir >out 2>err </dev/null || code=$?
		want=2
		judge "train in a folder with a pipe '$file'"
		says "home.dir/$file' is there"
	done
	rm -rf home.dir && mkdir -p home.dir && mkfifo home.dir/prepare.journal
	code=0
	timeout 60 "$bin" data prepare text --vocab=300 --out=home.dir >out 2>err </dev/null || code=$?
	want=2
	judge "data prepare in a folder with a pipe 'prepare.journal'"
	# Figures that a run publishes do not wait for the reader of a pipe.
	mkfifo figures
	rm -rf home.dir
	code=0
	timeout 60 "$bin" train $tiny --run.dir=home.dir --report.prometheus=figures >out 2>err </dev/null || code=$?
	want=0
	judge "train --report.prometheus=PIPE"
	says "^warning: cannot write 'figures': nobody reads this pipe; training goes on"
	rm figures
	rm -rf home.dir && mkdir -p home.dir/data && mine home.dir/data/tokenizer.json && mine home.dir/notes.txt
	refused 2 "data/tokenizer.json' is there" train $tiny --run.dir=home.dir
	kept home.dir/data/tokenizer.json "train --run.dir"
	rm -rf home.dir/data
	run 0 train $tiny --run.dir=home.dir # nothing there is in the way
	kept home.dir/notes.txt "train --run.dir"
	run 0 train $tiny --run.dir=home.dir
	for file in train.shard prepared.json; do
		rm -rf home.dir && mkdir home.dir && mine "home.dir/$file"
		refused 2 "home.dir/$file' is there" data prepare text --vocab=300 --out=home.dir
		kept "home.dir/$file" "data prepare --out"
	done
	rm -rf home.dir && mkdir home.dir && mine home.dir/tokenizer.json
	refused 2 "home.dir/tokenizer.json' is there" data prepare text --vocab=300 --out=home.dir
	kept home.dir/tokenizer.json "data prepare --out"
	rm -rf home.dir && mkdir home.dir && mine home.dir/plan.json
	refused 2 "home.dir/plan.json' is there" ladder $tiny --run.dir=home.dir
	kept home.dir/plan.json "ladder --run.dir"
	refused 2 "is not an earlier demo's folder" demo --dir=home.dir
	kept home.dir/plan.json "demo --dir"
	# shellcheck disable=SC2088
	run 0 train $tiny "--run.dir=~/run"
	[ -s "$HOME/run/run.json" ] && [ ! -e '~' ] || wrong "--run.dir=~/run is not in HOME"
	printf 'run:\n  dir: ~/run2\n' >home.yaml
	run 0 train home.yaml $tiny
	[ -s "$HOME/run2/run.json" ] && [ ! -e '~' ] || wrong "run: {dir: ~/run2} is not in HOME"
fi
finish
