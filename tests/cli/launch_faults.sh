#!/bin/sh
# Jobs of processes under flatout launch that something goes wrong with on one rank alone, whose disk is full; and two
# launchers in one run directory. Checkpoints after every step are those that are written while training waits.
. "$(dirname "$0")/lib_fault.sh"
plugin=${FLATOUT_MPI_PLUGIN:-$(dirname "$bin")/libflatout-mpi.so}

# Each step's checkpoint, written beside training, has the bytes of one that training waited for: on ranks as threads.
often="$tiny --train.steps=24 --train.rows=4 --mesh.shard=2 --run.threads=2 --checkpoint.every=1 --checkpoint.keep=0 --eval.every=0 --sample.tokens=0"
run 0 train $often --run.dir=waits --checkpoint.async=no
run 0 train $often --run.dir=beside --checkpoint.async=yes
for step in $(seq 24); do
	for file in model state; do
		cmp -s "$(checkpoint waits "$step")/$file.safetensors" "$(checkpoint beside "$step")/$file.safetensors" ||
			wrong "the checkpoint of step $step, written beside training, has another $file"
	done
done
# The first copy comes while the writer's thread may still begin. A copy that does not wait for it lost a state in one of four to six of
# such runs, so some are made.
first="$often --train.steps=2 --train.rows=2 --train.micro-batches=1 --data.seq=8 --model.layers=4 --model.hidden=256 --model.ffn=768"
run 0 train $first --run.dir=waits2 --checkpoint.async=no
for round in 1 2 3 4; do
	rm -rf beside2
	run 0 train $first --run.dir=beside2 --checkpoint.async=yes
	! grep -q '^warning' err || wrong "$(grep '^warning' err)"
	for step in 1 2; do
		for file in model state; do
			cmp -s "$(checkpoint waits2 $step)/$file.safetensors" "$(checkpoint beside2 $step)/$file.safetensors" ||
				wrong "round $round: the checkpoint of step $step, written beside training, has another $file"
		done
	done
done
rm -rf waits2 beside2

command -v mpirun >/dev/null && mpirun --version 2>&1 | grep -q "Open MPI" && [ -e "$plugin" ] || finish
export FLATOUT_MPI_PLUGIN="$plugin"
long="$long --train.rows=4 --train.precision=fp32 --mesh.shard=2"
launch() { timeout 120 "$bin" launch -n 2 --mpi-args=--oversubscribe -- train $long "$@"; }
# struck HOW AT RANK ARGUMENT...: the file system strikes that rank alone, where checkpoints go.
struck() {
	how=$1 at=$2 rank=$3
	shift 3
	code=0
	ASAN_OPTIONS=$faults FAULT_UNDER=hard/checkpoints FAULT_RANK=$rank FAULT_HOW=$how FAULT_AT=$at \
		LD_PRELOAD=$FLATOUT_FAULT launch "$@" >out 2>err </dev/null || code=$?
}
launch --run.dir=whole >out 2>err </dev/null || wrong "the job that nothing happens to: $(cat err)"
# A disk that is full for one write of rank 1: a warning that names it, the job goes on, and ends with the same bytes.
struck once 2 1 --run.dir=hard
want=0
judge "rank 1 has no room for one write"
says "^warning: cannot save the checkpoint of step 3: rank 1 of 2.*: cannot .*[Nn]o space left"
[ ! -e "$(checkpoint hard 3)" ] || wrong "the checkpoint of step 3 is there"
[ -z "$(find hard -name '.tmp*')" ] || wrong "left over: $(find hard -name '.tmp*' | tr '\n' ' ')"
run 0 status hard
says "^ *0, 1 .*ended *done"
diff -r --exclude=run.json --exclude=manifest.json "whole/$last" "hard/$last" >difference || wrong "another checkpoint: $(head -n 3 difference)"
# From some write on for good: what was saved before stays, the end is an error of rank 1, and the job goes on from there once there is
# room again.
rm -rf hard
struck full 8 1 --run.dir=hard
want=3
judge "rank 1's disk is full from its eighth operation on"
says "^flatout: .*rank 1 of 2.*cannot .*[Nn]o space left"
[ "$(grep -c '^flatout: ' err)" = 1 ] || wrong "not one error: $(cat err)"
kept=$(newest hard) promise=$(promised hard)
[ "$kept" -ge "$promise" ] && [ "$kept" -lt $steps ] || wrong "the log reports the checkpoint of step $promise, the newest is $kept"
launch --run.dir=hard >out 2>err </dev/null || wrong "it does not go on: $(cat err)"
diff -r --exclude=run.json --exclude=manifest.json "whole/$last" "hard/$last" >difference || wrong "another checkpoint: $(head -n 3 difference)"

# Two launchers in one directory: the second is refused before any rank starts, and the first does not notice.
rm -rf hard
"$bin" launch -n 2 --mpi-args=--oversubscribe -- train $long --train.steps=1000000 --run.dir=hard >first.out 2>first.err </dev/null &
job=$!
for i in $(seq 150); do
	"$bin" status hard 2>/dev/null | grep -q "step [1-9]" && break
	sleep 0.1
done
cp hard/ranks/00001.state before
refused 3 "another process is training in 'hard'" launch -n 2 --mpi-args=--oversubscribe -- train $long --run.dir=hard
"$bin" status hard --json | grep -q '"health": "fine"' || wrong "the first job does not run any more"
[ "$(dd if=before bs=1 skip=120 count=200 2>/dev/null | cksum)" = "$(dd if=hard/ranks/00001.state bs=1 skip=120 count=200 2>/dev/null | cksum)" ] ||
	wrong "the second launcher replaced the first one's files"
kill -INT $job
wait $job
code=$?
[ $code = 130 ] || wrong "the first job ended with $code: $(cat first.err)"
grep -q "stopped after step" first.err || wrong "the first job was not stopped: $(cat first.err)"
finish
