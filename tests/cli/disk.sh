#!/bin/sh
# Disks that are full, read-only or fail, files and folders that vanish: one sentence, the older checkpoints stay, and the run
# goes on afterwards with the bits of one that nothing happened to.
# disk.sh [POINTS]: at how many operations each kind of failure begins; "all" for every one.
points=${1:-2}
. "$(dirname "$0")/lib_fault.sh"
how=none
run 0 train $long --run.dir=whole
losses whole | sort >then

# 1. Failures from one operation on, and of one alone.
faulty full 0 train $long --run.dir=hard
operations=$(cat count)
sees_operations
[ "$points" != all ] || points=$operations
for how in full once readonly io; do
	i=0
	while [ $i -lt $points ]; do
		at=$((1 + (i * operations + operations / 2) / points)) kind=$how
		i=$((i + 1))
		rm -rf hard
		# Half of a run is there already, which must survive.
		"$bin" train $long --run.dir=hard >out 2>err </dev/null &
		pid=$!
		wait_for_lines hard/log.jsonl 9 $pid
		kill -KILL $pid 2>/dev/null
		wait $pid 2>/dev/null
		kept=$(newest hard)
		cp -r hard/checkpoints before 2>/dev/null
		faulty $kind $at train $long --run.dir=hard
		want="0|3"
		judge "$kind from operation $at of $operations on"
		[ $code = 0 ] || sentence
		[ $code = 0 ] || says "[Nn]o space left\|[Rr]ead-only file system\|[Ii]nput/output error"
		have=$(newest hard)
		[ "$have" -ge "$kept" ] || wrong "$kind at operation $at: the newest checkpoint was of step $kept and is of $have"
		if [ "$have" = "$kept" ] && [ "$kept" -gt 0 ]; then
			newest_path=$(checkpoint hard "$kept")
			diff -r "before/$(basename "$newest_path")" "$newest_path" >/dev/null ||
				wrong "$kind at operation $at changed the checkpoint of step $kept"
		fi
		rm -rf before
		goes_on "$kind from operation $at of $operations on"
		valid hard/log.jsonl
	done
done

# 2. Signals that break off every other call that may be, with writes done in part: nothing of it is seen.
how=none
for at in 1 2; do
	rm -rf hard
	faulty signals $at train $long --run.dir=hard --report.tensorboard=yes --report.prometheus=hard/figures.prom --train.metered-every=4
	want=0
	judge "signals from operation $at on"
	! grep -q '^warning' err || wrong "signals from operation $at on: $(grep '^warning' err)"
	have=0
	compare "signals from operation $at on"
	valid hard/log.jsonl
	[ -s hard/figures.prom ] && [ -s hard/metered.fom ] && [ -n "$(ls hard/tensorboard)" ] || wrong "signals from operation $at on: a file is missing"
done
run 0 report hard

# 3. While training: the data cut, overwritten or removed, the checkpoints removed. Enough steps to be in time for it.
how=none steps=400
long="$tiny --train.steps=$steps --checkpoint.every=50 --checkpoint.keep=2 --eval.every=0"
last=$(checkpoint . $steps)
rm -rf whole
run 0 train $long --run.dir=whole
losses whole | sort >then
during() {
	rm -rf hard
	"$bin" train $long --run.dir=hard >out 2>err </dev/null &
	pid=$!
	wait_for_lines hard/log.jsonl 70 $pid
	shard=hard/data/train.shard
	[ ! -e safe ] && cp $shard safe
	eval "$1"
	code=0
	wait $pid || code=$?
	judge "train, then $1"
}
for cut in 0 5000; do
	want="3"
	during "truncate -s $cut hard/data/train.shard"
	[ $code = 0 ] || says "^flatout: .*'hard/data/train.shard'" "^hint: the state after step [0-9]* is saved in 'hard/checkpoints/step-"
	[ $code = 0 ] || sentence
	[ $code = 0 ] || refused "2|3" "hard/data/train.shard" train $long --run.dir=hard
	cp safe hard/data/train.shard
	run 0 train $long --run.dir=hard
	compare "the shard cut to $cut bytes and restored"
done
want=3
during 'printf wolf | dd of=hard/data/train.shard bs=1 seek=3000 conv=notrunc 2>/dev/null'
says "'hard/data/train.shard' was written to while it was in use"
sentence
cp safe hard/data/train.shard
run 0 train $long --run.dir=hard
compare "the shard overwritten and restored"
want=0
during 'rm hard/data/train.shard'
compare "the shard removed: what is open stays"
during 'while kill -0 $pid && ! mv hard/checkpoints gone 2>/dev/null; do sleep 0.01; done'
compare "the checkpoints removed: later ones are written"
finish
