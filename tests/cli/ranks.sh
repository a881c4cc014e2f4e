#!/bin/sh
# mesh.ranks: several ranks train as one does; runs go on with the same bits; what cannot be is refused with what could.
. "$(dirname "$0")/lib.sh"

small="$tiny --train.rows=4 --train.precision=fp32"
run 0 program $small --ranks=2 --no-operations
says "2 ranks x 2 micro-batches x 2 rows x 32 tokens" "^Received: .* per step from the other ranks" "^layer.b.r: " \
	"^Roles: *1: rank 0 and 1 other like it; "
run 0 program $small --ranks=2 --json --dump=two.txt
says '"ranks": 2,' '"roles": 1,' '"received_bytes": '
grep -q '^mesh 2 1$' two.txt || wrong "the dump has no mesh"
run 0 program $small --dump=one.txt
! grep -q '^mesh' one.txt || wrong "a program of one rank names a mesh"
refused 2 "3 ranks cannot share .* train.rows=4: the nearest that can be shared are 3 or 6 rows, or 2 or 4 ranks" program $small --ranks=3
refused 2 "8 ranks cannot share .* the nearest that can be shared are 8 rows, or 4 ranks" program $small --ranks=8
refused 2 "from 1 to 1024 ranks, got '0'" program $small --ranks=0
refused 2 "mesh.ranks=2 cannot be combined with run.affinity" program $small --ranks=2 --run.affinity=cores
refused 2 "mesh.ranks=2 cannot be combined with program.file" program $small --ranks=2 --program.file=two.txt
refused 2 "mesh.link-gbps is about links between ranks, and there is one rank" program $small --link-gbps=1
refused 2 "mesh.link-us is about links between ranks, and there is one rank" program $small --link-us=1

# Predictions, from a profile that knows nothing of calls between ranks: emulated links say how long they take at least.
profile=$FLATOUT_SOURCE/fuzz/corpus/profile/two_cores.json
run 0 predict $small --ranks=2 --profile="$profile"
says "^Ranks: *2 of 1 thread each, all alike: one was simulated for all" "^Links: *threads of one process: not measured in groups of 2 ranks" "^Exposed: "
run 0 predict $small --ranks=2 --profile="$profile" --json
cp out fast
run 0 predict $small --ranks=2 --profile="$profile" --link-gbps=0.001 --json
says '"link_bytes_per_second": 125000,'
# number KEY FILE: of an object "KEY": {low, mid, high} the middle; else the number.
number() { sed -n "/\"$1\": {/,/}/s/.*\"mid\": \([-0-9.e+]*\).*/\1/p" "$2" | head -n 1; }
received=$(sed -n 's/^ *"received_bytes": \([0-9.e+]*\),*$/\1/p' out | head -n 1)
awk -v a="$(number exposed_seconds out)" -v h="$(number hidden_seconds out)" -v b="$received" 'BEGIN { exit !(b > 0 && a + h > b / 125000 * 0.9999) }' ||
	wrong "$received bytes at 125 kB/s are exposed for $(number exposed_seconds out) s and hidden for $(number hidden_seconds out)"
awk -v a="$(number exposed_seconds out)" -v f="$(number exposed_seconds fast)" 'BEGIN { exit !(a > 10 * f) }' || wrong "slow links do not show"

# The simulated job as files: diagnose reads them, and its steps can be run again with other times.
run 0 predict $small --ranks=2 --profile="$profile" --link-gbps=0.001 --timelines=job --trace=job.json
says "^Holds the step: *transfer of "
grep -q '"name":"simulated: rank 0 of 2' job.json || wrong "the trace has no rank 0"
run 0 diagnose job
says "rank  device  steps"
run 0 predict --what-if=job --links=2
says "^Change: *links 2 times as fast" "^Run again: .*: [-+]0.00 %" "^Changed: .* [45][0-9.]* % less" "^Rests on: " "transfer of "
run 0 predict --what-if=job --scale=lane:reduce=0,matmul=0.5 --without=1 --json
says '"without_rank": 1,' '"known_ranks": 2,' '"changed_seconds": '
run 0 predict --what-if=job --scale=matmul=0 --scale=lane:reduce=0.5
says "^Change: *matmul x 0, lane:reduce x 0.5"
run 0 predict --what-if=job/timeline-rank1.fot
says "^Only: *rank 1 of 2 is known"
refused 2 "'job' is not empty: timelines of ranks go into a new folder" predict $small --ranks=2 --profile="$profile" --timelines=job
refused 2 "--timelines and --trace are of several ranks" predict $small --profile="$profile" --timelines=other
refused 2 "this run has no operation 'nothing'" predict --what-if=job --scale=nothing=1
refused 2 "'matmul' is not NAME=FACTOR" predict --what-if=job --scale=matmul
refused 2 "neither 'straggler' nor a rank from 0 to 1" predict --what-if=job --without=2
refused 2 "no rank of 'job' is slower than all others" predict --what-if=job --without=straggler
grep -q 'stretches of half a second or more to compare' err || wrong "$(cat err)"
refused 2 "has no timeline.fot: nothing tells when its operations ran" predict --what-if=.
refused 2 "--what-if=RUN says of which run" predict --links=2
refused 2 "no run file, --compare, --device" predict --what-if=job --device=h200
head -c 200 job/timeline-rank1.fot >cut && mv cut job/timeline-rank1.fot
refused 2 "timeline 'job/timeline-rank1.fot' is cut off" predict --what-if=job

needs_engine
make_text text
at=$(checkpoint . 6)
# losses DIR: of its steps, one in a line.
losses() { sed -n 's/^{"event":"step",.*"loss":\([-0-9.e]*\),.*/\1/p' "$1/log.jsonl"; }
run 0 train $small --run.dir=one
for ranks in 2 4; do
	run 0 train $small --run.dir=by$ranks --ranks=$ranks --run.threads=$ranks
	losses one >a
	losses by$ranks >b
	# The transport is the run's.
	run 0 predict --compare=by$ranks --profile="$profile"
	says "^Links: *threads of one process"
	cp -r by$ranks over$ranks
	sed -i 's/"threads": '"[0-9]*"',/&\n    "processes": '$ranks', "hosts": 1,/' over$ranks/run.json
	run 0 predict --compare=over$ranks --profile="$profile"
	says "^Links: *processes over MPI"
	rm -r over$ranks
	[ "$(wc -l <b)" = 6 ] || wrong "$ranks ranks: not six losses"
	# Six steps of fp32: sums in another order.
	paste a b | awk '{ d = $1 > $2 ? $1 - $2 : $2 - $1; if (d > 1e-5 * $1) bad++ } END { exit bad > 0 }' ||
		wrong "$ranks ranks have other losses: $(paste a b | tail -n 2)"
done
# Slow links change no number, and a run on them is set beside its prediction.
run 0 train $small --run.dir=slow --ranks=2 --run.threads=2 --link-gbps=0.2 --link-us=100
losses by2 >a
losses slow >b
cmp -s a b || wrong "slow links change losses"
run 0 predict --compare=slow --profile="$profile" --run.threads=2
says "^Links: *emulated, 0.2 Gbit/s, 100 us a call" "^Measured: .* of exposed communication on rank 0"
# The same again, and in two parts: the same bits.
run 0 train $small --run.dir=again --ranks=2 --run.threads=2
same by2/$at/model.safetensors again/$at/model.safetensors
same by2/$at/state.safetensors again/$at/state.safetensors
whole="--optim.schedule=constant --ranks=2"
run 0 train $small $whole --run.dir=whole
run 0 train $small $whole --run.dir=parts --train.steps=3
run 0 train $small $whole --run.dir=parts
says "^Resume: .*after step 3"
same whole/$at/model.safetensors parts/$at/model.safetensors
same whole/$at/state.safetensors parts/$at/state.safetensors
# A run goes on with another number of ranks, and its folder is read as any other.
run 0 train $small --optim.schedule=constant --run.dir=parts --ranks=4 --train.steps=8
run 0 report parts
says "2 x 4 rows of 32 tokens per step"
run 0 eval parts
says "^Logged: .* the same"

# All ranks are recorded. What they computed, waited and received: the same figures in the report's JSON, and counted again from the
# exported trace.
for rank in 1 2 3; do [ -s by4/timeline-rank$rank.fot ] || wrong "rank $rank left no timeline"; done
[ ! -e parts/timeline-rank4.fot ] && [ ! -e by4/program-rank1.txt ] || wrong "a file of a rank that is none, or a program twice"
run 0 report by4
says "^Ranks: .*of a step" "^  rank 3 .*[0-9]" "^  data, rank 3 "
run 0 export by4 --trace by4.json
run 0 report by4 --json
python3 - out by4.json <<'END' || wrong "the report's ranks and the exported trace do not agree"
import json, sys
ranks = json.load(open(sys.argv[1]))["ranks"]
events = json.load(open(sys.argv[2]))
events = events["traceEvents"] if isinstance(events, dict) else events
assert ranks["ranks"] == ranks["known"] == 4 and ranks["steps"] == 6 and ranks["unmatched"] == 0, ranks
names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
assert [names[p] for p in sorted(names)] == ["rank %d of 4: by4" % r for r in range(4)], names
calls, received = {}, [0] * 4
for e in events:
    if e["ph"] == "X" and "received_bytes" in e.get("args", {}):
        rank = int(names[e["pid"]].split()[1])
        calls.setdefault((e["args"]["step"], e["args"]["instance"]), {})[rank] = (e["ts"], e["ts"] + e["dur"])
        received[rank] += e["args"]["received_bytes"]
assert calls and all(len(c) == 4 for c in calls.values()) and len(calls) * 4 == ranks["calls"]
waited, transfer, last = [0] * 4, [0] * 4, [0] * 4
for call in calls.values():
    latest = max(b for b, _ in call.values())
    last[min(r for r, (b, _) in call.items() if b == latest)] += 1
    for r, (begin, end) in call.items():
        arrived = min(max(latest, begin), end)
        waited[r] += arrived - begin
        transfer[r] += end - arrived
for g in ranks["group"]:
    r = g["rank"]
    near = lambda got, want: abs(got * 6e6 - want) < 0.01 + 1e-6 * want
    assert g["group"] == "data" and g["members"] == 4 and g["calls"] == len(calls) and g["received_bytes"] == received[r], g
    assert near(g["wait_seconds"], waited[r]) and near(g["transfer_seconds"], transfer[r]) and g["last"] == last[r], (g, waited, last)
for t in ranks["rank"]:
    parts = ["compute", "exposed_wait", "exposed_transfer", "exposed_unknown", "other"]
    assert t["known"] and abs(sum(t[p + "_seconds"] for p in parts) - t["step_seconds"]) < 1e-9 and t["step_seconds"] > 0, t
END
run "0|1" diagnose by4
says "^  4 ranks" "operations matched"
run 0 report by4 --json
cp out report.json
run "0|1" diagnose by4 --json
python3 - out report.json <<'END' || wrong "report and diagnosis do not agree on who waited for whom"
import json, sys
waits, ranks = json.load(open(sys.argv[1]))["waits"], json.load(open(sys.argv[2]))["ranks"]
for w, g in zip(waits, ranks["group"]):
    ns = lambda key: round(g[key] * ranks["steps"] * 1e9)
    assert w["rank"] == g["rank"] and w["matched"] == g["calls"] and w["last"] == g["last"], (w, g)
    assert w["wait_ns"] == ns("wait_seconds") and w["transfer_ns"] == ns("transfer_seconds") and w["caused_wait_ns"] == ns("waited_for_seconds"), (w, g)
assert len(waits) == len(ranks["group"]) == 4
END
! grep -q '^ *left out: ' out || wrong "a rank of the run is left out"
run 0 report one --json
says '"ranks": null'
# Half a file, one of another run, none at all: each is told, and nothing is guessed.
run 0 train $small --run.dir=other --ranks=4 --run.threads=4
# More threads than processors compute no faster: the peak is of those that run at once.
measured=$(sed -n 's/.*"peak_source": ".* loop, \([0-9]*\) threads*, .*/\1/p' other/run.json | head -n 1)
[ "${measured:-0}" -ge 1 ] && [ "$measured" -le "$(nproc)" ] || wrong "the peak is of ${measured:-no} threads on $(nproc) processors"
cp other/timeline-rank1.fot by4/
rm by4/timeline-rank2.fot
head -c 2000 other/timeline-rank3.fot >by4/timeline-rank3.fot
run 0 report by4
says "timeline-rank1.fot. is of another run than .*timeline.fot" "there is no by4/timeline-rank2.fot" "rank3.fot. is cut off" \
	"^  rank 1 *- *- *-"
run 0 report by4 --json
says '"known": 1,' '"exposed_wait_seconds": null' '"waited_for_rank": null'
run 0 export by4 --trace by4.json --force
says "rank 1 is not in it: .*another run" "rank 2 is not in it: there is no" "rank 3 is not in it: .*cut off"
run "0|1" diagnose by4
says "rank 0 alone, of the job's 4" "timeline-rank1.fot' is of another run" "is cut off"
refused 2 "not one job: .* were written by two runs" diagnose by4/timeline.fot other/timeline-rank1.fot
# A run with fewer ranks in the same folder leaves no file of the others; one with one rank none at all.
run 0 train $small --optim.schedule=constant --run.dir=parts --ranks=2 --train.steps=9
[ -e parts/timeline-rank1.fot ] && [ ! -e parts/timeline-rank2.fot ] || wrong "files of ranks that are no more, or too few"
run 0 train $small --optim.schedule=constant --run.dir=parts --train.steps=10
[ ! -e parts/timeline-rank1.fot ] || wrong "files of ranks that are no more"

# A value that is not finite: the rank that made it is named.
refused 1 "on rank [01] of 2, .* the first value that is not finite" train $small --run.dir=nan --ranks=2 --optim.lr=10 \
	--optim.warmup=0 --optim.clip=0 --optim.eps=0 --train.steps=400
finish
