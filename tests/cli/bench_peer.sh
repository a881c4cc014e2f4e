#!/bin/sh
# bench_train_vs_torch beside a peer that is not there, fails or ends early: a sentence with how it ended and status 3, never an end by a signal.
. "$(dirname "$0")/lib.sh"
needs_engine
[ -n "${FLATOUT_SOFT_CUDA:-}" ] || { echo "$name: no software device in this build"; exit 77; }
steps=${FLATOUT_SOFT_CUDA%/tests/cuda}/bench_train_vs_torch
[ -x "$steps" ] || { echo "$name: bench_train_vs_torch is not built"; exit 77; }
FLATOUT_CUDA_LIBRARIES=$FLATOUT_SOFT_CUDA FLATOUT_CACHE=$tmp/cache
export FLATOUT_CUDA_LIBRARIES FLATOUT_CACHE

# peer CODE SENTENCE [COMMAND...]
peer() {
	want=$1 sentence=$2 code=0
	shift 2
	"$steps" --model.layers=1 --model.hidden=32 --model.heads=2 --model.kv-heads=1 --model.head-dim=16 --model.ffn=64 --model.vocab=64 \
		--data.seq=32 --train.device=cuda --train.tune=off --train.rows=1 --bench.rounds=2 --bench.warm=0 -- "$@" >out 2>err </dev/null ||
		code=$?
	[ "$code" = "$want" ] || wrong "beside '$*' it ended with $code, not $want: $(cat err)"
	[ -z "$sentence" ] || grep -q -e "$sentence" err || wrong "beside '$*' it does not say '$sentence': $(cat err)"
}
answer='{"step":0,"seconds":0.5}'
peer 3 "the peer ended with status 127" ./not-there
grep -q "'./not-there' cannot be run: " err || wrong "a program that is not there: $(cat err)"
peer 3 "the peer stopped in round 0" true
peer 3 "the peer ended with status 5" sh -c 'exit 5'
peer 3 "the peer stopped in round 1" sh -c "read -r _; echo '$answer'; exit 7"
peer 3 "the peer ended with status 7" sh -c "read -r _; echo '$answer'; exit 7"
peer 3 "signal 9 ended the peer" sh -c 'kill -9 $$'
peer 2 "behind '--' stands no command"
peer 0 "" sh -c "while read -r _; do echo '$answer'; done"
grep -q '"ratio_median":' out || wrong "no ratio: $(cat out)"
finish
