#!/bin/sh
# kill -9 and power cuts. After each: the newest checkpoint is whole, nothing older than it is lost, and the finished run has the
# bits of one that nobody stopped.
# kill.sh [KILLS]: by default a dozen; 200 is what docs/safety.md reports. KILL_SEED: another seed of the random instants.
kills=${1:-12}
. "$(dirname "$0")/lib_fault.sh"
how=none
run 0 train $long --run.dir=whole
losses whole | sort >then

# 1. At every operation that changes the disk, or as many as were asked for: of a fresh run and, every fourth, of a resumed one.
rm -rf hard
faulty kill 0 train $long --run.dir=hard
operations=$(cat count)
sees_operations
exact=$((kills * 2 / 3)) i=0
while [ $i -lt $exact ]; do
	at=$((1 + (i * operations + operations / 2) / exact))
	how=$(echo kill power powerless | cut -d' ' -f$((1 + i % 3)))
	i=$((i + 1))
	rm -rf hard
	if [ $((i % 4)) = 0 ]; then
		faulty kill $((operations / 2)) train $long --run.dir=hard
		at=$((at / 2))
	fi
	faulty $how $at train $long --run.dir=hard
	[ $code = 137 ] || [ $code = 0 ] || wrong "$how at operation $at: exit $code: $(tail -n 2 err)"
	goes_on "$how at operation $at of $operations"
	valid hard/log.jsonl
done

# 2. At random instants, until the run is through: a few steps on, somewhere within the next tens of milliseconds, or anywhere from
# the start on. Each kill may lose what came after the last checkpoint, never more.
how=kill
instant=$((kills - exact)) i=0 rounds=0
random=$(awk -v n="$instant" -v seed="${KILL_SEED:-1}" 'BEGIN {
	srand(seed)
	for (i = 0; i < n; i++)
		printf "%d,%.3f ", i % 4 ? 1 + 6 * rand() : 0, i % 4 ? 0.06 * rand() : 0.5 * rand()
}')
rm -rf hard
for kill in $random; do
	before=$(promised hard) lines=$(grep -c '' hard/log.jsonl 2>/dev/null)
	"$bin" train $long --run.dir=hard >out 2>err </dev/null &
	pid=$!
	[ "${kill%,*}" = 0 ] || wait_for_lines hard/log.jsonl $((${lines:-0} + ${kill%,*})) $pid
	sleep "${kill#*,}"
	kill -KILL $pid 2>/dev/null
	wait $pid 2>/dev/null
	have=$(newest hard) promise=$(promised hard)
	[ "$have" -ge "$promise" ] && [ "$have" -ge "$before" ] ||
		wrong "killed (${kill%,*} lines on, ${kill#*,} s): the newest checkpoint is of step $have, promised were $before and $promise"
	if [ "$have" = $steps ]; then
		run 0 train $long --run.dir=hard
		compare "random kills, run $rounds"
		rounds=$((rounds + 1))
		rm -rf hard
	fi
done
run 0 train $long --run.dir=hard
have=$(newest hard)
compare "random kills, the last run"
valid hard/log.jsonl
echo "kill: $exact of $operations operations, $instant random instants over $((rounds + 1)) runs"
finish
