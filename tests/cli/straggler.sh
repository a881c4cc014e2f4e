#!/bin/sh
# A rank that is stopped three quarters of the time: flatout status names it while the job runs, and flatout report afterwards.
. "$(dirname "$0")/lib.sh"
needs_engine
plugin=${FLATOUT_MPI_PLUGIN:-$(dirname "$bin")/libflatout-mpi.so}
command -v mpirun >/dev/null && mpirun --version 2>&1 | grep -q "Open MPI" && [ -e "$plugin" ] || { echo "$name: no MPI plugin, or no Open MPI"; exit 77; }
export FLATOUT_MPI_PLUGIN="$plugin"
make_text text
"$bin" launch -n 2 --mpi-args=--oversubscribe -- train $tiny --train.rows=4 --train.steps=1000000 --eval.every=1000000 --sample.tokens=0 \
	--run.dir=job >first.out 2>first.err </dev/null &
job=$!
for i in $(seq 150); do
	"$bin" status job --json >state 2>/dev/null
	[ "$(sed -n 's/^ *"step": \([0-9]*\),/\1/p' state | sort -n | head -n 1)" -ge 1 ] 2>/dev/null && break
	sleep 0.1
done
victim=$(sed -n 's/^ *"process": \([0-9]*\),/\1/p' state | tail -n 1)
# Too early to say; it would be so for some seconds.
run 0 status job
says "^Not known yet: whether a rank is slower than all others"
i=0
while [ $i -lt 600 ] && kill -STOP "$victim" 2>/dev/null; do
	sleep 0.06
	kill -CONT "$victim"
	sleep 0.02
	i=$((i + 1))
	[ $((i % 20)) != 0 ] || ! "$bin" status job | grep -q "^Straggler:" || break
done
"$bin" status job >live
"$bin" status job --json >live.json
kill -INT $job
wait $job
grep -q "^Straggler: *rank 1 (host .*) works" live || wrong "status names nobody: $(cat live live.json)"
sed -n '/"straggler"/,/}/p' live.json | grep -q '"rank": 1,' || wrong "not in JSON: $(cat live.json)"
run 0 report job
says "^Straggler: *rank 1 (host .*) works"
run 0 report job --json
sed -n '/"straggler"/,/}/p' out | grep -q '"rank": 1,' || wrong "not in the report's JSON"
# Where the ranks' own files are gone, the last steps' timelines are what there is: a tenth of a second of steps names nobody.
rm -r job/ranks
run 0 report job
says "^Straggler: *not known from this: "
# A job that is too short says so, one of a single rank says nothing.
run 0 train $tiny --train.rows=4 --ranks=2 --run.dir=short
run 0 report short
says "^Straggler: *not known from this: "
run 0 train $tiny --run.dir=one
run 0 report one
! grep -q Straggler out || wrong "a straggler of one rank"
finish
