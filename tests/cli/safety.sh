#!/bin/sh
# What happens around a run: its folder is moved or removed, nobody reads what it says, the terminal goes away, stacks are small.
. "$(dirname "$0")/lib.sh"
needs_engine
make_text text
long="$tiny --train.steps=100000 --checkpoint.every=2000 --eval.every=0"

# start ARGUMENT...: in the background; $pid.
start() {
	"$bin" train "$@" >out 2>err </dev/null &
	pid=$!
}
# ended CODE WHAT: the run in the background has ended like that.
ended() {
	code=0
	wait $pid || code=$?
	want=$1
	judge "$2"
}
saved_step() { sed -n "s/^hint: the state after step \([0-9]*\) is saved in '$1\/checkpoints\/step-.*/\1/p" err; }

# ---- the run's folder ----

# Moved: the run stops at its next checkpoint, its state is where the folder is now, and goes on there.
for async in yes no; do
	rm -rf home away
	start $long --run.dir=home --checkpoint.async=$async
	wait_for_lines home/log.jsonl 3 $pid
	mkdir -p away
	mv home away/home
	ended 3 "a run whose folder was moved"
	sentence
	says "^flatout: the run's folder 'home' was moved to '$tmp/away/home' while it trained" "^hint: the state after step .*; --run.dir=$tmp/away/home goes on"
	step=$(saved_step "$(printf %s "$tmp/away/home" | sed 's,/,\\/,g')")
	[ -n "$step" ] && [ -d "$(checkpoint away/home "$step")" ] || wrong "no checkpoint of step '$step' in away/home"
	[ ! -e home ] || wrong "the folder was made again where it was"
	run 0 train $long --run.dir=away/home --train.steps="$step"
	says "nothing to do"
done
# Removed: a folder beside it takes the state.
start $long --run.dir=gone
wait_for_lines gone/log.jsonl 3 $pid
mkdir gone.rescued
rm -rf gone 2>/dev/null || rm -rf gone
ended 3 "a run whose folder was removed"
sentence
says "^flatout: the run's folder 'gone' was removed while it trained\$" "^hint: the state .* --run.dir=gone.rescued-2 goes on"
[ ! -e gone ] || wrong "a folder that was removed is there again"
[ -z "$(ls gone.rescued)" ] || wrong "a folder that was there was written into"
run 0 train $long --run.dir=gone.rescued-2 --train.steps="$(saved_step gone.rescued-2)"
says "nothing to do"
# Replaced, while its own is gone: nothing is written into the other.
start $long --run.dir=mine
wait_for_lines mine/log.jsonl 3 $pid
mkdir other
mv mine trash && mv other mine && rm -rf trash
ended 3 "a run whose folder was replaced"
says "^flatout: the run's folder 'mine' was removed while it trained, and another stands in its place\|was moved to"
[ -z "$(ls mine)" ] || wrong "the other folder was written into: $(ls mine)"
# The lock alone was tidied away: the run takes it again and goes on.
start $long --run.dir=tidy --train.steps=4000
wait_for_lines tidy/log.jsonl 3 $pid
rm tidy/lock
ended 0 "a run whose lock was removed"
[ -e tidy/lock ] || wrong "the lock was not taken again"
# Unless another process was faster: that one keeps the folder.
start $long --run.dir=taken
first=$pid
wait_for_lines taken/log.jsonl 3 $pid
cp -r taken/data kept
rm taken/lock
"$bin" train $long --run.dir=taken --train.steps=90000 >out2 2>err2 </dev/null &
second=$!
pid=$first
ended 3 "a run whose folder another one took"
says "^flatout: the lock in 'taken' was removed, and another process trains there now" "--run.dir=taken.rescued goes on"
kill -TERM $second
wait $second 2>/dev/null

# ---- a checkpoint's name and the step inside ----

run 0 train $tiny --run.dir=name --checkpoint.keep=0 --checkpoint.every=2
rm -r name/checkpoints/step-00000006 && cp -r name/checkpoints/step-00000004 name/checkpoints/step-00000100
run 0 train $tiny --run.dir=name
says "^warning: cannot load checkpoint 'name/checkpoints/step-00000100': the folder is named after step 100 and holds step 4; going on from 'name/checkpoints/step-00000004'"
rm -r name/checkpoints/step-0000000?
refused 2 "step-00000100': the folder is named after step 100 and holds step 4" train $tiny --run.dir=name
says "^hint: name it step-00000004"
refused 2 "is named after step 100 and holds step 4" generate name --prompt=a --tokens=1
mv name/checkpoints/step-00000100 name/checkpoints/best
run 0 generate name/checkpoints/best --prompt=a --tokens=1

# ---- nobody reads ----

# A pipe that is full, and its reader asleep: training, warnings and checkpoints do not wait for it.
mkfifo pipe
sleep 600 <pipe &
sleeper=$!
exec 9>pipe
head -c 65536 /dev/zero >&9 # the size of a pipe; where it is another one, what is said fills it
run 0 train $tiny --run.dir=quiet
cp -r quiet loud
mkdir loud/checkpoints/step-00000100 # a warning
for json in "" --json; do
	rm -rf again && cp -r loud again
	code=0
	timeout 120 "$bin" train $tiny --run.dir=again --train.steps=400 --checkpoint.every=100 $json >out 2>&9 </dev/null || code=$?
	[ $code = 0 ] || wrong "a run that nobody listens to ended with $code (${json:-no --json})"
	[ -d "$(checkpoint again 400)" ] || wrong "a run that nobody listens to did not save its last step (${json:-no --json})"
done
# Errors, too; and what a signal's handler says.
code=0
timeout 60 "$bin" train --nonsense 2>&9 >out </dev/null || code=$?
[ $code = 2 ] || wrong "an error that nobody reads ended with $code"
"$bin" train $long --run.dir=stopped >out 2>&9 </dev/null &
pid=$!
wait_for_lines stopped/log.jsonl 3 $pid
kill -TERM $pid
code=0
wait $pid || code=$?
[ $code = 130 ] || wrong "a run that nobody listens to, stopped, ended with $code"
[ -n "$(ls stopped/checkpoints)" ] || wrong "a run that nobody listens to saved nothing when it was stopped"
# Progress on standard output waits for nobody either: only the last screen does, when all is saved.
"$bin" train $tiny --run.dir=shown --train.steps=400 --checkpoint.every=100 >&9 2>err </dev/null &
pid=$!
tries=0
while [ ! -d "$(checkpoint shown 400)" ] && kill -0 $pid 2>/dev/null && [ $tries -lt 1200 ]; do # two minutes: against a hang
	sleep 0.1
	tries=$((tries + 1))
done
[ -d "$(checkpoint shown 400)" ] || wrong "a run whose output nobody reads did not come to its end: $(tail -n 2 err)"
kill -KILL $pid 2>/dev/null
wait $pid 2>/dev/null
exec 9>&-
kill $sleeper 2>/dev/null
wait $sleeper 2>/dev/null

# ---- signals ----

# A terminal that goes away, whatever else is sent with it, however often: saved, and the same command goes on.
for sent in HUP "HUP HUP" "HUP TERM" "TERM HUP"; do
	rm -rf hup
	start $long --run.dir=hup
	wait_for_lines hup/log.jsonl 3 $pid
	for signal in $sent; do kill -$signal $pid; done
	ended 130 "train, sent $sent"
	says "^flatout: stopped after step [0-9]* of 100000; the state is saved in 'hup/checkpoints/step-"
done
# nohup: nothing happens.
(trap '' HUP; exec "$bin" train $long --run.dir=nohup >out 2>err </dev/null) &
pid=$!
wait_for_lines nohup/log.jsonl 3 $pid
kill -HUP $pid
lines=$(grep -c '' nohup/log.jsonl)
wait_for_lines nohup/log.jsonl $((lines + 200)) $pid
kill -0 $pid 2>/dev/null || wrong "a run under nohup ended by SIGHUP"
kill -TERM $pid
ended 130 "train under nohup, terminated"
# A limit on the size of files is an error with a name, not a signal's death.
code=0
(ulimit -f 8; exec "$bin" train $tiny --run.dir=limited >out 2>err </dev/null) || code=$?
want=3
judge "train with files of at most 4 KiB"
sentence
says "[Ff]ile too large"
says "^hint: .*ulimit -f"

# Too few descriptors, too.
code=0
sh -c 'ulimit -n 8; exec "$@"' sh "$bin" train $tiny --run.dir=few >out 2>err </dev/null || code=$?
judge "train with eight descriptors"
sentence
says "too many open files" "^hint: .*ulimit -n"

# ---- small stacks ----

# Sanitizers want more of a stack than anybody's limit; what they check is checked without one.
if [ -z "${FLATOUT_SANITIZED:-}" ]; then
	run 0 train $tiny --run.dir=wide --sample.tokens=4 --run.threads=2
	for kib in 1024 128 32; do
		rm -rf small
		for command in "train $tiny --run.dir=small --sample.tokens=4 --run.threads=2" "report small --html=small.html" "generate small --prompt=a --tokens=3" \
			"eval small --data=text" "data inspect small/data/train.shard" "export small --trace=small.json --force" "compare small wide" "machine"; do
			code=0
			(ulimit -s $kib; exec "$bin" $command >out 2>err </dev/null) || code=$?
			want="0|2"
			judge "$command, with a stack of $kib KiB"
		done
		same "wide/$(checkpoint . 6)/model.safetensors" "small/$(checkpoint . 6)/model.safetensors"
	done
fi

# ---- long paths ----

part=a-folder-with-a-name-of-a-hundred-bytes-so-that-few-of-them-are-longer-than-any-buffer-of-five-hundred-0
deep=$part/$part/$part/$part/$part/$part/$part
run 0 train $tiny --run.dir="$deep" --checkpoint.every=2
says "^Saved:  *.*/$deep/checkpoints/step-00000006\$\|^Saved:  *$deep/checkpoints/step-00000006\$"
run 0 train $tiny --run.dir="$deep" --train.steps=9
says "^Resume:  *after step 6\$"
start $long --run.dir="$deep"
wait_for_lines "$deep/log.jsonl" 30 $pid
kill -TERM $pid
ended 130 "train in a deep folder, terminated"
says "the state is saved in '$deep/checkpoints/step-[0-9]*'\$"
flip "$deep/checkpoints/$(ls "$deep/checkpoints" | tail -n 1)/model.safetensors"
run 0 train $tiny --run.dir="$deep"
says "'$deep/checkpoints/step-[0-9]*/model.safetensors' is damaged"

# ---- what is no number has no sign ----

refused 1 "step 2: the loss is nan and the gradient norm nan: .* = nan; the batch was" train $tiny --run.dir=nan --optim.lr=10 --optim.warmup=0 \
	--optim.clip=0 --optim.eps=0
run 0 train $tiny --run.dir=skips --optim.lr=10 --optim.warmup=0 --optim.clip=0 --optim.eps=0 --guard.nonfinite=skip
for file in err out; do ! grep -q -e '-nan' $file || wrong "'-nan': $(grep -e -nan $file | head -n 1)"; done

# ---- the last screen ----

run 0 train $tiny --run.dir=told
says "^Loss:  *training [0-9.]* (first step [0-9.]*)" "^Next:  *flatout report told, flatout generate told\$"
at_first=$(sed -n 's/^Loss: .*(first step \([0-9.]*\)).*/\1/p' out)
run 0 train $tiny --run.dir=told --train.steps=9
[ "$(sed -n 's/^Loss: .*(first step \([0-9.]*\)).*/\1/p' out)" = "$at_first" ] || wrong "after a resume the first step's loss is another: $(grep '^Loss:' out)"
run 0 train $tiny --run.dir=told --train.steps=12 --json
grep -q '"first_step": 1,' out || wrong "the result of a resumed run does not begin at step 1"
finish
