#!/bin/sh
# Several ranks that write one checkpoint together, killed or on a disk that is full: the newest checkpoint is whole, no half of one
# stays, an error names the rank, and the finished run has the bits of one that nothing happened to.
# ranks_disk.sh [POINTS]: at how many operations each kind of failure strikes.
points=${1:-3}
. "$(dirname "$0")/lib_fault.sh"
long="$long --train.rows=4 --train.precision=fp32 --mesh.shard=2 --run.threads=2 --checkpoint.file-size=60kB"
# Checkpoints have many files here.
compare() {
	diff -r --exclude=run.json --exclude=manifest.json "whole/$last" "hard/$last" >difference || wrong "$1: $(head -n 3 difference)"
	losses hard | sort -n -s -k1,1 | awk '{ v[$1] = $0 } END { for (i in v) print v[i] }' | sort >now
	case $how in
	power*) [ "$(comm -13 then now | wc -l)" = 0 ] || wrong "$1: the log has other losses" ;;
	*) cmp -s then now || wrong "$1: the log differs: $(comm -3 then now | head -n 2 | tr '\n' ' ')" ;;
	esac
	[ -z "$(find hard -name '.tmp*')" ] || wrong "$1: left over: $(find hard -name '.tmp*' | tr '\n' ' ')"
}
# Ranks that divide tensors by columns, whose rows they write in parts, then ranks that share rows.
by_rows="$long"
for long in "$by_rows --mesh.shard=1 --mesh.tp=2 --model.heads=4 --model.kv-heads=2" "$by_rows"; do
	how=none
	rm -rf whole hard
	run 0 train $long --run.dir=whole
	losses whole | sort >then
	[ -s "whole/$last/state.safetensors.index.json" ] || wrong "the checkpoint is not split"
	faulty kill 0 train $long --run.dir=hard
	operations=$(cat count)
	sees_operations
	i=0
	for kind in kill power powerless; do
		at=$((1 + (i * operations + operations / 2) / 3))
		i=$((i + 1))
		rm -rf hard
		faulty $kind $at train $long --run.dir=hard
		[ $code = 137 ] || [ $code = 0 ] || wrong "$kind at operation $at: exit $code: $(tail -n 2 err)"
		goes_on "$kind at operation $at of $operations"
	done
done
# A disk that has no room for one write: a warning, the checkpoint before it stays, and training goes on. Among a few
# operations in a row is one of a rank other than the first.
how=once named=0 tried=0
while [ $tried -lt 24 ] && { [ $named -lt $points ] || ! [ -s other ]; }; do
	at=$((operations / 2 + tried)) tried=$((tried + 1))
	rm -rf hard
	faulty once $at train $long --run.dir=hard --checkpoint.keep=0
	want="0|3"
	judge "a full disk at operation $at of $operations"
	[ -z "$(find hard -name '.tmp*')" ] || wrong "operation $at: left over: $(find hard -name '.tmp*' | tr '\n' ' ')"
	grep -q 'cannot save the checkpoint of step [0-9]*: rank [01] of 2: cannot write .*[Nn]o space left' err || continue
	named=$((named + 1))
	grep -q 'rank 1 of 2' err && cp err other
	step=$(sed -n 's/.*cannot save the checkpoint of step \([0-9]*\):.*/\1/p' err | head -n 1)
	[ ! -e "$(checkpoint hard "$step")" ] || wrong "operation $at: the checkpoint of step $step is there"
	[ "$step" = 3 ] || [ -e "$(checkpoint hard $((step - 3)))" ] || wrong "operation $at: the checkpoint before step $step is gone"
	compare "a full disk at operation $at of $operations"
done
[ $named -gt 0 ] || wrong "no error of $tried names a rank"
[ -s other ] || wrong "no error of $tried names rank 1"
finish
