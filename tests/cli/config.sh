#!/bin/sh
# flatout config: values, where they come from, mistakes.
. "$(dirname "$0")/lib.sh"

cat >run.yaml <<'END'
train:
  steps: 77        # a comment
  rows: 2
data: { seq: 64 }
optim:
  lr: 1e-3
  warmup: 3
END
FLATOUT_TRAIN_ROWS=5 FLATOUT_DATA_SEQ=128 run 0 config run.yaml --data.seq=256 --warmup=7
says "^ *train.steps  *77 steps  *run.yaml:2\$" "^ *train.rows  *5 rows  *FLATOUT_TRAIN_ROWS\$" "^ *data.seq  *256 tokens  *--data.seq\$" \
	"^ *optim.warmup  *7 steps  *--\(optim.\)\{0,1\}warmup\$" "^ *optim.lr  *0.001  *run.yaml:6\$" "^ *train.micro-batches  *4  *default\$"
run 0 config run.yaml --no-all
says "^ *train.steps "
! grep -q '^train.micro-batches' out || wrong "--no-all shows a default"
FLATOUT_TRAIN_ROWS=5 run 0 config run.yaml --optim.lr=0.01 --json
cp out c.json
valid c.json
if [ -n "$python" ]; then
	"$python" - <<'END' || wrong "values or origins in JSON"
import json
d = json.load(open("c.json"))
assert d["schema"] == 1
o = d["options"]
assert o["train.steps"] == {"value": 77, "origin": "file", "where": "run.yaml:2"}, o["train.steps"]
assert o["train.rows"]["value"] == 5 and o["train.rows"]["origin"] == "environment" and o["train.rows"]["where"] == "FLATOUT_TRAIN_ROWS"
assert o["optim.lr"]["value"] == 0.01 and o["optim.lr"]["origin"] == "flag"
assert o["train.micro-batches"]["origin"] == "default"
assert len(o) > 30
END
else
	echo "config: python3 is not installed: the JSON was only searched"
	grep -q '"origin": "environment"' c.json || wrong "no origin 'environment' in JSON"
fi
# One has no plural, a size no second unit.
run 0 config --train.rows=1 --memory.limit=3GiB
says "^ *train.rows  *1 row  *--train.rows\$" "^ *memory.limit  *3 GiB  *--memory.limit\$" "^ *eval.batches  *8 micro-batches "
# What is the command's own is neither a key nor a variable.
FLATOUT_CLI_JSON=yes run 0 config
says "^ *train.rows "
! grep -q '"cli\.' c.json || wrong "JSON lists the command's own options"
printf 'cli: {json: yes}\n' >own.yaml
refused 2 "own.yaml:1: unknown key 'cli'" config own.yaml
# In front of the file's name or behind it.
run 0 config --train.steps=9000 run.yaml
says "^ *train.steps  *9000 steps  *--train.steps"
FLATOUT_TRAIN_STEPS= run 0 config run.yaml
says "^ *train.steps  *77 steps  *run.yaml:2"
run 0 config
says "^ *train.steps  *1000 steps  *default"

# All mistakes at once, from file, environment and flags; the nearest key, the range, the unit.
cat >bad.yaml <<'END'
train:
  stpes: 5
  rows: none
model:
  layers: -3
optim:
  schedule: cosin
END
FLATOUT_DATA_SEQ=1 run 2 config bad.yaml --optim.lr=fast --sead=3
says "bad.yaml:2: unknown key 'train.stpes'; nearest is 'train.steps'" "bad.yaml:3: 'train.rows' must be an integer .*rows.*got 'none'" \
	"bad.yaml:5: 'model.layers' must be an integer from 0 to 10000 layers, got '-3'" "bad.yaml:7: 'optim.schedule' must be .*cosine.*got 'cosin'" \
	"FLATOUT_DATA_SEQ.*2 .*tokens.*got '1'" "'--optim.lr' must be\|'optim.lr' must be" "unknown option '--sead'; nearest is '--.*seed'"
[ "$(grep -c '^flatout: ' err)" = 7 ] || wrong "seven mistakes are not seven lines: $(cat err)"
[ "$(grep -c '^hint: ' err)" = 1 ] || wrong "not one hint"
[ ! -s out ] || wrong "a mistake wrote to standard output"

# A place in a file is something to copy: however deep the folder, its whole name is shown.
deep=a-folder-with-a-rather-long-name/another-folder-with-a-rather-long-name
mkdir -p "$deep"
printf 'modle: 3\n' >"$deep/a-run-file-in-a-deep-folder.yaml"
run 2 config "$deep/a-run-file-in-a-deep-folder.yaml"
says "$deep/a-run-file-in-a-deep-folder.yaml:1: unknown key 'modle'"

refused 2 "optim.warmup is 100 steps, longer than train.steps (50)" config --train.steps=50 --optim.warmup=100
# A default gives way.
run 0 config --train.steps=50
says "^ *optim.warmup  *5 steps "
# What spans several keys is reported beside what is wrong with one.
run 2 config --train.rows=none --optim.warmup=5000
[ "$(grep -c '^flatout: ' err)" = 2 ] || wrong "two mistakes are not two lines: $(cat err)"
refused 2 "train.rows x data.seq is 68719476736 tokens" config --train.rows=65536 --data.seq=1048576
refused 2 "unexpected argument 'two.yaml'" config run.yaml two.yaml
refused 2 "llama-9" config --model.name=llama-9
refused 2 "^flatout: model 'flatout-134m' with the overrides of this run: head dimension" config --model.heads=7
refused 2 "model.tied' must be one of no, yes, model, got 'maybe'" config --model.tied=maybe
printf 'train: {steps: 3}\ntrain: {steps: 4}\n' >twice.yaml
run 2 config twice.yaml --optim.warmup=1
says "twice.yaml:2: "
printf 'train:\n  steps: 1e99\n' >big.yaml
refused 2 "big.yaml:2: 'train.steps' must be an integer" config big.yaml
printf 'optim:\n  lr: .nan\n' >nan.yaml
refused 2 "nan.yaml:2: 'optim.lr' must be" config nan.yaml
printf 'optim:\n  lr: nan\n' >nan.yaml
refused 2 "nan.yaml:2: 'optim.lr' must be" config nan.yaml
printf 'a: &a [*a]\n' >loop.yaml
run 2 config loop.yaml
printf '%s\n' '- 1' >list.yaml
run 2 config list.yaml
: >hollow.yaml
run 0 config hollow.yaml
refused 3 "cannot read 'none.yaml'" config none.yaml
refused 3 "cannot read '.'" config .
refused 2 "optim.clip-norm=previous, or optim.clip=0" config --pass.optimizer-in-backward=yes
refused 2 "guard.nonfinite=skip cannot" config --pass.optimizer-in-backward=yes --optim.clip=0 --guard.nonfinite=skip
run 0 config --pass.optimizer-in-backward=yes --optim.clip=0
run 0 config --pass.optimizer-in-backward=yes --optim.clip-norm=previous --guard.spike=rewind
# An integer or a word: shown, written to files and read back as what it is.
run 0 config run.yaml
says "^ *pass.fuse-loss  *auto  *default\$" "^ *checkpoint.last  *yes  *default\$"
run 0 config run.yaml --json
grep -A1 '"pass.fuse-loss"' out | grep -q '"value": "auto"' || wrong "auto is not a text in JSON"
run 0 config run.yaml --pass.fuse-loss=2k --json
grep -A1 '"pass.fuse-loss"' out | grep -q '"value": 2000' || wrong "a chunk is not a number in JSON"
printf 'pass: {fuse-loss: auto}\n' >auto.yaml
run 0 config auto.yaml --no-all
says "^ *pass.fuse-loss  *auto  *auto.yaml:1\$"
for bad in -1 Auto "" autos; do
	refused 2 "'--pass.fuse-loss' must be an integer from 0 to 16777216 tokens, or auto, got '$bad'" config run.yaml "--pass.fuse-loss=$bad"
done
finish
