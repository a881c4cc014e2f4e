# For tests of what a run survives: kills, power cuts and disks that fail, struck by the library of tests/preload.
. "$(dirname "$0")/lib.sh"
needs_engine
[ -e "${FLATOUT_FAULT:-}" ] || { echo "$name: no fault library: set FLATOUT_FAULT"; exit 77; }
make_text text
steps=20
long="$tiny --train.steps=$steps --checkpoint.every=3 --checkpoint.keep=2 --eval.every=0"
last=$(checkpoint . $steps)
# A sanitizer's runtime wants to be first; behind our library it works as well.
faults="verify_asan_link_order=0:${ASAN_OPTIONS:-}"

# faulty HOW AT ARGUMENT...: a run in which the file system strikes at operation AT below hard/.
faulty() {
	how=$1 at=$2
	shift 2
	code=0
	ASAN_OPTIONS=$faults FAULT_UNDER=hard/ FAULT_HOW=$how FAULT_AT=$at FAULT_COUNT=$tmp/count LD_PRELOAD=$FLATOUT_FAULT \
		"$bin" "$@" >out 2>err </dev/null || code=$?
}
sees_operations() {
	[ "$operations" -gt 100 ] || { wrong "only $operations operations were counted: the library does not see them"; finish; }
}
# newest RUN: the step of its newest checkpoint, 0: none.
newest() { ls "$1/checkpoints" 2>/dev/null | sed -n 's/^step-0*\([0-9]\)/\1/p' | sort -n | tail -n 1 | grep . || echo 0; }
# promised RUN: the step of the newest checkpoint that the log reports as written.
promised() { sed -n 's/^{"event":"checkpoint","step":\([0-9]*\),.*}$/\1/p' "$1/log.jsonl" 2>/dev/null | sort -n | tail -n 1 | grep . || echo 0; }
# goes_on WHAT: the killed run in hard/ is resumed to its end.
goes_on() {
	have=$(newest hard) promise=$(promised hard)
	[ "$have" -ge "$promise" ] || wrong "$1: the checkpoint of step $promise was reported and is gone, the newest is $have"
	run 0 train $long --run.dir=hard
	if [ "$have" -gt 0 ]; then
		says "^Resume:  *after step $have\$"
	fi
	! grep -q '^warning' err || wrong "$1: $(grep '^warning' err)"
	compare "$1"
}
compare() {
	for file in model.safetensors state.safetensors; do
		cmp -s "whole/$last/$file" "hard/$last/$file" || wrong "$1: '$file' is not that of the uninterrupted run"
	done
	losses hard | sort -n -s -k1,1 | awk '{ v[$1] = $0 } END { for (i in v) print v[i] }' | sort >now
	# A power cut takes lines since the last flush with it; every line that is there is right.
	case $how in
	power*) [ "$(comm -13 then now | wc -l)" = 0 ] || wrong "$1: the log has other losses" ;;
	*) cmp -s then now || wrong "$1: the log differs: $(comm -3 then now | head -n 2 | tr '\n' ' ')" ;;
	esac
	[ -z "$(find hard -name '.tmp*')" ] || wrong "$1: left over: $(find hard -name '.tmp*' | tr '\n' ' ')"
	# A run that was killed after its last checkpoint and before it removed an old one has nothing to do any more.
	[ "$(ls hard/checkpoints | wc -l)" -le 2 ] || [ "$have" = $steps ] || wrong "$1: checkpoint.keep=2 keeps $(ls hard/checkpoints | tr '\n' ' ')"
}

