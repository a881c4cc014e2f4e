#!/bin/sh
# train.paced: operations take given times; such a run says so wherever it is looked at, and is not taken for one that trained.
. "$(dirname "$0")/lib.sh"

sed 's/"threads": 2, "shape"/"threads": 1, "shape"/' "$FLATOUT_SOURCE/fuzz/corpus/profile/two_cores.json" >p.json
run 0 config --train.paced=p.json
says "^ *eval.every  *0 " "^ *checkpoint.every  *0 " "^ *checkpoint.last  *no "
refused 2 "train.paced computes nothing, and cannot be combined with eval.every" config --train.paced=p.json --eval.every=10
refused 2 "cannot be combined with checkpoint.last" config --train.paced=p.json --checkpoint.last=yes
refused 2 "cannot be combined with train.metered-every" config --train.paced=p.json --train.metered-every=10
small=$(echo "$tiny" | sed 's/ --eval.[a-z]*=[0-9]*//g')
run 0 predict $small --train.paced=p.json --ranks=2
says "^Paced: *paced kernels: times are given, not measured" "^Exposed: "
grep -q "^MFU" out && wrong "a prediction of paced kernels has an MFU"

needs_engine
make_text text
run 0 train $small --ranks=2 --link-gbps=0.1 --train.paced=p.json --run.dir=a
says "^Kernels: *none: paced, each operation waits the time that 'p.json' gives it" "^MFU: *unknown: paced kernels: times are given" \
	"^Paced: *paced kernels: times are given, not measured; no loss, no MFU"
[ "$(grep -c median_s p.json)" = "$(grep -c median_s a/paced.json)" ] || wrong "the run does not hold the profile that it took"
grep -q '"isa": "paced"' a/run.json || wrong "run.json does not say that kernels were paced"
grep -q '"event":"start".*"isa":"paced".*"peak_flop_s":null' a/log.jsonl || wrong "the log's start does not say so"
grep '"event":"step"' a/log.jsonl | grep -qv '"loss":null.*"mfu":null' && wrong "a step of paced kernels has a loss or an MFU"
[ ! -e a/checkpoints ] || [ -z "$(ls a/checkpoints)" ] || wrong "weights that nothing computed were saved"
run "0|1" report a
says "paced kernels: times are given, not measured"
grep -q "^MFU" out && wrong "the report of paced kernels has an MFU"
run 0 report a --json
says '"paced": true,' '"peak_flop_s": null,'
run 0 predict --compare=a
says "^Paced: *paced kernels: times are given, not measured" "^Measured: " "^Their times were given"
run 0 predict --compare=a --json
says '"paced": true,' '"crowd_tensor": 1,' '"measured": {'

# Not to be gone on with, and not to be mixed with a run that trains.
refused 2 "did 6 steps and has no checkpoint" train $small --ranks=2 --train.paced=p.json --run.dir=a
run 0 train $small --run.dir=real
refused 2 "a run with paced kernels trains nothing" train $small --train.paced=p.json --run.dir=real --train.steps=9
run "0|1" compare a real
says "A ran with paced kernels: times are given, not measured"
refused "2|3" "no.json" train $small --train.paced=no.json --run.dir=b
refused 3 "train.paced=p.json, with 7 threads for each rank" train $small --train.paced=p.json --run.dir=b --run.threads=7
[ ! -e b ] || wrong "a refused run left a folder"
finish
