#!/bin/sh
# Ranks as processes that mpirun starts: the losses and checkpoints of ranks as threads, byte for byte; runs go on with another number of
# ranks and another mesh; Ctrl-C saves; what does not fit together is refused in one sentence.
. "$(dirname "$0")/lib.sh"
needs_engine

plugin=${FLATOUT_MPI_PLUGIN:-$(dirname "$bin")/libflatout-mpi.so}
mpirun=$(command -v mpirun.openmpi || command -v mpirun) || mpirun=
[ -e "$plugin" ] && [ -n "$mpirun" ] && "$mpirun" --version 2>/dev/null | grep -q 'Open MPI\|OpenRTE' || { echo "$name: no MPI plugin, or no Open MPI"; exit 77; }
as_root=
[ "$(id -u)" != 0 ] || as_root=--allow-run-as-root
make_text text
small="$tiny --train.rows=4 --train.precision=fp32 --optim.schedule=constant"

# job CODE RANKS ARGUMENT...: as run, by mpirun; what mpirun itself says is left out.
job() {
	want=$1 ranks=$2 code=0
	shift 2
	# shellcheck disable=SC2086
	timeout 60 "$mpirun" $as_root --oversubscribe --bind-to none -n "$ranks" "$bin" "$@" >out 2>all </dev/null || code=$?
	grep -E '^(flatout|hint): |Sanitizer|runtime error:' all >err
	judge "mpirun -n $ranks flatout $*"
}
# no CODE PATTERN RANKS ARGUMENT...: refused, by mpirun.
no() {
	want=$1 pattern=$2
	shift 2
	job "$want" "$@"
	says "$pattern"
	sentence
}
alike() {
	losses "$1" >a
	losses "$2" >b
	[ -s a ] || wrong "'$1' has no losses"
	same a b
	same "$(checkpoint "$1" "$3")/model.safetensors" "$(checkpoint "$2" "$3")/model.safetensors"
	same "$(checkpoint "$1" "$3")/state.safetensors" "$(checkpoint "$2" "$3")/state.safetensors"
}

run 0 train $small --run.dir=two --ranks=2 --run.threads=2
job 0 2 train $small --run.dir=by2
alike two by2 6
# Each has its share of the processors, unless it is not to be bound.
cpus() {
	run 0 status "$1" --json
	grep -o '"processors": *"[^"]*"' out | sort -u
}
[ "$(nproc)" -lt 2 ] || [ "$(cpus by2 | wc -l)" = 2 ] || wrong "both ranks have the same processors: $(cpus by2)"
run 0 status two
says "^Processors: *1 thread each"
job 0 2 train $small --run.dir=free --run.affinity=none --train.steps=3
[ "$(cpus free | wc -l)" = 1 ] || wrong "ranks are bound, although run.affinity is none: $(cpus free)"
# Four share weights and state; they go on as two, and those as one.
run 0 train $small --run.dir=four --mesh.shard=2 --mesh.replicate=2 --run.threads=4 --train.steps=3
job 0 4 train $small --run.dir=by4 --mesh.shard=2 --mesh.replicate=2 --train.steps=3
alike four by4 3
for rank in 1 2 3; do
	[ -s by4/timeline-rank$rank.fot ] || wrong "no timeline of rank $rank"
	[ -s by4/ranks/0000$rank.state ] || wrong "no state of rank $rank"
done
run 0 report by4
says "^  rank 3 "
run 0 train $small --run.dir=four --mesh.shard=2 --ranks=2 --run.threads=2
job 0 2 train $small --run.dir=by4 --mesh.shard=2
alike four by4 6
says "^Resume: .*after step 3"
run 0 train $small --run.dir=by4 --train.steps=8
run 0 eval by4
says "^Logged: .* the same"
# tp groups: processes and threads leave the same files, asynchronously too, and processes go on with what they left.
heads="$small --model.heads=4 --model.kv-heads=2 --mesh.tp=2 --checkpoint.every=2 --checkpoint.keep=0"
run 0 train $heads --run.dir=tp --mesh.shard=2 --run.threads=4
job 0 4 train $heads --run.dir=bytp --mesh.shard=2
alike tp bytp 2
alike tp bytp 6
job 0 2 train $heads --run.dir=bytp --train.steps=8 --sample.tokens=4
says "^Resume: .*after step 6" "^Sample: "
logged_near bytp

# What cannot be.
no 2 "mesh.ranks=4, and 2 processes were started" 2 train $small --run.dir=no --ranks=4
no 2 "mesh.link-gbps emulates links between threads of one process" 2 train $small --run.dir=no --link-gbps=1
no 3 "cannot read 'absent': no such file" 2 train $small --run.dir=no --data.path=absent
cp "$bin" another
printf x >>another
# Another text at the same place of one rank: its own mounts stand for a disk of its own.
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
	mkdir -p other
	sed 's/a/b/g' text/* >other/text
	run 0 train $small --run.dir=mine --train.steps=3
	run 0 train $small --run.dir=theirs --data.path=other --train.steps=3
	rm -r mine/checkpoints mine/log.jsonl
	no 2 "rank 1 of 2 on host .*: '.*mine/data/train.shard' is another text than rank 0 has" 1 train $small --run.dir=mine : \
		-n 1 -x FLATOUT_MPI_PLUGIN="$plugin" unshare -m sh -c "mount --bind theirs/data mine/data && exec '$bin' train"
	[ ! -s mine/log.jsonl ] || wrong "a step was taken although the texts differ"
fi
# Commands of one process are not done twice.
for command in "status two" "eval two" "generate two"; do
	no 2 "'${command%% *}' is done by one process, and Open MPI has started 2" 2 $command
done
no 3 "rank 1 on host .* runs another program than rank 0" 1 train $small --run.dir=no : -n 1 -x FLATOUT_MPI_PLUGIN="$plugin" ./another train

# Ctrl-C of rank 0 ends all after the step, with a checkpoint, and the same command goes on.
timeout 60 "$mpirun" $as_root --oversubscribe --bind-to none -n 2 "$bin" train $small --run.dir=cut --train.steps=100000 --eval.every=0 \
	>out 2>err </dev/null &
pid=$!
wait_for_lines cut/log.jsonl 10 $pid
first=
for p in $(pgrep -x "$(basename "$bin")" 2>/dev/null || true); do
	tr '\0' ' ' <"/proc/$p/cmdline" 2>/dev/null | grep -q -- "run.dir=cut" && grep -qz '^OMPI_COMM_WORLD_RANK=0$' "/proc/$p/environ" 2>/dev/null && first=$p
done
[ -n "$first" ] && kill -INT "$first"
code=0
wait $pid || code=$?
[ "$code" = 130 ] || wrong "a job that was interrupted ended with $code"
says "stopped after step .* of 100000; the state is saved in"
ls cut/checkpoints/*/model.safetensors >/dev/null 2>&1 || wrong "an interrupted job left no checkpoint"

finish
