#!/bin/sh
# flatout launch and flatout status: a job of two processes on this machine, what ends it, and what is said of it.
. "$(dirname "$0")/lib.sh"

# A terminal of 80 columns has room for each line.
narrow() {
	[ -z "$(awk 'length > 80' out)" ] || wrong "lines of more than 80 columns: $(awk 'length > 80' out)"
}

# Without MPI: what is refused, and status of folders that hold no state, or damage.
mkdir empty
refused 2 "'empty' has no state of any rank" status empty
refused 3 "there is no run directory 'absent'" status absent
refused 2 "no run directory" status
refused 2 "leave one of them out" status empty --follow --json
mkdir -p half/ranks
printf 'FORANKS1' >half/ranks/00001.state
run 1 status half
says "Held up: *rank [01]" "missing" "damaged"
run 1 status half --json
says '"ranks": 2,' '"health": "damaged"'
needs_engine
refused 2 "nothing to launch" launch
refused 2 "how many ranks" launch -- train x.yaml
refused 2 "can 'train', got 'eval'" launch -n 2 -- eval
refused 2 "'-n' must be an integer" launch -n none -- train
refused 3 "there is no program './absent'" launch -n 2 --mpirun=./absent -- train $tiny
refused 3 "is neither Open MPI's mpirun nor MPICH's" launch -n 2 --mpirun=/bin/true -- train $tiny
refused 2 "--as-rank is for processes that mpirun starts" launch --as-rank=run -- train $tiny

make_text text
# One process that is stopped and killed.
"$bin" train $tiny --train.steps=1000000 --eval.every=1000000 --run.dir=one >/dev/null 2>&1 </dev/null &
one=$!
for i in $(seq 150); do
	"$bin" status one 2>/dev/null | grep -q "step [1-9]" && break
	sleep 0.1
done
run 0 status one
says "Job: *one: 1 rank, step [1-9]" "Hosts: " "Processors: *1 thread, on [0-9]" " ago  *\(step [1-9]\|between steps\|saving\)"
kill -STOP $one
for i in $(seq 100); do # a signal takes its time on a busy machine
	grep -q ') T ' /proc/$one/stat && break
	sleep 0.05
done
run 1 status one
says "Held up: *rank 0 is stopped by a signal .*process $one): *step"
narrow
kill -9 $one
wait $one 2>/dev/null
run 1 status one --json
says '"health": "gone",' '"cause_rank": 0,'

# A report of MPI that begins behind a line which a rank has not ended: what ranks say passes, the report does not.
cat >mpirun.sh <<'EOF'
#!/bin/sh
[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1.4" && exit
rule=--------------------------------------------------------------------------
printf 'half a line%s\nORTE was unable to reliably start one or more daemons.\n%s\nanother line\n' $rule $rule >&2
exit 1
EOF
chmod +x mpirun.sh
run 3 launch -n 2 --mpirun=./mpirun.sh -- train $tiny --train.rows=4 --run.dir=report
says "^half a line$" "^another line$" "MPI could not start its daemon"
! grep -q -- "------" err || wrong "a report of MPI shows: $(cat err)"

# A rank that was left behind ends when the launcher says that its job is over, and not before.
FLATOUT_JOB=launch-1 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 "$bin" launch --as-rank=left -- \
	train $tiny --train.steps=1000000 --eval.every=1000000 --run.dir=left >/dev/null 2>&1 </dev/null &
left=$!
for i in $(seq 150); do
	"$bin" status left 2>/dev/null | grep -q "step [1-9]" && break
	sleep 0.1
done
echo launch-11 >>left/ranks/over
sleep 3
kill -0 $left || wrong "a rank ended with another job"
echo launch-1 >>left/ranks/over
want=137 code=0
wait $left || code=$?
judge "a rank of a job that is over"
run 1 status left --json
says '"health": "ended with another",'

plugin=$(dirname "$bin")/libflatout-mpi.so
command -v mpirun >/dev/null && mpirun --version 2>&1 | grep -q "Open MPI" && [ -e "$plugin" ] || finish
export FLATOUT_MPI_PLUGIN="$plugin"
small="$tiny --train.rows=4"
run 0 launch -n 2 --mpi-args=--oversubscribe --dry-run -- train $small
says "^mpirun -n 2 .*--bind-to none .*-x FLATOUT_JOB .*--as-rank=run.* train "
run 0 launch -n 2 --mpi-args=--oversubscribe -- train $small --run.dir=two
! grep -q "$(printf '\033')" out || wrong "control characters where the output is no terminal"
[ -d two/checkpoints/step-00000006 ] || wrong "two ranks left no checkpoint"
run 0 status two
says "2 ranks, step 6 of 6" "Processors: *[0-9]* threads\{0,1\} each" "ended  *done"
# A run that has nothing to do has taken no step.
run 0 launch -n 2 --mpi-args=--oversubscribe -- train $small --run.dir=two
run 0 status two
says "2 ranks, no step so far"
refused 2 "2 ranks are asked for, and --hosts=h1:1 has room for 1" launch -n 2 --hosts=h1:1 -- train $small --run.dir=never
refused 2 "3 ranks are asked for, and --hosts=h1,h2 has room for 2" launch -n 3 --hosts=h1,h2 -- train $tiny --train.rows=3 --run.dir=never
for hosts in vm:abc "'abc' is no number of ranks" vm:0 "'0' is no number of ranks" vm: "'' is no number of ranks" \
	h1,,h2 "it has an empty name" , "it has an empty name" "" "it has an empty name" h1,h2:2,h1:2 "host 'h1' comes twice" \
	missing/file "there is no such file"; do
	if [ -z "${list+x}" ]; then
		list=$hosts
	else
		refused 2 "'--hosts=$list': $hosts" launch -n 2 "--hosts=$list" -- train $small --run.dir=never
		unset list
	fi
done
# What does not fit the ranks is told before any starts.
refused 2 "3 ranks cannot share the rows of a micro-batch" launch -n 3 -- train $small --run.dir=never
refused 2 "mesh.ranks=4, and 2 processes" launch -n 2 -- train $small --ranks=4 --run.dir=never
[ ! -e never ] || wrong "a job that was refused left a folder"
# A rank is killed: one line names it, its place and its operation, and no process stays.
"$bin" launch -n 2 --mpi-args=--oversubscribe -- train $small --train.steps=1000000 --eval.every=1000000 --checkpoint.every=20 \
	--run.dir=dead >out 2>err </dev/null &
job=$!
for i in $(seq 150); do
	"$bin" status dead --json >state 2>/dev/null
	[ "$(sed -n 's/^ *"step": \([0-9]*\),/\1/p' state | sort -n | head -n 1)" -ge 25 ] 2>/dev/null &&
		ls -d dead/checkpoints/step-* >/dev/null 2>&1 && break
	sleep 0.1
done
victim=$(sed -n 's/^ *"process": \([0-9]*\),/\1/p' state | tail -n 1)
kill -9 "$victim"
wait $job
code=$?
[ $code = 3 ] || wrong "a killed rank ends the job with $code: $(cat err)"
[ "$(grep -c '^flatout: ' err)" = 1 ] || wrong "not one line: $(cat err)"
grep -q "^flatout: rank 1 of 2 was killed by signal 9, Killed (host .*, process $victim): " err || wrong "$(cat err)"
grep -q "^hint: the newest checkpoint is 'dead/checkpoints/step-" err || wrong "no hint: $(cat err)"
run 1 status dead
narrow
! pgrep -f -- "--run.dir=dead" >/dev/null || sleep 1
! pgrep -f -- "--run.dir=dead" >/dev/null || wrong "processes are left"
finish
