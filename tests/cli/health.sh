#!/bin/sh
# flatout health: the example from end to end, each kind of input alone, and what is none of them.
. "$(dirname "$0")/lib.sh"
[ -n "$python" ] || { echo "health: no python3"; exit 77; }
example=$source/examples/health

# The files are what their script makes.
"$python" "$source/examples/make_health.py" made || wrong "the example's script fails"
(cd made && find . -type f) | while read -r file; do
	case $file in
	*.gz) gzip -dc "made/$file" >a && gzip -dc "$example/$file" >b && cmp -s a b ;;
	*) cmp -s "made/$file" "$example/$file" ;;
	esac || echo "$file"
done >differ
[ ! -s differ ] || wrong "the example's files are not its script's: $(cat differ)"

# ---- the example ----
run 1 health "$example" --html=page.html
says "^Communication: *yes: above half of the step" "^Scaling: *yes: efficiency per GPU falls beyond 8" "^Idle: *yes: GPUs idle" \
	"^NCCL: *no: the network is used without" "^Change first: *The network" "^A year: *at least [$]1.* saved for the same work; the upper" \
	"modprobe nvidia_peermem" "^     Why: " "explains at most 2[0-9][0-9] ms of 854 ms" "idle time the host did" \
	"5.71 x by MFU" "4.00 x by throughput" "9.33 x by run time" "claim needs" "GPU utilisation of 61" "not add up"
long=$(awk 'length($0) > 100 && !/profil|nvidia-smi|NCCL_DEBUG/' out)
[ -z "$long" ] || wrong "lines of over 100 columns: $long"
# diagnose with the job's configuration: each setting once, with the trace's worth where it shows one, else a predicted one.
run 1 diagnose "$example/trace.json.gz" --job "$example/pretrain.sh" --cluster 16xDGX-A100
says "What each setting is worth, with the configuration" "Setting: *--overlap-grad-reduce, now off" "as fast (the trace: what its removal saves" \
	"configuration: both settings predicted"
# Its JSON has the same changes in health's words; without a configuration it has none.
run 1 diagnose "$example/trace.json.gz" --job "$example/pretrain.sh" --cluster 16xDGX-A100 --json
cp out settings.json
run 1 health "$example/trace.json.gz" "$example/pretrain.sh" --cluster 16xDGX-A100 --json
cp out both.json
run 1 diagnose "$example/trace.json.gz" --json
cp out alone.json
valid settings.json
"$python" - settings.json both.json alone.json <<'END' || wrong "the settings in diagnose's JSON are not health's"
import json, sys
d, h, alone = (json.load(open(p)) for p in sys.argv[1:])
money = ("mfu_after", "mfu_points", "year_usd")
short = [[{k: v for k, v in c.items() if k not in money} for c in x["changes"]] for x in (d, h)]
assert len(d["changes"]) > 3 and short[0] == short[1], short
assert any(c["setting"] == "--overlap-grad-reduce" and c["gain"]["high"] > 1 for c in d["changes"])
assert "changes" not in alone and {k: v for k, v in d.items() if k != "changes"} == alone
END
run 2 diagnose "$example/trace.json.gz" --job "$example/pretrain.sh" --cluster 2xHGX-H100
grep -q "not of one job" err || wrong "an H100's configuration beside an A100's trace: $(cat err)"
run 2 diagnose "$example/trace.json.gz" --cluster 2xHGX-H100
run 2 diagnose "$example/trace.json.gz" --job "$example/README.md"
run 1 health "$example" --json
cp out page.json
valid page.json
"$python" - page.json page.html "$example/trace.json.gz" <<'END' || wrong "the example's answers are wrong"
import json, re, sys
j = json.load(open(sys.argv[1]))
page = open(sys.argv[2]).read()
q = {x["id"]: x for x in j["questions"]}
assert abs(j["mfu"]["now"] - 0.07) < 0.002 and j["mfu"]["by"] == "log" and j["devices"] == 128, j["mfu"]
assert abs(j["mfu"]["gpu_utilisation"] - 0.61) < 0.01 and abs(j["mfu"]["computing"] - 1 / 11) < 0.01, j["mfu"]
assert j["device"] == "A100-SXM4-80GB"
assert q["communication"]["answer"] == "yes" and q["scaling"]["answer"] == "yes" and q["idle"]["answer"] == "yes" and q["nccl"]["answer"] == "no"
said = " ".join(q["nccl"]["evidence"])
for text in ("NCCL_SOCKET_NTHREADS=4 does nothing over InfiniBand", "NCCL_NSOCKS_PERTHREAD=4 does nothing over InfiniBand", "env.txt:1", "GPUDirect"):
    assert text in said, said
f = q["scaling"]["figure"]
assert f["low"] < 0.07 / 0.30 < f["high"], f
# The same from the trace's events alone: the last of the three marked steps has no end, so two thirds count.
import gzip
events = [e for e in json.load(gzip.open(sys.argv[3]))["traceEvents"] if e["cat"] == "kernel"]
comm = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["name"].startswith("nccl"))
comm = comm[: len(comm) * 2 // 3]
first, last = comm[0][0], max(e for _, e in comm)
busy, at = 0, first
for begin, end in sorted((e["ts"], e["ts"] + e["dur"]) for e in events):
    begin, end = max(begin, at), min(end, last)
    if end > begin:
        busy, at = busy + end - begin, end
idle = 1 - busy / (last - first)
assert abs(q["idle"]["figure"]["low"] - idle) < 1e-3, (q["idle"]["figure"], idle)
ids = [c["id"] for c in j["changes"]]
assert len(ids) == len(set(ids)) and "communication" in ids and "batch" in ids, ids
# Two sources of one change stand once: what the trace and the configuration say of gradients that nothing hides.
both = j["changes"][ids.index("communication")]["sources"]
assert any(s.startswith("trace: ") for s in both) and any(s.startswith("configuration: ") for s in both), both
assert any("by the arithmetic of the configuration" in c for c in j["conflicts"]), j["conflicts"]
known = [c for c in j["changes"] if c["gain"] and c["of_this_job"]]
# Serious ones first, one without a gain before all; then by the low end.
serious = [c["serious"] for c in j["changes"]]
assert serious == sorted(serious, reverse=True) and ids[0] == "gpudirect", ids
for kind in True, False:
    low = [c["gain"]["low"] for c in known if c["serious"] == kind]
    assert low == sorted(low, reverse=True), low
first = j["changes"][0]
assert "nvidia_peermem" in first["proposed"] and first["paste"] == "modprobe nvidia_peermem" and "host memory" in first["why"], first
# One option is pasted once, with one value.
assert sum("--global-batch-size" in (c["paste"] or "") for c in j["changes"]) == 1
# The group of 128 has eight ranks on a node, whose eight adapters of 25 GB/s carry it: 13 of 200 GB/s.
n = q["nccl"]["figure"]
assert abs(n["low"] - 13 / 200) < 0.001 and n["low"] == n["high"], n
assert "protocol LL" in said and "1 finding slows the network, 4 settings have no effect" in q["nccl"]["because"], q["nccl"]
assert not any("/claim.yaml" in c for c in j["conflicts"]), j["conflicts"]
cap = j["mfu"]["cap"]
assert 0.633 <= cap < 0.72, cap
for c in j["changes"]:
    if c["mfu_after"]:
        assert c["mfu_after"]["high"] <= cap + 1e-9, c
s = j["savings"]
assert s["known"] and s["mfu_after"]["high"] <= cap + 1e-9
# Money by hand: 128 devices, 8,760 hours, the rent's ends.
year = [128 * 8760 * r for r in (s["rent_usd_per_hour"]["low"], s["rent_usd_per_hour"]["high"])]
now = j["mfu"]["now"]
low, high = year[0] * (1 - now / s["mfu_after"]["low"]), year[1] * (1 - now / s["mfu_after"]["high"])
assert abs(s["year_saved"]["low"] / low - 1) < 1e-6 and abs(s["year_saved"]["high"] / high - 1) < 1e-6, (s["year_saved"], low, high)
assert len([c for c in j["conflicts"] if "claim.yaml" in c]) >= 2, j["conflicts"]
assert any("is not what 5.71 x saves" in c for c in j["conflicts"]), j["conflicts"]
assert any("within that time" in c for c in j["conflicts"]), j["conflicts"]
for text in ("Is communication above half of the step?", "Does efficiency per GPU fall beyond 8 GPUs?", "Do GPUs idle between all-reduces?",
             "Is NCCL tuned for this topology?", "MFU over the run", "parts sum to it"):
    assert text in page, text
assert not re.search(r'(src|href)="http', page) and "<script" not in page
END

# ---- the table of changes: every finding and option in it exists ----
"$bin" completion options >options
"$python" - "$source" options <<'END' || wrong "the table of changes names what does not exist"
import re, sys
from pathlib import Path
source = Path(sys.argv[1])
code = (source / "src/health/changes.c").read_text()
rows = re.search(r"} table\[\] = {(.*?)\n};", code, re.S).group(1)
quoted = lambda folder: set(re.findall(r'"([a-z0-9-]+)"', "".join(p.read_text() for p in (source / folder).glob("*.c"))))
findings = quoted("src/diagnose") | quoted("src/audit")
flags = {line.split("\t")[1] for line in open(sys.argv[2])}
seen = set()
for row in re.findall(r"{ (\"[a-z0-9-]+\",.*?) }", rows, re.S):
    texts = re.findall(r'"((?:[^"\\]|\\.)*)"|(NULL)', row.replace('"\n\t  "', ""))
    cells = [t[0] for t in texts]
    assert len(cells) == 4, row
    for word in cells[2].split():
        assert word in findings, word
        assert word not in seen, word + " stands in two rows"
        seen.add(word)
    for word in cells[3].split():
        assert "--" + word in flags, word
assert len(seen) > 30, seen
END

# ---- each kind alone ----
refused 2 "no file" health
answers() { # ID=ANSWER...: of the JSON in ./out
	"$python" - "$@" <<'END' || wrong "$last: answers are not $*"
import json, sys
j = json.load(open("out"))
q = {x["id"]: x["answer"] for x in j["questions"]}
for want in sys.argv[1:]:
    k, v = want.split("=")
    got = q[k] if k in q else str(j["savings"]["known"]).lower() if k == "savings" else j["mfu"]["by"] if k == "mfu" else str(len(j["changes"]))
    assert got == v, (k, got)
for x in j["questions"]:
    assert x["answer"] != "unknown" or x["record"], x
END
}
alone() { # CODE FILE ARGUMENT... -- ANSWER...
	last="$2" code=$1
	shift
	set -- "$@" --
	words=
	while [ "$1" != -- ]; do words="$words $1" && shift; done
	shift
	# shellcheck disable=SC2086 # words on purpose
	run "$code" health $words --json
	set -- $(printf '%s ' "$@" | sed 's/-- *$//')
	answers "$@"
}
alone 0 "$example/train-128.log" -- communication=unknown scaling=unknown idle=unknown nccl=unknown savings=false mfu=nothing changes=0
alone 0 "$example/train-128.log" --device=a100 -- mfu=log savings=false changes=0
alone 1 "$example/trace.json.gz" -- communication=yes scaling=unknown idle=yes nccl=unknown mfu=trace savings=true
alone 1 "$example/train-8.log" "$example/train-128.log" -- communication=unknown scaling=yes idle=unknown mfu=nothing
alone 1 "$example/node01" -- communication=unknown scaling=unknown idle=unknown nccl=no mfu=nothing savings=false
alone '0|1' "$example/pretrain.sh" --device=a100 -- idle=unknown nccl=unknown mfu=arithmetic savings=false
says '"estimated": true' "arithmetic of the configuration"
alone '0|1' "$example/pretrain.sh" -- communication=unknown scaling=unknown idle=unknown nccl=unknown mfu=nothing savings=false
alone 0 "$example/claim.yaml" -- communication=unknown scaling=unknown mfu=nothing savings=false

# An MFU that cannot be is none, and a trace without collectives answers nothing for a job of many devices.
run 0 health "$example/train-128.log" --device=a100 --devices=1 --json
answers mfu=nothing savings=false
says "which cannot be"
run '0|1' health "$source/examples/trace/slow-loader.json.gz" --devices=16 --json
answers communication=unknown idle=unknown
says "shows no communication at all"

# The cluster goes before what files say, and contradictions are told.
run 1 health "$example/trace.json.gz" --cluster=16xDGX-A100 --json
answers mfu=trace savings=true
says '"devices": 128' '"devices_from": "--cluster"'
run '0|1' health "$example/train-128.log" --cluster=2xDGX-A100 --json
says "train-128.log is of 128 devices, --cluster says 16"
refused 2 "and --cluster '2xDGX-A100' has 16" health "$example/train-128.log" --cluster=2xDGX-A100 --devices=8
refused 2 "is not a cluster" health "$example/train-128.log" --cluster=12

# Without a rent, devices or MFU no money is named.
run 1 health "$example/trace.json.gz" --devices=128 --device=h100 --json
answers savings=false
says "the trace is of A100-SXM4-80GB, the job runs on H100"
run 1 health "$example/trace.json.gz" --rent=2..3 --year=50 --json
says '"low": 2' '"high": 3'

# ---- the speed of all-reduces against the adapters of a node ----
# Bus bandwidths of 18.5 and of 190 GB/s on 16 nodes of 8: below a tenth of a node's adapters, and what such a cluster
# reaches. Of a group of 64 nobody knows how many share a node, unless its ranks are listed: here one of each node.
"$python" - "$example/trace.json.gz" <<'END' || wrong "cannot rewrite the trace"
import gzip, json, sys
def write(name, gb_s, size=128, ranks=None):
    t = json.load(gzip.open(sys.argv[1]))
    for e in t["traceEvents"]:
        if e.get("name", "").startswith("nccl"):
            e["args"]["Group size"] = size
            e["dur"] = 2 * (size - 1) / size * 2 * e["args"]["In msg nelems"] / (gb_s * 1e3)
            if ranks:
                e["args"]["Process Group Ranks"] = str(ranks)
    json.dump(t, open(name, "w"))
write("slow.json", 18.5)
write("fast.json", 190)
write("part.json", 18.5, 64)
write("each.json", 22, 16, list(range(0, 128, 8)))
write("eight.json", 22, 8, list(range(0, 64, 8)))
END
for case in "slow unknown 0.0925 0.0925" "fast yes 0.95 0.95" "part unknown 0.0925 0.74" "each yes 0.88 0.88" "eight yes 0.88 0.88"; do
	# shellcheck disable=SC2086 # words on purpose
	set -- $case
	run '0|1' health "$1.json" --devices=128 --json
	answers "nccl=$2"
	"$python" -c 'import json, sys
f = json.load(open("out"))["questions"][3]["figure"]
assert abs(f["low"] - float(sys.argv[1])) < 0.01 and abs(f["high"] - float(sys.argv[2])) < 0.01, f' "$3" "$4" || wrong "$1.json: another figure"
done
run '0|1' health part.json --devices=128
says "of 1 to 8 network adapters of a node"

# ---- above the best that was published ----
run '0|1' health "$example/pretrain.sh" --device=a100 --mfu=90
says "MFU of 90.0 % (--mfu) is above 63.3 %"
run '0|1' health "$example/pretrain.sh" --device=a100 --mfu=50
grep -q "is above 63.3 %" out && wrong "an MFU of 50 % is called above 63.3 %"

# LoRA has its own count, full and causal: of 70 B at sequence 8,192 (6 n + 12 L h s - 2 n) / (6 n + 6 L h s - 2 n) is 1.105.
mllog() { printf ':::MLLOG {"namespace": "", "time_ms": %s, "event_type": "%s", "key": "%s", "value": %s, "metadata": %s}\n' "$@"; }
{
	mllog 1726852783639 POINT_IN_TIME submission_benchmark '"llama2_70b_lora"' '{}'
	mllog 1726852783639 POINT_IN_TIME submission_platform '"1xNVIDIA DGX H100"' '{}'
	mllog 1726852783640 POINT_IN_TIME global_batch_size 8 '{}'
	mllog 1726852844350 INTERVAL_START block_start null '{"samples_count": 0}'
	mllog 1726852880831 POINT_IN_TIME train_loss 2.0 '{"samples_count": 80}'
	mllog 1726852917544 POINT_IN_TIME train_loss 1.9 '{"samples_count": 160}'
	mllog 1726852954267 POINT_IN_TIME train_loss 1.8 '{"samples_count": 240}'
	mllog 1726852954300 INTERVAL_END block_stop null '{"samples_count": 240}'
} >lora.txt
run 0 health lora.txt --json
"$python" -c 'import json
m = json.load(open("out"))["mfu"]
assert m["rule"] == "mfu_lora" and abs(m["cap"] / 0.61 - 1.105) < 0.01, m' || wrong "the limit of LoRA is not by its own count"

# ---- one device ----
run 1 health "$example/trace.json.gz" --devices=1 --json
answers communication=yes
sed 's/world_size \(\.*\) 8/world_size \1 1/; s/world size: 8/world size: 1/' "$example/train-8.log" >one.log
run 0 health one.log --json
answers "communication=not applicable" "scaling=not applicable" idle=unknown "nccl=not applicable"
run 0 health one.log
says "^Communication: *does not apply: one device" "give --device D"
grep -q "mpirun" out && wrong "one device is asked to run mpirun"
run 0 health "$example/train-8.log"
says "mpirun -np 8 -N 8" "nvidia-smi -q > smi.txt" "under question 1"
[ "$(grep -c "from torch.profiler" out)" = 1 ] || wrong "the commands for a trace stand twice"

# ---- logs that cannot be compared ----
# An audit that finds nothing wrong is no proof that NCCL is tuned.
printf 'NCCL_DEBUG=WARN\nCUDA_DEVICE_MAX_CONNECTIONS=1\n' >env.txt
run 0 health env.txt --json
answers nccl=unknown
says "nccl-tests"

sed 's/num_layers \(\.*\) 24/num_layers \1 12/' "$example/train-8.log" >other-model.log
run 0 health other-model.log "$example/train-128.log" --json
answers scaling=unknown
says "are of different models"
sed 's/world_size \(\.*\) 8/world_size \1 128/; s/world size: 8/world size: 128/' "$example/train-8.log" >same-devices.log
run 0 health same-devices.log "$example/train-128.log" --json
answers scaling=unknown
says "he logs are of the same number of devices"
# A run that scales: half of the devices at the same speed of each.
sed 's/world_size \(\.*\) 128/world_size \1 8/; s/world size: 128/world size: 8/; s/global_batch_size \(\.*\) 128/global_batch_size \1 8/; s/global batch size:   128/global batch size:     8/' \
	"$example/train-128.log" >scales.log
run 0 health scales.log "$example/train-128.log" --json
answers scaling=no

# ---- what is none of these ----
echo "my thesis, chapter 1" >thesis.txt
run 2 health thesis.txt "$example/train-128.log"
says "^flatout: 'thesis.txt' is not used: it is none of the files that health reads: logs" "train-128.log: log of Megatron-LM" "thesis.txt: not used"
sentence
run 2 health thesis.txt --json
valid out
refused 3 "no such file" health nothing.log
# A training log of which nothing is known: the reason, not the list of what is read.
i=1
while [ $i -le 40 ]; do
	echo "iter $((100 + i)): loss 2.2000, time 2000.00ms, mfu 21.23%"
	echo "iter $i: loss 2.3000, time 1000.00ms, mfu 41.23%"
	i=$((i + 1))
done >two-runs.log
run 2 health two-runs.log
says "two-runs.log' is not used: .*lines of several runs alternate: 39 times"
printf '[training]\nlocal_batch_size = 1\n[parallelism\ndata' >broken.toml
run 2 health broken.toml
says "as a configuration: broken.toml:[34]: not valid TOML"
# A page that shows a variable is no environment; a script that sets one for NCCL is.
printf 'Install it so:\n\n```\nexport PATH=$PWD/bin:$PATH\nmake\n```\nThen read on.\n' >page.md
run 2 health page.md
says "page.md' is not used"
printf '#!/bin/sh\ncd job\nexport NCCL_IB_DISABLE=1\nrun one\nrun two\n' >job.sh
run '0|1' health job.sh
says "job.sh: of a host: environment"
mkdir empty && run 2 health empty && says "is not used: this folder is empty"
head -c 4096 /dev/urandom >noise
run 2 health noise
head -c 9000 "$example/trace.json.gz" >half.json.gz
run '1|2' health half.json.gz
gzip -dc "$example/trace.json.gz" | head -c 300000 >half.json
run '1|2' health half.json --json
head -n 40 "$example/train-128.log" | head -c 6000 >half.log
run 0 health half.log --json
answers scaling=unknown
printf 'claim:\n  mfu-before: 700\n  mfu-afer: 3\n' >wrong.yaml
run 2 health wrong.yaml
says "wrong.yaml' is not used" "mfu-afer"
printf 'claim:\n' >bare.yaml
run 0 health bare.yaml

# Somebody else's trace beside the log: told, and without money.
cp "$source/examples/trace/slow-loader.json.gz" other.json.gz
run 1 health "$example/train-128.log" other.json.gz --device=a100 --json
says "the trace is of H100" "no money rests on it"
answers savings=false
# Two traces that are not one job's: the first stands.
run '1|2' health "$example/trace.json.gz" other.json.gz --json
valid out

# ---- a run of ours, and a ladder whose times are made certain ----
mkdir -p ours
printf '{"schema": 1, "run": {"options": {}}, "passes": "none", "machine": {"cpu": "x", "threads": 1, "peak_flop_s": 1e11}, "seed": 1}\n' >ours/run.json
awk 'BEGIN { for (i = 1; i <= 20; i++)
	printf "{\"event\":\"step\",\"step\":%d,\"loss\":%g,\"grad_norm\":1,\"lr\":0.001,\"seconds\":0.1,\"tokens\":512,\"loss_tokens\":500,\"tokens_per_second\":5000,\"mfu\":0.5,\"mfu_causal\":0.5,\"time\":%d}\n", i, 5 - i / 10, 1795000000 + i }' >ours/log.jsonl
alone 0 ours -- mfu=run savings=false
says '"now": 0.5'
if [ -n "${FLATOUT_HAS_ENGINE:-}" ]; then
	make_text text
	printf 'plain:\n  pass: {merge-qkv: no, fuse-loss: 0}\nmerged:\n  what: queries, keys and values from one matmul\n  pass.merge-qkv: yes\nslow:\n  from: plain\n  pass.fuse-loss: 16\n' >mine.yaml
	# shellcheck disable=SC2086 # words on purpose
	run 0 ladder $tiny --train.steps=20 --rungs=mine.yaml --run.dir=rungs
	"$python" - rungs <<'END' || wrong "cannot rewrite the times of the rungs"
import json, sys
for rung, seconds in ("plain", 0.010), ("merged", 0.005), ("slow", 0.012):
    path = f"{sys.argv[1]}/{rung}/log.jsonl"
    lines = [json.loads(x) for x in open(path)]
    for x in lines:
        if x.get("event") == "step":
            x["seconds"] = seconds * (1 + 0.001 * (x["step"] % 3))
    open(path, "w").write("".join(json.dumps(x, separators=(",", ":")) + "\n" for x in lines))
END
	alone 0 rungs -- mfu=ladder savings=false
	"$python" - <<'END' || wrong "the ladder's gains are not what its times say"
import json
j = json.load(open("out"))
c = {x["id"]: x for x in j["changes"]}
assert c["launches"]["worth"] == "measured" and c["launches"]["of_this_job"] and 1.9 < c["launches"]["gain"]["low"] <= c["launches"]["gain"]["high"] < 2.1, c
assert c["fusion"]["gain"]["high"] < 1, c["fusion"]
assert j["changes"][0]["id"] == "launches" and j["changes"][-1]["id"] == "fusion"
assert 1.9 < j["savings"]["together"]["low"] < 2.1, j["savings"]
END
	# Beside a log of another machine it is told, and no money rests on it.
	run 0 health rungs "$example/train-128.log" --device=a100 --json
	answers savings=false mfu=log
	says '"of_this_job": false' "another machine than this job's"
fi

refused 2 "expected a number above 0" health "$example/train-128.log" --rent=0
refused 2 "unknown device" health "$example/train-128.log" --device=nosuch
finish
